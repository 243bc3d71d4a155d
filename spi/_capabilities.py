"""`Capabilities`: the optional abilities of a store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a store beyond the mandatory ones, as `Storage.capabilities` has them.

    Everything not listed here is mandatory. A store refuses calls that need an ability that it lacks with
    `UnsupportedOperationError`.

    Parameters
    ----------
    restartable : bool
        Committed data is still there after every `Storage` was closed and the same URL is connected again.
    multi_process : bool
        Several processes can connect to one URL at once, and `plan_scan` and write jobs work across them. Without it
        the data lives in one process.
    durable_after_kill : bool
        A commit that returned survives kill -9 of every client; counts only with `multi_process`.
    writes_never_wait : bool
        No write waits for another open transaction: conflicts show up at the write or at the commit.
    table_types : bool
        The store has merge engines, row kinds and tables without a key.
    change_feeds : bool
        Tables may have change feeds, and be logs; counts only with `table_types`.
    streams : bool
        Write jobs may be batches of a stream, and of mode patch.
    statistics : bool
        The store reports how many rows a table has.
    shared_snapshots : bool
        Plans of several tables can share a snapshot.
    aggregates : bool
        Scan plans, also of shared snapshots, can have aggregates in place of rows.
    field_rules : bool
        Tables may have rules of their fields, and `TableAdmin` has `set_rules` and `drop_field`.
    wakes : bool
        Listeners are woken by the commits of every process that uses the store, not only of their own process.
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
    wakes: bool = False
