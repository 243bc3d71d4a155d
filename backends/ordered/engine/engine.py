"""`Engine`: an ordered map with its splits, runs and upkeep, and its life from `start` to `close`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from structable.spi import Listener, StorageUnavailableError, Traffic
from structable.spi.authors import LocalSignals

from .ordered_map import BlindStep
from .runs import RunStore
from .splits import SplitSource
from .upkeep import Upkeep

Describe: TypeAlias = Callable[[bytes, bytes | None, bytes, Sequence[BlindStep]], tuple[bytes, bytes] | None]
"""`Upcalls.describe`."""
MergeFunction: TypeAlias = Callable[[bytes | None, Sequence[BlindStep]], bytes]
"""`Upcalls.merge`."""
Fits: TypeAlias = Callable[[bytes | None, Sequence[BlindStep], Sequence[BlindStep]], bool]
"""`Upcalls.fits`."""
Check: TypeAlias = Callable[[bytes, bytes, Sequence[BlindStep]], None]
"""`Upcalls.check`."""


@dataclass(frozen=True, slots=True)
class Upcalls:
    """The functions of the layer above that an engine calls.

    Parameters
    ----------
    merge : callable
        Applies the increments or the operands of one key, in their order, to its value (None if the key is absent), and
        returns the new value; the engine passes them on without interpreting them. Raises `InvalidFieldError` on
        overflow.
    fits : callable
        Returns whether the steps of one key fit its value, with any other steps of the same kind before, between or
        after them, so that an engine that merges in readers never commits steps that a reader must reject.
    check : callable
        Takes a key, its value after a merge, and the steps; raises `FieldSizeLimitError` if the row is over a limit. A
        commit calls it, before it writes.
    describe : callable
        Takes a key, its value before and after a merge, and the steps; returns the space of the change feed that holds
        images of the row, and the value to append to it for this change, or None if there is nothing to append.
    procedures : mapping of str to callable
        The procedures of `Engine.delegate`; "recover" completes bulk commits that were decided and interrupted.
    """

    merge: MergeFunction
    fits: Fits
    check: Check
    describe: Describe
    procedures: Mapping[str, Callable[[bytes], bytes]]


class Engine(Upkeep, SplitSource, RunStore):
    """A flat ordered map with snapshots and atomic, optimistically checked commits. Safe to share between threads."""

    upcalls: Upcalls
    """The argument of `start`."""
    local_signals: LocalSignals | None = None
    """The listeners of this process, for an engine that does not carry signals; None if the URL names the store."""

    def start(self, upcalls: Upcalls) -> None:
        """Begin service; called once, before any other method.

        An engine that may find decisions of an interrupted bulk commit runs the procedure "recover" here, before it
        serves any other call.
        """
        self.upcalls = upcalls

    def delegate(self, procedure: str, argument: bytes) -> bytes:
        """Run a procedure in the process best suited to it.

        By default this process runs it. An engine whose database belongs to one process runs it there.
        """
        return self.upcalls.procedures[procedure](argument)

    def traffic(self) -> Traffic | None:
        """Return the result of `Storage.traffic`; None, the default, if the engine counts nothing."""
        return None

    def listen(self, channels: Sequence[str]) -> Listener:
        """Return a listener, for an engine that `carries_signals`; it ends with the engine."""
        raise NotImplementedError(f"{type(self).__name__} carries no signals")

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the engine was closed, or inherited through a fork, or its store is gone for good."""

    def loss(self) -> StorageUnavailableError | None:
        """Return the error of every call, if the engine is closed because its store is gone for good."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free all resources; idempotent, valid without `start`."""
