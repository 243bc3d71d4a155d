"""The random programs find faults that are planted in the product."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from structable.spark_bridge.joins import affected, intents, progress, step
from structable.spark_bridge.joins.affected import SideChanges
from structable.spark_bridge.joins.intents import Intents
from structable.spark_bridge.joins.kernel import Kernel, Values
from structable.spark_bridge.joins.progress import Positions, ProgressRecord
from structable.spark_bridge.joins.stores import View
from structable.spi import FeedPosition, Row, Storage, StructuredTable, Value, connect

from .support.clocks import LeaseClock
from .support.programs import Program

MOST = 400


def no_index_step(patch: pytest.MonkeyPatch) -> None:
    """Changes of the right table reach no row of the left."""
    patch.setattr(affected, "left_rows_of", lambda *arguments: iter(()))


def no_null_rule(patch: pytest.MonkeyPatch) -> None:
    """A null part of a foreign key matches as if it were some value."""
    original = Kernel.foreign_key

    def foreign_key(self: Kernel, left: Row | None) -> Values | None:
        if left is not None and original(self, left) is None:
            values: dict[str, Value] = {"p": "f1", "q": 1}
            return tuple(values[name] for name in self.bound.foreign_key)
        return original(self, left)

    patch.setattr(Kernel, "foreign_key", foreign_key)


def positions_before_the_result(patch: pytest.MonkeyPatch) -> None:
    """A small step records its positions in a transaction of its own, before that of the result."""
    stores: list[Storage] = []
    small_step = step.Stepper._small_step

    def noting_the_store(stepper: step.Stepper, view: View, record: ProgressRecord, since: Positions) -> object:
        stores.append(stepper._stores.result)
        return small_step(stepper, view, record, since)

    def write_record(table: StructuredTable, record: ProgressRecord) -> None:
        stores[-1].run(lambda tx: progress.write_record(tx.table(progress.PROGRESS.name), record))

    patch.setattr(step.Stepper, "_small_step", noting_the_store)
    patch.setattr(step, "write_record", write_record)


def missing_abort(patch: pytest.MonkeyPatch) -> None:
    """A step of another worker is taken over without aborting its job."""
    patch.setattr(Intents, "outcome", lambda self, intent: False)


def no_left_updates(patch: pytest.MonkeyPatch) -> None:
    """Updates of rows of the left table do not matter."""
    patch.setattr(Kernel, "matters", lambda self, side, before, after: side == "right")


def changes_cut_off(patch: pytest.MonkeyPatch) -> None:
    """A large step takes the changes that the small try read for all of them."""
    read = SideChanges.read

    def reading_once(
        self: SideChanges, storage: Storage, kernel: Kernel, side: str, until: FeedPosition, *most: int, **keys: bool
    ) -> bool:
        complete = read(self, storage, kernel, side, until, *most, **keys)
        self.position = until
        return complete

    patch.setattr(SideChanges, "read", reading_once)


def intent_of_nobody(patch: pytest.MonkeyPatch) -> None:
    """Intents of others do not stop a step."""
    patch.setattr(step.Stepper, "_may_end", lambda self, intent: True)
    patch.setattr(
        intents.Intents,
        "take_over",
        lambda self, record: self.end(record.consumer, record.intent.job_id, committed=False),
    )


PLANTED: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    no_index_step: 0,
    no_null_rule: 0,
    positions_before_the_result: 40,
    missing_abort: 65,
    no_left_updates: 0,
    changes_cut_off: 0,
    intent_of_nobody: 10,
}
"""The faults, each with a seed from which it is found soon."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeaseClock:
    clock = LeaseClock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], clock: LeaseClock) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in range(PLANTED[plant], PLANTED[plant] + MOST):
            url = f"memory://{uuid.uuid4().hex}"
            with connect(url) as storage:
                program = Program(storage, url, seed, clock)
                try:
                    program.run()
                except AssertionError:
                    return
                finally:
                    program.close()
    pytest.fail(f"{MOST} programs did not find it")
