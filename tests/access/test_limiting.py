"""`RateLimit`: credits of keys, in the order of the attempts, by the loop's clock."""

import asyncio
import math
from typing import cast

import pytest

from structable.access.limiting import Limiter, RateLimit
from structable.access.metrics import Instruments

from .support.fake_clock import run

Pairs = list[tuple[object, object]]


def _pairs(count: int) -> Pairs:
    return [(number, None) for number in range(count)]


async def _take_each(limiter: Limiter, *calls: tuple[str, Pairs]) -> list[float]:
    """Take for calls made at once; return the seconds after which each got its credits."""
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def take(operation: str, pairs: Pairs) -> float:
        await limiter.take(operation, pairs)
        return loop.time() - started

    return await asyncio.gather(*(take(operation, pairs) for operation, pairs in calls))


def _times(limit: RateLimit, *calls: tuple[str, Pairs]) -> list[float]:
    async def main() -> list[float]:
        return await _take_each(Limiter(limit, Instruments("t")), *calls)

    return run(main())


@pytest.mark.parametrize("rate", [1, 3, 7, 10, 0.1, 0.3, 2.5, 1000 / 3, 12345.678])
def test_one_second_is_free_and_then_credits_come_evenly(rate: float) -> None:
    burst = max(1, int(rate))
    times = _times(RateLimit(read=rate), *[("get", _pairs(1))] * (burst + 5))
    assert times[:burst] == [0.0] * burst
    capacity = max(rate, 1.0)
    for number, time in enumerate(times[burst:], burst + 1):
        assert time == pytest.approx((number - capacity) / rate)


def test_credits_come_back_while_nobody_asks() -> None:
    async def main() -> None:
        limiter = Limiter(RateLimit(read=10), Instruments("t"))
        assert await _take_each(limiter, ("get", _pairs(10))) == [0.0]
        await asyncio.sleep(0.5)
        assert await _take_each(limiter, ("get", _pairs(5)), ("get", _pairs(1))) == pytest.approx([0.0, 0.1])

    run(main())


@pytest.mark.parametrize("rate", [0.25, 1, 4, 10, 7.3])
def test_sum_over_one_second_is_taken_in_parts(rate: float) -> None:
    [time] = _times(RateLimit(write=rate), ("put", _pairs(100)))
    assert time == pytest.approx((100 - max(rate, 1)) / rate)


def test_small_calls_do_not_overtake_a_large_one() -> None:
    times = _times(RateLimit(write=10), ("put", _pairs(10)), ("put", _pairs(30)), *[("put", _pairs(1))] * 3)
    assert times == pytest.approx([0.0, 3.0, 3.1, 3.2, 3.3])


def test_reads_writes_and_updates_have_their_own_limits() -> None:
    limit = RateLimit(read=1, write=2, update=4)
    calls = [(operation, _pairs(8)) for operation in ("get", "put", "update")]
    assert _times(limit, *calls) == pytest.approx([7.0, 3.0, 1.0])


def test_every_write_and_an_update_without_a_limit_share_the_credits_of_write() -> None:
    limit = RateLimit(write=1)
    calls = [(operation, _pairs(1)) for operation in ("put", "upsert", "delete", "update")]
    assert _times(limit, *calls, ("get", _pairs(99))) == pytest.approx([0.0, 1.0, 2.0, 3.0, 0.0])


def test_none_is_no_limit() -> None:
    calls = [(operation, _pairs(1000)) for operation in ("get", "put", "update", "delete")]
    assert _times(RateLimit(), *calls) == [0.0] * 4
    assert _times(RateLimit(update=1), *calls)[1:] == [0.0, 999.0, 0.0]


def test_credits_of_key_and_value_are_summed() -> None:
    limit = RateLimit(write=1, credits=lambda key, value: 0 if key == "free" else len(value) / 2)
    calls: list[tuple[str, Pairs]] = [
        ("put", [("free", None)]),
        ("put", [("a", "12"), ("b", "1234"), ("free", "")]),
        ("put", [("c", "1")]),
    ]
    assert _times(limit, *calls) == pytest.approx([0.0, 2.0, 2.5])


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, None, "3", True])
def test_wrong_credits_are_one_error_and_take_nothing(wrong: object) -> None:
    async def main() -> None:
        limiter = Limiter(RateLimit(read=1, credits=lambda key, value: cast("float", wrong)), Instruments("t"))
        with pytest.raises(ValueError, match=r"credits gives .* for the key 0"):
            await limiter.take("get", _pairs(1))

    run(main())


def test_cancelled_waiter_makes_way() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        limiter = Limiter(RateLimit(read=1), Instruments("t"))
        await limiter.take("get", _pairs(1))
        started = loop.time()
        waiting = [asyncio.ensure_future(limiter.take("get", _pairs(50))) for _ in range(3)]
        last = asyncio.ensure_future(limiter.take("get", _pairs(1)))
        await asyncio.sleep(0.25)
        for task in waiting:
            task.cancel()
        await last
        assert loop.time() - started == pytest.approx(1.0)

    run(main())


@pytest.mark.parametrize("name", ["read", "write", "update"])
def test_wrong_rates_are_refused(name: str) -> None:
    for value in (0, -1, 0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=name):
            RateLimit(**{name: value})  # type: ignore[arg-type]
    for wrong in ("1", True):
        with pytest.raises(TypeError, match=name):
            RateLimit(**{name: wrong})  # type: ignore[arg-type]


def test_credits_must_be_callable() -> None:
    with pytest.raises(TypeError, match="credits"):
        RateLimit(credits=3)  # type: ignore[arg-type]
