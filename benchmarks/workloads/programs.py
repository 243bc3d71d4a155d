"""What a client process runs: programs, which plan their steps before the clock starts and then take them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

Step: TypeAlias = tuple[str, tuple[object, ...]]
"""The name of an action, and its arguments."""

Action: TypeAlias = Callable[..., int]
"""Does one step, and returns its effect: how many things it did or found."""


class Program(ABC):
    """One client of a database."""

    @property
    @abstractmethod
    def actions(self) -> Mapping[str, Action]:
        """The actions by name."""

    @abstractmethod
    def plan(self, work: str, seed: int, amount: int) -> list[Step]:
        """Return steps. For the same work and seed each program has the same ones, whatever their amount."""

    @abstractmethod
    def performed(self, steps: list[Step]) -> None:
        """Learn which of the planned steps were taken: the first ones, as many as time permitted."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class Opening(Protocol):
    """Opens a program in a client process; picklable."""

    def __call__(self, *, client: int, clients: int) -> Program:
        """Open the program of the client with this number, from 0."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one client did in a round.

    Parameters
    ----------
    seconds : float
        From the start to the end of its last step.
    steps : Counter
        The number of steps by action.
    effects : Counter
        The sums of what the actions returned.
    """

    seconds: float
    steps: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
