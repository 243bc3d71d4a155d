"""Runs that remote runtimes execute, and a monitor follows."""

from __future__ import annotations

import datetime as dt

from structable.datasets.identifiers import RunRef, check_run_id
from structable.datasets.records import Page
from structable.datasets.tables.runs import REMOTE_RUNTIMES, RemoteRuntime
from structable.spi import Range

from .context import Dataset

__all__ = ["RemoteRuntimes"]


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
        """Keep a run to be followed, in place of what was kept of it."""
        kept = RemoteRuntime(
            namespace=namespace,
            application=application,
            program_type=program_type,
            program=program,
            run=check_run_id(run),
            options=options,
            added=self._context.now(at),
        )
        self._context.records(REMOTE_RUNTIMES).put(kept)

    def get(self, *run: str) -> RemoteRuntime | None:
        """Return what is kept of a run, or None."""
        return self._context.records(REMOTE_RUNTIMES).get(*run)

    def delete(self, *run: str) -> None:
        """Follow the run no longer; nothing is written if it was not followed."""
        self._context.records(REMOTE_RUNTIMES).delete(*run)

    def page(self, after: RunRef | None = None, *, cursor: str | None = None, limit: int = 100) -> Page[RemoteRuntime]:
        """Return a page of the runs behind `after`, in key order."""
        within = Range.all() if after is None else Range.above(tuple(after))
        return self._context.records(REMOTE_RUNTIMES).page(within, cursor=cursor, limit=limit)
