"""Workflows: the token of a run, and the states of its nodes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from structable.datasets.identifiers import ProgramRef, RunRef, check_name, check_run_id, check_run_ref
from structable.datasets.tables.runs import WORKFLOW_NODES, WORKFLOW_TOKENS, WorkflowNode, WorkflowToken
from structable.spi import Range

from .context import Dataset


class Workflows(Dataset):
    """The datasets `workflow_tokens` and `workflow_nodes`."""

    def set_token(self, ref: ProgramRef, run: str, token: Mapping[str, object]) -> None:
        """Store the token of a run, replacing the previous one."""
        key = check_run_ref(*ref, run)
        self._context.records(WORKFLOW_TOKENS).put(WorkflowToken(**key._asdict(), token=dict(token)))

    def token(self, ref: ProgramRef, run: str) -> dict[str, object]:
        """Return the token of a run; empty if it has none."""
        found = self._context.records(WORKFLOW_TOKENS).get(*_key(ref, run))
        return {} if found is None else found.token

    def node(
        self,
        ref: ProgramRef,
        run: str,
        node: str,
        status: str,
        *,
        source: int,
        child_run: str | None = None,
        failure: object = None,
        at: dt.datetime | None = None,
    ) -> bool:
        """Record the state of a node and return True; return False, and write nothing, if a later message came first.

        Parameters
        ----------
        source : int
            A number that grows with each message of the sender, as for runs; a message with a smaller one is stale.
        child_run : str, optional
            The run that the node started.
        failure : JSON document, optional
            The error of a failed node.
        """
        key = check_run_ref(*ref, run)
        check_name(node, "node")
        if child_run is not None:
            check_run_id(child_run)
        nodes = self._context.records(WORKFLOW_NODES)
        before = nodes.get(*key, node)
        if before is not None and source < before.source:
            return False
        nodes.put(
            WorkflowNode(
                **key._asdict(),
                node=node,
                status=status,
                child_run=child_run,
                failure=failure,
                source=source,
                updated=self._context.now(at),
            )
        )
        return True

    def nodes(self, ref: ProgramRef, run: str) -> list[WorkflowNode]:
        """Return the nodes of a run, by name."""
        with self._context.records(WORKFLOW_NODES).scan(Range.prefix(_key(ref, run))) as found:
            return list(found)


def _key(ref: ProgramRef, run: str) -> RunRef:
    return RunRef(*ref, check_run_id(run))
