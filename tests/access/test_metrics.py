"""`Instruments`: the names and attributes that a program's SDK reads, and nothing where there is no SDK."""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Mapping

import pytest
from opentelemetry.metrics import NoOpMeter
from tenacity import stop_after_attempt, wait_fixed

from structable.access import AsyncTable, Batching, FunctionTable, TableReadFunction, TableWriteFunction, open_table
from structable.access.caching import Cache, CachedRows
from structable.access.limiting import Limiter, RateLimit
from structable.access.metrics import Instruments
from structable.access.retrying import Retrier, Retry
from structable.spi import RecordNotFoundError, Value

from .support.fake_clock import advance, run
from .support.measured import Measured

TABLE = ("table", "t")
GET = (("operation", "get"), TABLE)
PUT = (("operation", "put"), TABLE)


def _failing(*errors: Exception) -> Callable[[], "asyncio.Future[str]"]:
    left = list(errors)

    async def attempt() -> str:
        await asyncio.sleep(1.0)
        if left:
            raise left.pop(0)
        return "done"

    return lambda: asyncio.ensure_future(attempt())


def _retried(*errors: Exception) -> Measured:
    measured = Measured()

    async def main() -> None:
        policy = Retry(when=(OSError, RecordNotFoundError), stop=stop_after_attempt(3), wait=wait_fixed(2.0))
        retrier = Retrier(policy, lambda error: False, Instruments("t", measured.meter))
        with contextlib.suppress(Exception):
            await retrier.run("get", _failing(*errors))

    run(main())
    return measured


def test_every_instrument_has_its_name_unit_and_attributes() -> None:
    measured = Measured()
    instruments = Instruments("t", measured.meter)
    assert instruments.enabled
    gauge = instruments.cache_gauge()
    gauge.rows = 7
    instruments.called("get", 0.5, "ok")
    instruments.called("update", 0.5, "not_found")
    instruments.called("upsert", 0.5, "error")
    instruments.throttled("put", 0.5)
    instruments.retried("delete", 0.5, 2, exhausted=True)
    instruments.batch("update", 64)
    instruments.hit(2)
    instruments.miss()
    instruments.default("put")
    instruments.default("lost")
    instruments.default("lost")
    update = ("operation", "update")
    delete = (("operation", "delete"), TABLE)
    assert measured.read() == {
        "structable.table.duration": {
            (("operation", "get"), ("outcome", "ok"), TABLE): 1,
            (update, ("outcome", "not_found"), TABLE): 1,
            (("operation", "put"), ("outcome", "error"), TABLE): 1,
        },
        "structable.table.throttled": {PUT: 1},
        "structable.table.retried": {delete: 1},
        "structable.table.batch.size": {(update, TABLE): 1},
        "structable.table.retries": {delete: 2},
        "structable.table.retries.exhausted": {delete: 1},
        "structable.table.cache.hits": {GET: 2},
        "structable.table.cache.misses": {GET: 1},
        "structable.table.cache.rows": {(TABLE,): 7},
        "structable.table.defaults": {(update, ("outcome", "put"), TABLE): 1, (update, ("outcome", "lost"), TABLE): 2},
    }
    assert measured.sums("structable.table.batch.size") == {(update, TABLE): 64}
    units = measured.units()
    assert {name for name, unit in units.items() if unit == "s"} == {
        f"structable.table.{name}" for name in ("duration", "throttled", "retried")
    }


def test_call_that_succeeds_at_once_adds_to_no_retry_instrument() -> None:
    assert _retried().read() == {}


@pytest.mark.parametrize("error", [ValueError("other"), RecordNotFoundError("t", ("a",))])
def test_failure_that_is_not_retriable_adds_to_no_retry_instrument(error: Exception) -> None:
    assert _retried(error).read() == {}


def test_call_that_needed_retries_adds_its_time_and_their_number() -> None:
    measured = _retried(OSError("a"), OSError("b"))
    assert measured.read() == {"structable.table.retried": {GET: 1}, "structable.table.retries": {GET: 2}}
    assert measured.sums("structable.table.retried") == {GET: 7.0}


def test_call_whose_retry_fails_for_good_was_retried_and_not_exhausted() -> None:
    measured = _retried(OSError("a"), ValueError("b"))
    assert measured.read() == {"structable.table.retried": {GET: 1}, "structable.table.retries": {GET: 1}}


def test_call_whose_retries_are_spent_is_exhausted() -> None:
    measured = _retried(OSError("a"), OSError("b"), OSError("c"))
    assert measured.read() == {
        "structable.table.retried": {GET: 1},
        "structable.table.retries": {GET: 2},
        "structable.table.retries.exhausted": {GET: 1},
    }


def test_only_calls_that_waited_were_throttled() -> None:
    measured = Measured()

    async def main() -> None:
        limiter = Limiter(RateLimit(write=10), Instruments("t", measured.meter))
        await limiter.take("put", [(number, None) for number in range(10)])
        assert measured.read() == {}
        await asyncio.gather(*(limiter.take("upsert", [(0, None)]) for _ in range(2)))

    run(main())
    assert measured.read() == {"structable.table.throttled": {PUT: 2}}
    assert measured.sums("structable.table.throttled") == {PUT: pytest.approx(0.3)}


def test_cache_counts_hits_misses_and_rows() -> None:
    measured = Measured()

    async def load() -> int:
        await asyncio.sleep(1.0)
        return 1

    async def load_many(keys: list[str]) -> dict[str, int]:
        return dict.fromkeys(keys, 1)

    async def main() -> None:
        cached: CachedRows[str, int] = CachedRows(Cache(ttl=10.0), Instruments("t", measured.meter))
        await asyncio.gather(*(cached.get("a", load) for _ in range(3)))
        await cached.get("a", load)
        await cached.get_many(["a", "b", "c"], load_many)
        assert measured.read() == {
            "structable.table.cache.hits": {GET: 2},
            "structable.table.cache.misses": {GET: 5},
            "structable.table.cache.rows": {(TABLE,): 3},
        }
        cached.acknowledged(cached.written(["b", "x"]))
        assert measured.read()["structable.table.cache.rows"] == {(TABLE,): 2}
        await advance(20.0)
        await cached.get("d", load)
        assert measured.read()["structable.table.cache.rows"] == {(TABLE,): 1}

    run(main())


def test_caches_of_one_table_are_summed_while_they_are_in_use() -> None:
    measured = Measured()
    gauges = [Instruments(name, measured.meter).cache_gauge() for name in ("t", "t", "u")]
    for number, gauge in enumerate(gauges, 1):
        gauge.rows = number
    rows = "structable.table.cache.rows"
    assert measured.read()[rows] == {(TABLE,): 3, (("table", "u"),): 3}
    del gauges[1:], gauge
    gc.collect()
    assert measured.read()[rows] == {(TABLE,): 1}


class _Remote(TableReadFunction[str, int], TableWriteFunction[str, int]):
    """Fails each call with the errors of `failures` in turn."""

    def __init__(self, *failures: Exception) -> None:
        self.rows: dict[str, int] = {}
        self._failures = list(failures)

    async def _call(self) -> None:
        if self._failures:
            raise self._failures.pop(0)

    async def get(self, key: str) -> int | None:
        await self._call()
        return self.rows.get(key)

    async def put(self, key: str, value: int) -> None:
        await self._call()
        self.rows[key] = value

    async def update(self, key: str, changes: Mapping[str, Value]) -> None:
        await self._call()
        if key not in self.rows:
            raise RecordNotFoundError("t", (key,))

    async def delete(self, key: str) -> None:
        await self._call()
        self.rows.pop(key, None)


def _measured(
    calls: Callable[[AsyncTable[str, int]], Awaitable[object]], *failures: Exception, **policies: object
) -> dict[str, dict[tuple[tuple[str, object], ...], float]]:
    """Make calls on a table with a meter, and return what it measured."""
    measured = Measured()
    remote = _Remote(*failures)

    async def main() -> None:
        source = FunctionTable(read=remote, write=remote)
        async with open_table(source, name="t", meter=measured.meter, **policies) as table:  # type: ignore[call-overload]
            with contextlib.suppress(OSError, ValueError, RecordNotFoundError):
                await calls(table)

    run(main())
    return measured.read()


def _duration(operation: str, **outcomes: int) -> dict[tuple[tuple[str, object], ...], float]:
    return {(("operation", operation), ("outcome", outcome), TABLE): count for outcome, count in outcomes.items()}


_RETRY = Retry(when=OSError, stop=stop_after_attempt(3), wait=wait_fixed(1.0))


def test_first_try_success_counts_in_duration_alone() -> None:
    limit = RateLimit(read=100, write=100)
    policies = {"read_retry": _RETRY, "write_retry": _RETRY, "rate_limit": limit}
    assert _measured(lambda table: table.put("a", 1), **policies) == {
        "structable.table.duration": _duration("put", ok=1)
    }
    assert _measured(lambda table: table.get("a"), **policies) == {"structable.table.duration": _duration("get", ok=1)}
    assert _measured(lambda table: table.delete("a"), **policies) == {
        "structable.table.duration": _duration("delete", ok=1)
    }


def test_every_attempt_of_a_retried_call_has_its_duration_and_the_call_its_retries() -> None:
    found = _measured(lambda table: table.put("a", 1), OSError(), OSError(), write_retry=_RETRY)
    assert found == {
        "structable.table.duration": _duration("put", ok=1, error=2),
        "structable.table.retried": {PUT: 1},
        "structable.table.retries": {PUT: 2},
    }


def test_failure_that_no_policy_retries_counts_in_duration_alone() -> None:
    for policies in ({"read_retry": _RETRY}, {}):
        found = _measured(lambda table: table.get("a"), ValueError(), **policies)
        assert found == {"structable.table.duration": _duration("get", error=1)}


def test_missing_row_of_an_update_is_no_retry_and_its_default_is_counted() -> None:
    update = (("operation", "update"), TABLE)
    found = _measured(lambda table: table.update("a", {"v": 1}), write_retry=Retry(when=Exception))
    assert found == {"structable.table.duration": _duration("update", not_found=1)}
    found = _measured(lambda table: table.update("a", {"v": 1}, 5), write_retry=Retry(when=Exception))
    assert found == {
        "structable.table.duration": _duration("update", not_found=1, ok=1) | _duration("put", ok=1),
        "structable.table.defaults": {(update[0], ("outcome", "put"), TABLE): 1},
    }


def test_batches_count_their_operations() -> None:
    async def puts(table: AsyncTable[str, int]) -> None:
        await asyncio.gather(*(table.put(str(number), number) for number in range(5)))

    found = _measured(puts, batching=Batching(max_delay=1.0))
    assert found["structable.table.batch.size"] == {PUT: 1}


def test_without_an_sdk_nothing_is_recorded() -> None:
    for instruments in (Instruments("t"), Instruments("t", NoOpMeter("none"))):
        assert not instruments.enabled
        instruments.called("get", 1.0, "ok")
        instruments.throttled("get", 1.0)
        instruments.retried("get", 1.0, 1, exhausted=True)
        instruments.batch("get", 1)
        instruments.hit()
        instruments.miss()
        instruments.default("put")
        assert instruments.cache_gauge().rows == 0


def test_what_is_no_meter_is_refused() -> None:
    with pytest.raises(TypeError, match="meter is 'x'"):
        Instruments("t", "x")  # type: ignore[arg-type]
