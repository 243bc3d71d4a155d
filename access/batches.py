"""`CompleteBatch` and `CompactBatch`: the operations that a batch keeps, and the rounds in which it is sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable

from .callers import Caller
from .sources import Kind


class BatchStep:
    """One operation of a batch on one key, for one caller or for several."""

    __slots__ = ("callers", "key", "kind", "payload")

    def __init__(self, kind: Kind, key: Hashable, payload: object) -> None:
        self.kind = kind
        self.key = key
        self.payload = payload
        self.callers: list[tuple[Caller, object]] = []
        """The callers, and the result that each gets if a write succeeds; a read gives each the row."""


class CallBatch(ABC):
    """Operations that are sent together: for each key its steps, which run one after the other."""

    def __init__(self) -> None:
        self.steps: dict[Hashable, list[BatchStep]] = {}
        self.size = 0

    @abstractmethod
    def add(self, kind: Kind, key: Hashable, payload: object, caller: Caller) -> None:
        """Add an operation after all earlier operations of its key."""

    def rounds(self) -> list[dict[Kind, list[BatchStep]]]:
        """Return the steps in rounds, by kind: each key at most once in a round, its steps in order."""
        late = self._late()
        rounds: list[dict[Kind, list[BatchStep]]] = []
        for steps in self.steps.values():
            first = 1 if late and steps[0].kind != "get" else 0
            for number, step in enumerate(steps, first):
                while len(rounds) <= number:
                    rounds.append({})
                rounds[number].setdefault(step.kind, []).append(step)
        return rounds

    def _late(self) -> bool:
        """Return whether keys that are not read first begin with the second round."""
        return False

    def callers(self) -> Iterable[Caller]:
        """Return all callers."""
        return [caller for steps in self.steps.values() for step in steps for caller, _ in step.callers]


class CompleteBatch(CallBatch):
    """Keeps every operation; its size is their number. Consecutive gets of a key become one read."""

    def add(self, kind: Kind, key: Hashable, payload: object, caller: Caller) -> None:
        steps = self.steps.setdefault(key, [])
        if kind != "get" or not steps or steps[-1].kind != "get":
            steps.append(BatchStep(kind, key, payload))
        steps[-1].callers.append((caller, None))
        self.size += 1


class CompactBatch(CallBatch):
    """Keeps the last put or delete of a key; its size is the number of keys to read and of keys to write.

    A get before a write is read before the write. A get after it returns the written value, once the write has
    succeeded. The callers of a write that a later one replaces get the outcome of the later one.

    Parameters
    ----------
    as_read : callable
        Makes the result of a get from the payload of an earlier put.
    """

    def __init__(self, as_read: Callable[[Hashable, object], object]) -> None:
        super().__init__()
        self._as_read = as_read

    def add(self, kind: Kind, key: Hashable, payload: object, caller: Caller) -> None:
        steps = self.steps.setdefault(key, [])
        last = steps[-1] if steps else None
        if kind == "get" and last is not None and last.kind != "upsert":
            value = self._as_read(key, last.payload) if last.kind == "put" else None
            last.callers.append((caller, value))
            return
        step = BatchStep(kind, key, payload)
        if kind in ("put", "delete"):
            replaced = []
            while steps and steps[-1].kind != "get":
                replaced.append(steps.pop())
            if replaced:
                step.callers = replaced.pop().callers  # not copied: a key may be put any number of times
            for other in reversed(replaced):
                step.callers += other.callers
                self.size -= 1
            self.size -= 1 if step.callers else 0
        step.callers.append((caller, None))
        steps.append(step)
        self.size += 1

    def _late(self) -> bool:
        # Else the writes of keys that are not read would make a bulk call of their own.
        return any(len(steps) > 1 and steps[0].kind == "get" for steps in self.steps.values())
