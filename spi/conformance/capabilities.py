"""Optional features of a store: the backend's author declares each capability once, and a skipped test names it."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Capabilities", "meaning"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of the store under test beyond the mandatory ones.

    Everything not listed here is mandatory. The suite never checks which backend it runs on.

    Parameters
    ----------
    restartable : bool
        Committed data is still there after every `Storage` was closed and the same URL is connected again.
    multi_process : bool
        Several processes can connect to one URL at once, and `plan_scan` and write jobs work across them.
    durable_after_kill : bool
        A commit that returned survives kill -9 of every client (tested only with `multi_process`).
    writes_never_wait : bool
        No write waits for another open transaction: conflicts show up at the write or at the commit. Declared, more
        interleavings are tried on one thread.
    table_types : bool
        The store has merge engines, row kinds and tables without a key. Not declared, it refuses their specifications
        in `create`.
    change_feeds : bool
        Tables may have change feeds. Not declared, the store refuses a changelog-producer other than none in `create`
        and `create_or_update`. Tested only with `table_types`.
    streams : bool
        Write jobs may be batches of a stream, and of mode patch. Not declared, `begin_write` refuses both with
        UnsupportedOperationError.
    statistics : bool
        The store tells how many rows a table has. Not declared, `statistics` is refused with
        UnsupportedOperationError.
    shared_snapshots : bool
        Plans of several tables can share a snapshot. Not declared, `share_snapshot` is refused with
        UnsupportedOperationError.
    aggregates : bool
        Scan plans can have aggregates in place of rows. Not declared, `Storage.aggregates` is false, and a plan of
        them is refused with UnsupportedOperationError.
    field_rules : bool
        Tables may have rules of their fields, and `TableAdmin` has `set_rules` and `drop_field`. Not declared, both are
        refused with UnsupportedOperationError.
    """

    restartable: bool = True
    multi_process: bool = True
    durable_after_kill: bool = True
    writes_never_wait: bool = False
    table_types: bool = False
    change_feeds: bool = False
    streams: bool = False
    statistics: bool = False
    shared_snapshots: bool = False
    aggregates: bool = False
    field_rules: bool = False


_MEANINGS = {
    "restartable": "commits outlast the closing of every connection",
    "multi_process": "several processes can connect to one URL at once",
    "durable_after_kill": "a commit that returned survives kill -9 of every client",
    "writes_never_wait": "no write waits for another open transaction",
    "table_types": "the store has merge engines, row kinds and tables without a key",
    "change_feeds": "tables may have change feeds",
    "streams": "write jobs may be batches of a stream, and of mode patch",
    "statistics": "the store tells how many rows a table has",
    "shared_snapshots": "plans of several tables can share a snapshot",
    "aggregates": "scan plans can have aggregates in place of rows",
    "field_rules": "tables may have rules of their fields, and lose fields",
}


def meaning(capability: str) -> str:
    """Return the description of a capability, in a few words; ValueError if there is no such capability."""
    if capability not in _MEANINGS:
        raise ValueError(
            f"{capability!r} is no capability; there are {', '.join(f.name for f in fields(Capabilities))}"
        )
    return _MEANINGS[capability]
