"""`Context`: the state shared by all steps of all transactions of a storage."""

from __future__ import annotations

from dataclasses import dataclass

from structable.backends.hbase.layout import Layout
from structable.backends.hbase.settings import Settings
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.ordered.engine import Fits, Merge

from .status_table import StatusTable

__all__ = ["Context"]


@dataclass(frozen=True, slots=True)
class Context:
    """A prefix of HBase tables: its gateway and settings, and the known state of its transactions."""

    gateway: Gateway
    layout: Layout
    settings: Settings
    merge: Merge
    fits: Fits
    status_table: StatusTable
