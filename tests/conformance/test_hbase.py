"""The HBase store keeps the contract, on a real server; and its isolation also where values are still intents."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from structable.spi import Isolation, Storage
from structable.testing.conformance import BackendConformance
from structable.testing.conformance.case import OpenSession
from structable.testing.conformance.interleaving import ConcurrentTransaction
from structable.testing.conformance.isolation import IsolationCases
from tests.conformance.support.sizes import examples, share_of
from tests.hbase.support.internals import hold_finaliser
from tests.hbase.support.remote_transactions import OtherProcess


class TestHBase(BackendConformance):
    # Each makes its tables in some tenths of a second.
    max_examples = examples(8)
    stress_rounds = share_of(30)
    interruptions = 20

    @pytest.fixture
    def storage_url(self, hbase_url: str) -> str:
        return hbase_url

    @pytest.fixture
    def interrupted_url(self, hbase_url: str) -> str:
        return f"{hbase_url}?pool_size=6"


class TestHBaseWithValuesInIntents(IsolationCases):
    """Nothing is finalised: every reader finds committed values in intents."""

    @pytest.fixture
    def storage_url(self, hbase_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
        hold_finaliser(monkeypatch)
        return hbase_url


class TestHBaseByLists(IsolationCases):
    """Small transactions, too, find one another by the lists of recent writes."""

    @pytest.fixture
    def storage_url(self, hbase_url: str) -> str:
        return f"{hbase_url}?read_back_rows=0"


@pytest.fixture(scope="module")
def other() -> Iterator[OtherProcess]:
    """Start one process for all tests that request it."""
    with closing(OtherProcess()) as other:
        yield other


class TestHBaseOfTwoProcesses(IsolationCases):
    """The first transaction of a test runs in this process, the others in another."""

    @pytest.fixture(params=[0, 8], ids=["lists", "rows"])
    def storage_url(self, hbase_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        hold_finaliser(monkeypatch)
        return f"{hbase_url}?read_back_rows={request.param}"

    @pytest.fixture
    def session(self, storage: Storage, storage_url: str, other: OtherProcess) -> Iterator[OpenSession]:
        """Open transactions alternately here and there."""
        sessions: list[ConcurrentTransaction] = []
        other.connect(storage_url)

        def open_session(isolation: Isolation = Isolation.SNAPSHOT) -> ConcurrentTransaction:
            place = storage if not sessions else other
            sessions.append(ConcurrentTransaction(place, isolation, self.patience))  # type: ignore[arg-type]
            return sessions[-1]

        yield open_session
        for session in sessions:
            session.leave()
        for session in sessions:
            session.join()
        other.disconnect()
