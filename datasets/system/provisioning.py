"""Tasks that provision and deprovision the clusters of runs."""

from __future__ import annotations

import datetime as dt

from structable.datasets.identifiers import check_name, check_run_id
from structable.datasets.tables.runs import PROVISIONING_TASKS, ProvisioningTask

from .context import Dataset

__all__ = ["Provisioning"]

ENDED = ("DONE", "FAILED", "CANCELLED")
"""The states of tasks that `unfinished` leaves out."""


class Provisioning(Dataset):
    """The dataset `provisioning_tasks`. A task's key is a run and the kind of the task; its states are the caller's.

    `DONE`, `FAILED` and `CANCELLED` end a task.
    """

    def put(
        self,
        namespace: str,
        application: str,
        program_type: str,
        program: str,
        run: str,
        kind: str,
        *,
        state: str,
        task: object = None,
        attempts: int = 0,
        at: dt.datetime | None = None,
    ) -> ProvisioningTask:
        """Keep a task, in place of the one before."""
        made = ProvisioningTask(
            namespace=namespace,
            application=application,
            program_type=program_type,
            program=program,
            run=check_run_id(run),
            kind=check_name(kind, "kind"),
            state=state,
            task=task,
            attempts=attempts,
            updated=self._context.now(at),
        )
        self._context.records(PROVISIONING_TASKS).put(made)
        return made

    def get(self, *key: str) -> ProvisioningTask | None:
        """Return the task, or None."""
        return self._context.records(PROVISIONING_TASKS).get(*key)

    def move(
        self, key: tuple[str, ...], before: str, after: str, *, at: dt.datetime | None = None, **changes: object
    ) -> bool:
        """Set the state to `after`, and the fields named, if the state is `before`; return whether it was.

        Raises
        ------
        NotFoundError
            If there is no such task.
        TypeError
            If fields other than `task` and `attempts` are named.
        """
        unknown = changes.keys() - {"task", "attempts"}
        if unknown:
            raise TypeError(f"a task's task and attempts can be changed, not {', '.join(sorted(unknown))}")
        tasks = self._context.records(PROVISIONING_TASKS)
        if tasks.require(*key).state != before:
            return False
        tasks.change(key, state=after, updated=self._context.now(at), **changes)
        return True

    def unfinished(self) -> list[ProvisioningTask]:
        """Return the tasks of no end state, in key order."""
        with self._context.records(PROVISIONING_TASKS).scan() as found:
            return [task for task in found if task.state not in ENDED]

    def delete(self, *key: str) -> None:
        """Delete the task; nothing is written if there is none."""
        self._context.records(PROVISIONING_TASKS).delete(*key)
