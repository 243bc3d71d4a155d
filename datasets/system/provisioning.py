"""The hosts of runs: tasks that provision clusters, remote runtimes, and the minutes in which runs were alive."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from structable.datasets.identifiers import RunRef, check_name, check_run_ref, check_texts
from structable.datasets.records import Page
from structable.datasets.tables.runs import (
    HEARTBEATS,
    PROVISIONING_TASKS,
    REMOTE_RUNTIMES,
    Heartbeat,
    ProvisioningTask,
    RemoteRuntime,
    Run,
)
from structable.spi import Range

from .context import Dataset

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
        """Store a task, replacing the previous one.

        Raises
        ------
        ValueError
            If the run id is not a UUIDv7, or a name is invalid.
        """
        made = ProvisioningTask(
            **check_run_ref(namespace, application, program_type, program, run)._asdict(),
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
        """Return the unfinished tasks, in key order."""
        with self._context.records(PROVISIONING_TASKS).scan() as found:
            return [task for task in found if task.state not in ENDED]

    def delete(self, *key: str) -> None:
        """Delete the task; nothing is written if there is none."""
        self._context.records(PROVISIONING_TASKS).delete(*key)


class RemoteRuntimes(Dataset):
    """The dataset `remote_runtimes`."""

    def write(
        self,
        namespace: str,
        application: str,
        program_type: str,
        program: str,
        run: str,
        *,
        options: object = None,
        at: dt.datetime | None = None,
    ) -> None:
        """Record a run to follow, in place of its former record.

        Raises
        ------
        ValueError
            If the run id is not a UUIDv7, or a name is invalid.
        """
        kept = RemoteRuntime(
            **check_run_ref(namespace, application, program_type, program, run)._asdict(),
            options=options,
            added=self._context.now(at),
        )
        self._context.records(REMOTE_RUNTIMES).put(kept)

    def get(self, *run: str) -> RemoteRuntime | None:
        """Return the record of a run, or None."""
        return self._context.records(REMOTE_RUNTIMES).get(*run)

    def delete(self, *run: str) -> None:
        """Stop following the run; nothing is written if it was not followed."""
        self._context.records(REMOTE_RUNTIMES).delete(*run)

    def page(self, after: RunRef | None = None, *, cursor: str | None = None, limit: int = 100) -> Page[RemoteRuntime]:
        """Return a page of the runs behind `after`, in key order."""
        within = Range.all() if after is None else Range.above(tuple(after))
        return self._context.records(REMOTE_RUNTIMES).page(within, cursor=cursor, limit=limit)


class Heartbeats(Dataset):
    """The dataset `heartbeats`: a row for each run and minute."""

    def beat(self, run: Run, at: dt.datetime | None = None) -> None:
        """Record that a run is alive in the minute of `at`, with its details."""
        kept = Heartbeat(**check_run_ref(*run.run_ref)._asdict(), minute=_minute(self._context.now(at)), record=run)
        self._context.records(HEARTBEATS).put(kept)

    def between(self, namespaces: Iterable[str], begin: dt.datetime, end: dt.datetime) -> dict[RunRef, Run]:
        """Return the newest record of each run with a heartbeat from the minute of `begin` until before `end`."""
        begin, end = _minute(self._context.now(begin)), self._context.now(end)
        found: dict[RunRef, Run] = {}
        for namespace in check_texts(namespaces, "namespaces"):
            with self._context.records(HEARTBEATS).scan(Range((namespace, begin), (namespace, end))) as beats:
                for beat in beats:
                    found[beat.record.run_ref] = beat.record
        return found

    def expire(self, namespace: str, before: dt.datetime) -> int:
        """Delete a namespace's heartbeats of minutes before `before`, and return their number."""
        within = Range((namespace,), (namespace, self._context.now(before)))
        return self._context.records(HEARTBEATS).delete_all(within)


def _minute(at: dt.datetime) -> dt.datetime:
    return at.replace(second=0, microsecond=0)
