"""What the contract allows: calls in their order, their outcomes, and what the store saw of each key."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from structable.spi import RecordNotFoundError

from .fake_store import Call, FakeStore

State = tuple[int, ...] | None  # the numbers of the operations that made a row, in order; None: there is no row
Effect = tuple[str, object]


def grown(row: object, changes: object) -> dict[str, object]:
    """Merge an update into a row: rows of these schedules hold the numbers of their operations."""
    assert isinstance(row, dict)
    assert isinstance(changes, dict)
    return {"by": (*row["by"], *changes["by"])}


class Missing(RecordNotFoundError):
    """The outcome of an update whose key `update_many` returned."""


@dataclass(eq=False)
class Operation:
    """One key's part of a call.

    Parameters
    ----------
    number : int
        Its place in the order of calls; the value of a put and the changes of an update name it.
    kind : str
        get, put, update or delete.
    key : hashable
        The key.
    default : int, optional
        The number that the default of an update names.
    alone : bool
        Whether the call has no other operation; a bulk call may have taken effect in part when it fails.
    outcome : object
        What the call returned for this key, or its exception; a CancelledError where the caller was cancelled, and
        `Missing` for a key that `update_many` called missing.
    awaited_late : bool
        Whether the call may end before it is awaited.
    together : sequence of Operation
        All operations of a bulk call, which fail together.
    """

    number: int
    kind: str
    key: Hashable
    default: int | None = None
    alone: bool = True
    outcome: object = NotImplemented
    awaited_late: bool = False
    together: Sequence[Operation] = ()

    @property
    def ended(self) -> bool:
        return self.outcome is not NotImplemented

    @property
    def succeeded(self) -> bool:
        return self.ended and not isinstance(self.outcome, BaseException)

    @property
    def cancelled(self) -> bool:
        return isinstance(self.outcome, asyncio.CancelledError)


@dataclass(frozen=True)
class Place:
    """How far a key has come: so many of its effects, and in a compact batch a write that a later one replaces."""

    effects: int
    replaced: tuple[State] | None = None


class History:
    """The effects of one key, as the store saw them."""

    def __init__(self, effects: Sequence[Effect]) -> None:
        self.effects = effects
        self.states: list[State] = [None]
        for kind, argument in effects:
            self.states.append(_apply(self.states[-1], kind, argument))

    def state(self, place: Place) -> State:
        return self.states[place.effects] if place.replaced is None else place.replaced[0]

    def has(self, place: Place, kinds: Sequence[str], argument: object) -> bool:
        return place.effects < len(self.effects) and self.effects[place.effects] in [(kind, argument) for kind in kinds]


def _apply(state: State, kind: str, argument: object) -> State:
    if kind == "delete":
        return None
    assert isinstance(argument, dict)
    numbers: tuple[int, ...] = argument["by"]
    if kind == "update":
        assert state is not None
        return (*state, *numbers)
    return numbers


def check_history(store: FakeStore, operations: Sequence[Operation], *, compact: bool, exact: bool) -> None:
    """Fail unless the operations, in this order, explain the effects and outcomes of every key.

    Parameters
    ----------
    store : FakeStore
        What was seen.
    operations : sequence of Operation
        All of them, in the order of their calls.
    compact : bool
        Whether batches are compact: a write may be replaced by a later one of its key.
    exact : bool
        Whether a call that failed has changed nothing: not where the functions have no bulk methods.
    """
    by_key: dict[Hashable, list[Effect]] = {}
    for key, kind, argument in store.effects:
        by_key.setdefault(key, []).append((kind, argument))
    ours = {operation.key for operation in operations}
    assert by_key.keys() <= ours, f"keys of no caller: {by_key.keys() - ours}"
    for key in ours:
        of_key = [operation for operation in operations if operation.key == key]
        _check_key(of_key, History(by_key.get(key, [])), compact, exact)
        for operation in of_key:
            if isinstance(operation.outcome, BaseException):
                _check_error(operation, store, compact)


def _check_key(operations: Sequence[Operation], history: History, compact: bool, exact: bool) -> None:
    places = {Place(0)}
    done: list[Operation] = []
    for operation in operations:
        done.append(operation)
        after = {place for before in places for place in _after(operation, before, history, compact, exact)}
        assert after, _explain(done, places, history)
        places = after
    whole = Place(len(history.effects))
    assert whole in places, _explain(done, places, history)


def _explain(operations: Sequence[Operation], places: set[Place], history: History) -> str:
    lines = [f"  {each.number} {each.kind} default={each.default} -> {each.outcome!r}" for each in operations]
    return "\n".join(
        [
            "the order of calls does not explain the last of these outcomes, or not all effects",
            *lines,
            f"effects: {history.effects}",
            f"possible before it: {[(place, history.state(place)) for place in places]}",
        ]
    )


def _after(operation: Operation, place: Place, history: History, compact: bool, exact: bool) -> Iterator[Place]:
    """Yield where an operation may leave its key."""
    state = history.state(place)
    match operation.kind:
        case "get":
            if not operation.succeeded or operation.outcome == (None if state is None else {"by": state}):
                yield place
        case "update":
            yield from _after_update(operation, place, history, exact)
        case _:
            value = None if operation.kind == "delete" else {"by": (operation.number,)}
            if _may_be_applied(operation, exact) and history.has(place, [operation.kind], value):
                yield Place(place.effects + 1)
            if compact and (operation.succeeded or operation.cancelled):
                yield Place(place.effects, (None if value is None else (operation.number,),))
            if not operation.succeeded and place.replaced is None:  # what it would have replaced had failed with it
                yield place


def _may_be_applied(operation: Operation, exact: bool) -> bool:
    return operation.succeeded or operation.cancelled or not (exact and operation.alone)


def _after_update(operation: Operation, place: Place, history: History, exact: bool) -> Iterator[Place]:
    starts = [place]
    if operation.default is not None and history.state(place) is None:
        default = {"by": (operation.default,)}
        if history.has(place, ["put", "insert_if_absent"], default):
            starts.append(Place(place.effects + 1))
    for start in starts:
        if _may_be_applied(operation, exact) and history.has(start, ["update"], {"by": (operation.number,)}):
            yield Place(start.effects + 1)
        if isinstance(operation.outcome, Missing) or (
            operation.alone and isinstance(operation.outcome, RecordNotFoundError)
        ):
            if history.state(start) is None:
                yield start
        elif not operation.succeeded:
            yield start


def _check_error(operation: Operation, store: FakeStore, compact: bool) -> None:
    """A failure must come from a call that had this operation in it."""
    error = operation.outcome
    if isinstance(error, RecordNotFoundError | asyncio.CancelledError):
        return
    assert isinstance(error, BaseException)
    calls = [call for call in store.calls if call.error is not None and call.error.args == error.args]
    assert calls, f"{error!r} of {operation} was raised by no call"
    failed = operation.together or [operation]
    found = any(_is_in(each, call, compact) for call in calls for each in failed)
    assert found, f"{error!r} of {operation} is of {calls[0].pairs}"


def _is_in(operation: Operation, call: Call, compact: bool) -> bool:
    if operation.key not in call.keys:
        return False
    if compact or not operation.alone:
        return True
    if operation.kind in ("get", "delete"):
        return call.operation.startswith(operation.kind)
    return (operation.key, {"by": (operation.number,)}) in call.pairs
