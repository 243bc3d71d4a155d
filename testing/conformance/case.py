"""`ConformanceCase`: the hooks for a backend's author, and the fixtures that all rules share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import ClassVar, Protocol

import pytest

from structable.spi import Capabilities, Isolation, Storage, StructuredTable, TableSpecification, Transaction, connect

from .clients import StoreProcess
from .interleaving import PATIENCE, ConcurrentTransaction

AUTO_COMMIT = "auto-commit"
ONE_TRANSACTION = "one transaction"

OpenTable = Callable[[TableSpecification], StructuredTable]
"""Creates a table and returns it as one of the views that an operation can be called on."""


_DECLARED: dict[type, Capabilities] = {}


class OpenSession(Protocol):
    """Begins a transaction in a separate thread."""

    def __call__(self, isolation: Isolation = ...) -> ConcurrentTransaction: ...


class Begin(Protocol):
    """Begins a transaction that the test need not end."""

    def __call__(self, isolation: Isolation = ..., read_only: bool = ...) -> Transaction: ...


class ConformanceCase:
    """The base of every part of the suite; subclass `BackendConformance`, not this.

    Attributes
    ----------
    max_examples : int
        The number of examples of each Hypothesis property.
    max_steps : int
        The number of steps in each example of the state machine.
    stress_rounds : int
        The number of transactions of each thread or process of a concurrency test.
    patience : float
        Seconds after which an unfinished step counts as waiting for another transaction: longer than any read or write
        of the store that does not wait for one.
    """

    max_examples: ClassVar[int] = 60
    max_steps: ClassVar[int] = 40
    stress_rounds: ClassVar[int] = 60
    patience: ClassVar[float] = PATIENCE

    @pytest.fixture(autouse=True)
    def _any_fixture(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the store declares; the first test of a class that needs them connects to it."""
        found = _DECLARED.get(type(self))
        if found is None:
            with connect(self._request.getfixturevalue("storage_url")) as storage:
                found = _DECLARED[type(self)] = storage.capabilities
        return found

    @pytest.fixture
    def storage_url(self) -> str:
        """Return the URL of a fresh, empty store. This is the only hook that every backend must provide."""
        raise NotImplementedError(
            f"{type(self).__name__} must override the fixture `storage_url`: it returns the URL of a store that is "
            "fresh and empty for each test (make it unique, e.g. with tmp_path, and clean up after a yield)"
        )

    @pytest.fixture
    def absent_url(self, storage_url: str) -> str:
        """Return the URL of an absent store that can be created; override it if `storage_url` creates its store."""
        return storage_url

    @pytest.fixture
    def storage(self, storage_url: str) -> Iterator[Storage]:
        """Connect to the fresh store, and close it after the test."""
        with connect(storage_url) as storage:
            yield storage

    @pytest.fixture(params=[AUTO_COMMIT, ONE_TRANSACTION])
    def open_table(self, request: pytest.FixtureRequest, storage: Storage) -> Iterator[OpenTable]:
        """Create tables and open them in both views: every rule of an operation holds in each of them.

        In one transaction, a test reads back its writes as the transaction's own; it is committed at the end.
        """
        with ExitStack() as stack:

            def open_auto_commit(spec: TableSpecification) -> StructuredTable:
                storage.admin.create(spec)
                return storage.table(spec.name)

            def open_in_transaction(spec: TableSpecification) -> StructuredTable:
                storage.admin.create(spec)
                return stack.enter_context(storage.transaction()).table(spec.name)

            yield open_auto_commit if request.param == AUTO_COMMIT else open_in_transaction

    @pytest.fixture
    def session(self, storage: Storage) -> Iterator[OpenSession]:
        """Open transactions that run in threads of their own, so that a step may wait for another transaction."""
        sessions: list[ConcurrentTransaction] = []

        def open_session(isolation: Isolation = Isolation.SNAPSHOT) -> ConcurrentTransaction:
            sessions.append(ConcurrentTransaction(storage, isolation, self.patience))
            return sessions[-1]

        yield open_session
        for session in sessions:
            session.leave()
        for session in sessions:
            session.join()

    @pytest.fixture
    def peer(self, storage_url: str) -> Iterator[StoreProcess]:
        """Start another process on the store that executes requests."""
        self.require("multi_process")
        client = StoreProcess(storage_url, "obey")
        assert client.next() == "ready"
        yield client
        client.close()

    @pytest.fixture
    def begin(self, storage: Storage) -> Iterator[Begin]:
        """Open transactions without a `with` block; those that a test leaves open are rolled back."""
        opened: list[Transaction] = []

        def begin(isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
            opened.append(storage.transaction(isolation, read_only))
            return opened[-1]

        yield begin
        for transaction in opened:
            transaction.rollback()

    def require(self, capability: str) -> None:
        """Skip the test, with the capability in the reason, if the store does not declare it."""
        if not getattr(self.capabilities, capability):
            pytest.skip(f"capability {capability} is not declared")

    @staticmethod
    def fresh_id() -> str:
        """Return a name that was never used before, e.g. for a write job."""
        return uuid.uuid4().hex
