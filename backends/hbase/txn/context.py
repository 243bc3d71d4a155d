"""`PrefixContext`: the state that all transactions of a storage share, with the `ProtocolSettings`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from structable.backends.hbase.layout import Layout
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.ordered.engine import Upcalls

from .status_table import StatusTable


@dataclass(frozen=True, slots=True)
class ProtocolSettings:
    """The options of the protocol; times are in seconds."""

    lease: float  # time without a heartbeat until other processes may abort a pending transaction
    session_timeout: float  # time without a heartbeat until other processes end a process's snapshots and plans
    late_writes: float
    """A write accepted by a gateway arrives within this time, or never. Must exceed HBase's
    `hbase.client.operation.timeout` at the gateways."""
    timeout: float  # time for retries of failed calls, and for finding the outcome of a commit
    housekeeping: float  # time between two rounds of the janitor
    read_back_rows: int  # the most rows that a commit reads back; a larger one reads the lists of recent writes
    create: bool  # create missing tables of the prefix
    read_only: bool  # write nothing, except to push pending transactions


@dataclass(frozen=True, slots=True)
class PrefixContext:
    """A prefix of HBase tables: its gateway and settings, and the known state of its transactions."""

    gateway: Gateway
    layout: Layout
    settings: ProtocolSettings
    upcalls: Callable[[], Upcalls]
    status_table: StatusTable
