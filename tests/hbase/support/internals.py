"""Access to the inside of a storage over HBase: the public API shows neither finalisation nor garbage collection."""

from __future__ import annotations

import time

import pytest

from structable.backends.hbase.engine import HBaseEngine
from structable.backends.hbase.failpoints import failpoints
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.txn.finaliser import Finaliser
from structable.backends.hbase.upkeep.rounds import RoundReport
from structable.backends.ordered.storage import OrderedStorage
from structable.spi import Storage

_TIMEOUT = 60.0


def engine_of(storage: Storage) -> HBaseEngine:
    assert isinstance(storage, OrderedStorage)
    engine = storage.engine
    assert isinstance(engine, HBaseEngine)
    return engine


def round_trips(gateway: Gateway) -> int:
    counted = gateway.traffic().round_trips
    assert counted is not None
    return counted


def drained(storage: Storage) -> None:
    """Wait until all transactions that the storage committed are finalised."""
    assert engine_of(storage).transactions.finaliser.drain(_TIMEOUT), "what was committed was not finalised"


def hold_finaliser(patch: pytest.MonkeyPatch) -> None:
    """Leave the values of transactions that end from now on in their intents."""
    patch.setattr(Finaliser, "add", lambda _finaliser, _ended: None)


def collect_garbage(storage: Storage) -> RoundReport:
    """Run one round of this process's janitor, even without the janitor's lease."""
    engine = engine_of(storage)
    session = engine.transactions.session
    session.heartbeat()
    report = engine.janitor.run(session, alone=True)
    assert report is not None
    return report


def stall_beside_janitor(storage: Storage, point: str, seconds: float) -> None:
    """At a failpoint, which ends: collect garbage for so many seconds before the step goes on."""
    del failpoints[point]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        collect_garbage(storage)
