"""Slots are counted by live objects: a lost one is free again, and a waiting thread finds it."""

import threading
import time

import pytest

from structable.backends.base.slots import Slot, Slots


def test_at_most_the_limit_is_taken() -> None:
    """One more is refused until one is collected."""
    slots = Slots(2)
    taken = [slots.take(), slots.take()]
    assert all(isinstance(one, Slot) for one in taken)
    assert slots.take() is None
    taken.pop()
    assert slots.take() is not None


def test_interruption_loses_no_slot() -> None:
    """A slot whose taker raises before storing it is free again."""
    slots = Slots(1)

    def lose() -> None:
        _slot = slots.take()
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            lose()
    assert slots.take() is not None


def test_waiter_finds_a_lost_slot() -> None:
    """A collected slot wakes no waiter: the waiter polls for it."""
    slots = Slots(1)
    held = [slots.take()]
    found: list[Slot | None] = []
    waiter = threading.Thread(target=lambda: found.append(slots.wait(slots.take, 30)))
    waiter.start()
    held.clear()
    waiter.join()
    assert found[0] is not None


def test_waiter_is_woken() -> None:
    """Each of many threads that share one slot gets it in turn, and none waits for long."""
    slots = Slots(1)
    turns: list[int] = []

    def take(number: int) -> None:
        for _ in range(20):
            slot = slots.wait(slots.take, 30)
            assert slot is not None
            turns.append(number)
            del slot
            slots.wake()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(turns) == 80


def test_wait_gives_up() -> None:
    """The time-out ends the wait; with no time at all it tries once."""
    slots = Slots(1)
    held = slots.take()
    began = time.monotonic()
    assert slots.wait(slots.take, 0.1) is None
    assert time.monotonic() - began >= 0.1
    assert slots.wait(slots.take, 0) is None
    del held
    assert slots.wait(slots.take, 0) is not None
