"""`Settings`: the options of the transaction protocol."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the protocol; times are in seconds.

    Parameters
    ----------
    lease : float
        Seconds without a heartbeat after which other processes may abort a pending transaction.
    session_timeout : float
        Seconds without a heartbeat after which other processes end a process's snapshots and plans.
    late_writes : float
        A write accepted by a gateway arrives within this time, or never. Must exceed HBase's
        `hbase.client.operation.timeout` at the gateways.
    timeout : float
        How long failed calls are retried, and how long the outcome of a commit is sought.
    housekeeping : float
        Pause between two rounds of the janitor.
    read_back_rows : int
        A commit of at most so many rows reads them back; a larger one reads the lists of recent writes.
    create : bool
        Whether missing tables of the prefix are created.
    read_only : bool
        Whether nothing is written, except to push pending transactions.
    """

    lease: float = 10.0
    session_timeout: float = 60.0
    late_writes: float = 1_200.0
    timeout: float = 30.0
    housekeeping: float = 30.0
    read_back_rows: int = 8
    create: bool = True
    read_only: bool = False
