"""`Settings`: how a storage uses HBase."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the protocol; times are in seconds.

    Parameters
    ----------
    lease : float
        Without a sign of life for so long a pending transaction may be aborted by others.
    session_timeout : float
        Without a sign of life for so long a process's snapshots and plans are let go by others.
    late_writes : float
        A write that a gateway has accepted arrives within this time, or never. It must exceed HBase's
        `hbase.client.operation.timeout` at the gateways.
    patience : float
        To try again, and to learn how a commit ended, while no gateway answers.
    housekeeping : float
        Between two rounds of the janitor.
    finalisation_delay : float
        That committed values stay intents at least.
    read_back_rows : int
        A commit of so many rows, or fewer, reads them back; of more, it reads what processes have written lately.
    create : bool
        Whether the tables of the prefix are made where they are missing.
    read_only : bool
        Whether nothing is written, but that a pending transaction may be pushed out of a reader's way.
    """

    lease: float = 10.0
    session_timeout: float = 60.0
    late_writes: float = 1_200.0
    patience: float = 30.0
    housekeeping: float = 30.0
    finalisation_delay: float = 0.0
    read_back_rows: int = 8
    create: bool = True
    read_only: bool = False
