"""`SessionMachine`: random operations on datasets, some in transactions of their own and some several in one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from structable.datasets import Session, SystemData
from structable.spi import Isolation, Storage, Transaction

from .clock import Clock
from .stores import emptied
from .ticks import Ticks

Model = TypeVar("Model")


class SessionMachine(RuleBasedStateMachine, Generic[Model]):
    """The rules begin, commit and roll back, and let time pass; a subclass adds the operations of a dataset.

    Parameters
    ----------
    storage : Storage
        A store with the tables of the datasets, which is emptied.
    model : Model
        What the datasets must hold, of plain values; it is copied when a transaction begins.
    """

    def __init__(self, storage: Storage, model: Model) -> None:
        super().__init__()
        self.model = model
        self.clock = Clock()
        self.ticks = Ticks()
        emptied(storage)
        self.system = SystemData.open(storage, clock=self.clock, monotonic=self.ticks)
        self._open: Transaction | None = None
        self._session: Session | None = None
        self._before = model

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Return the session of the open transaction, or of a new one that is committed at the end."""
        if self._session is not None:
            yield self._session
            return
        with self.system.transaction() as s:
            yield s

    @precondition(lambda self: self._open is None)
    @rule(isolation=st.sampled_from(Isolation))
    def begin(self, isolation: Isolation) -> None:
        self._before = copy.deepcopy(self.model)
        self._open = self.system.storage.transaction(isolation)
        self._session = self.system.bind(self._open)

    @precondition(lambda self: self._open is not None)
    @rule()
    def commit(self) -> None:
        assert self._open is not None
        self._open.commit()
        self._open = self._session = None

    @precondition(lambda self: self._open is not None)
    @rule()
    def roll_back(self) -> None:
        assert self._open is not None
        self._open.rollback()
        self._open = self._session = None
        self.model = self._before

    @rule(seconds=st.sampled_from((0.001, 1, 61, 90_000)))
    def tick(self, seconds: float) -> None:
        self.clock.tick(seconds)

    def teardown(self) -> None:
        if self._open is not None:
            self._open.rollback()
        self.system.close()
