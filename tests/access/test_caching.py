"""`Cache`: loaded once for all that wait, never older than a write, and nobody's but the caller's own."""

import asyncio
import copy
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import pytest

from structable.access.caching import Cache, CachedRows, CachedWrite
from structable.access.copies import private_copy
from structable.access.metrics import Instruments
from structable.spi import Row
from structable.spi.authors import RowShape

from .support.fake_clock import advance, idle, run

Rows = CachedRows[str, object]


class Store:
    """Rows behind the cache; a load waits until the test lets it go."""

    def __init__(self, rows: Mapping[str, object] | None = None) -> None:
        self.rows = dict(rows or {})
        self.loads: list[list[str]] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.holds = False

    async def _arrive(self, keys: list[str]) -> None:
        self.loads.append(keys)
        if self.holds:
            future = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            await future

    def one(self, key: str) -> Callable[[], Awaitable[object]]:
        async def load() -> object:
            seen = self.rows.get(key)
            await self._arrive([key])
            return seen

        return load

    async def many(self, keys: list[str]) -> dict[str, object]:
        seen = {key: self.rows[key] for key in keys if key in self.rows}
        await self._arrive(keys)
        return seen


def _cached(cache: Cache | None = None) -> Rows:
    return CachedRows(cache or Cache(), Instruments("t"))


def _get(cached: Rows, store: Store, key: str) -> asyncio.Future[object]:
    return cached.get(key, store.one(key))


def test_row_is_loaded_once_and_kept_for_its_lifetime() -> None:
    async def main() -> None:
        cached, store = _cached(Cache(ttl=5.0)), Store({"a": 1})
        assert [await _get(cached, store, "a") for _ in range(3)] == [1, 1, 1]
        await advance(4.9)
        store.rows["a"] = 2
        assert await _get(cached, store, "a") == 1
        await advance(0.2)
        assert await _get(cached, store, "a") == 2
        assert store.loads == [["a"], ["a"]]

    run(main())


def test_rows_age_from_the_call_that_read_or_put_them() -> None:
    """Other processes may write while a load or a put is under way."""

    async def main() -> None:
        cached, store = _cached(Cache(ttl=5.0)), Store({"a": 1})
        store.holds = True
        read, put = _get(cached, store, "a"), cached.written(["b"])
        await advance(3)
        store.rows |= {"a": 2, "b": 4}  # by another process
        store.waiting.pop().set_result(None)
        cached.acknowledged(put, {"b": 3})
        store.holds = False
        assert await read == 1
        assert await cached.get_many(["a", "b"], store.many) == {"a": 1, "b": 3}
        await advance(2)
        assert await cached.get_many(["a", "b"], store.many) == {"a": 2, "b": 4}
        store.holds = True
        late = cached.get_many(["c"], store.many)
        await advance(6)
        store.waiting.pop().set_result(None)
        store.holds = False
        assert await late == {}
        store.rows["c"] = 1
        assert await _get(cached, store, "c") == 1

    run(main())


def test_one_load_serves_all_that_wait_single_and_many() -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": 1, "b": 2, "c": 3})
        store.holds = True
        gets = [_get(cached, store, "a") for _ in range(3)]
        many = [cached.get_many(["c", "a", "b", "x", "a"], store.many), cached.get_many(["b", "a"], store.many)]
        gets.append(_get(cached, store, "b"))
        await idle()
        assert store.loads == [["a"], ["c", "b", "x"]]
        for future in store.waiting:
            future.set_result(None)
        assert await asyncio.gather(*gets) == [1, 1, 1, 2]
        assert [list((await found).items()) for found in many] == [
            [("c", 3), ("a", 1), ("b", 2)],
            [("b", 2), ("a", 1)],
        ]
        assert await cached.get_many(["a", "b", "c"], store.many) == {"a": 1, "b": 2, "c": 3}
        assert len(store.loads) == 2
        assert await cached.get_many([], store.many) == {}

    run(main())


def test_absent_rows_are_kept_only_on_demand() -> None:
    async def main(absent: bool) -> int:
        cached, store = _cached(Cache(absent=absent)), Store()
        for _ in range(2):
            assert await _get(cached, store, "a") is None
            assert await cached.get_many(["a", "b"], store.many) == {}
        return len(store.loads)

    assert run(main(absent=False)) == 4
    assert run(main(absent=True)) == 2


def test_least_recently_read_row_goes_first() -> None:
    async def main() -> None:
        cached, store = _cached(Cache(max_rows=2)), Store({"a": 1, "b": 2, "c": 3})
        for key in "abac":
            await _get(cached, store, key)
        assert await _get(cached, store, "a") == 1
        assert store.loads == [["a"], ["b"], ["c"]]
        await _get(cached, store, "b")
        assert store.loads[3:] == [["b"]]

    run(main())


def test_cancelled_callers_leave_the_load_to_the_others() -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": 1, "b": 2})
        store.holds = True
        first, second = _get(cached, store, "a"), _get(cached, store, "a")
        bulk = cached.get_many(["a", "b"], store.many)
        await idle()
        assert first.cancel()
        assert bulk.cancel()
        await idle()
        for future in store.waiting:
            future.set_result(None)
        assert await second == 1
        assert first.cancelled()
        assert await cached.get_many(["a", "b"], store.many) == {"a": 1, "b": 2}
        assert len(store.loads) == 2

    run(main())


def test_load_without_a_caller_left_is_still_kept() -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": 1})
        store.holds = True
        _get(cached, store, "a").cancel()
        await idle()
        store.waiting[0].set_result(None)
        await idle()
        assert await _get(cached, store, "a") == 1
        assert len(store.loads) == 1

    run(main())


@pytest.mark.parametrize("error", [OSError("down"), asyncio.CancelledError()])
def test_failing_load_fails_all_that_wait_and_keeps_nothing(error: BaseException) -> None:
    async def main() -> None:
        cached, store = _cached(Cache(absent=True)), Store({"a": 1, "b": 2})
        store.holds = True
        gets = [_get(cached, store, "a") for _ in range(2)]
        bulk = cached.get_many(["a", "b"], store.many)
        alone = _get(cached, store, "b")
        await idle()
        for future in store.waiting[:1]:
            future.set_exception(error)
        raised = []
        for get in gets:
            with pytest.raises(type(error)) as caught:
                await get
            raised.append(caught.value)
        assert raised[0] is not raised[1]
        with pytest.raises(type(error)):
            await bulk
        store.waiting[1].set_result(None)
        assert await alone == 2
        store.holds = False
        assert await _get(cached, store, "a") == 1

    run(main())


def test_abandoned_failure_is_not_reported_as_unseen() -> None:
    async def main() -> None:
        cached, store = _cached(), Store()
        store.holds = True
        get = _get(cached, store, "a")
        await idle()
        get.cancel()
        store.waiting[0].set_exception(OSError())
        await idle()

    run(main())


def test_load_that_cannot_begin_leaves_nothing_behind() -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": 1})

        def closed() -> Awaitable[object]:
            raise RuntimeError("closed")

        with pytest.raises(RuntimeError):
            cached.get("a", closed)
        assert await _get(cached, store, "a") == 1

    run(main())


def _put(cached: Rows, store: Store, key: str, value: object) -> CachedWrite[str]:
    write = cached.written([key])
    store.rows[key] = value
    return write


def test_write_drops_when_called_and_put_sets_once_acknowledged() -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": 1})
        await _get(cached, store, "a")
        write = cached.written(["a"])
        assert await _get(cached, store, "a") == 1
        assert store.loads == [["a"], ["a"]]
        store.rows["a"] = 2
        cached.acknowledged(write, {"a": 2})
        assert await _get(cached, store, "a") == 2
        assert len(store.loads) == 2

    run(main())


def test_update_delete_and_failed_write_leave_the_row_dropped() -> None:
    async def main() -> None:
        cached, store = _cached(Cache(absent=True)), Store({"a": 1})
        await _get(cached, store, "a")
        cached.acknowledged(cached.written(["a"]))
        assert await _get(cached, store, "a") == 1
        assert len(store.loads) == 2

    run(main())


@pytest.mark.parametrize("written", ["before", "during", "through"])
def test_load_that_a_write_overlaps_is_given_but_not_kept(written: str) -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": 1, "b": 5})
        store.holds = True
        early = cached.written(["a"] if written == "before" else [])  # ends during the load
        get = cached.get_many(["a", "b"], store.many)
        await idle()
        write = early if written == "before" else cached.written(["a"])
        store.rows["a"] = 2
        if written != "through":
            cached.acknowledged(write)
        store.waiting.pop().set_result(None)
        assert await get == {"a": 1, "b": 5}
        if written == "through":  # ends after the load
            cached.acknowledged(write)
        store.holds = False
        assert await cached.get_many(["a", "b"], store.many) == {"a": 2, "b": 5}
        assert store.loads == [["a", "b"], ["a"]]

    run(main())


def test_get_after_a_write_never_joins_a_load_from_before_it() -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": 1})
        store.holds = True
        early = _get(cached, store, "a")
        await idle()
        write = _put(cached, store, "a", 2)
        late = _get(cached, store, "a")
        await idle()
        for future in store.waiting:
            future.set_result(None)
        assert (await early, await late) == (1, 2)
        cached.acknowledged(write, {"a": 2})
        assert await _get(cached, store, "a") == 2
        assert len(store.loads) == 2

    run(main())


def test_put_sets_nothing_while_a_later_write_is_under_way_or_after_it() -> None:
    async def main() -> None:
        cached, store = _cached(), Store()
        first, second = _put(cached, store, "a", 1), _put(cached, store, "a", 2)
        cached.acknowledged(first, {"a": 1})
        assert await _get(cached, store, "a") == 2
        cached.acknowledged(second)  # failed, or an update
        store.rows["a"] = 3
        assert await _get(cached, store, "a") == 3
        first, second = _put(cached, store, "a", 4), _put(cached, store, "a", 5)
        cached.acknowledged(second, {"a": 5})
        cached.acknowledged(first, {"a": 4})
        assert await _get(cached, store, "a") == 5

    run(main())


def test_bulk_put_sets_what_no_later_write_took() -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": 7, "b": 8})
        bulk = cached.written(["a", "b", "a"])
        later = cached.written(["b"])
        cached.acknowledged(bulk, {"a": 1, "b": 2})
        cached.acknowledged(later)
        assert await cached.get_many(["a", "b"], store.many) == {"a": 1, "b": 8}
        assert store.loads == [["b"]]

    run(main())


def test_values_are_the_callers_own() -> None:
    async def main() -> None:
        cached, store = _cached(), Store({"a": {"tags": ["x"]}, "b": {"tags": ["y"]}})
        store.holds = True
        gets = [_get(cached, store, "a") for _ in range(2)]
        bulk = cached.get_many(["a", "b"], store.many)
        await idle()
        for future in store.waiting:
            future.set_result(None)
        handed = [*(await asyncio.gather(*gets)), (await bulk)["a"]]
        for value in handed:
            assert value == {"tags": ["x"]}
            cast("dict[str, list[str]]", value)["tags"].append("mine")
        store.rows.clear()
        kept = await _get(cached, store, "a")
        assert kept == {"tags": ["x"]}
        cast("dict[str, list[str]]", kept)["tags"].clear()
        assert await _get(cached, store, "a") == {"tags": ["x"]}
        assert await cached.get_many(["a"], store.many) == {"a": {"tags": ["x"]}}
        put = {"tags": ["put"]}
        cached.acknowledged(cached.written(["a"]), {"a": put})
        put["tags"].append("mine")
        assert await _get(cached, store, "a") == {"tags": ["put"]}

    run(main())


def test_rows_and_plain_values_are_not_copied() -> None:
    row = Row(RowShape("t", ("k",), ("k",)), ("a",))
    for value in (row, None, "text", b"bytes", 1 << 80, 2.5):
        assert private_copy(value) is value
    assert private_copy([row])[0] == row


def test_value_that_cannot_be_copied_is_one_error() -> None:
    async def main() -> None:
        lock = threading.Lock()
        with pytest.raises(TypeError):
            copy.deepcopy(lock)
        cached, store = _cached(), Store({"a": lock})
        cached.acknowledged(cached.written(["a"]), {"a": lock})
        gets = [_get(cached, store, "a") for _ in range(2)]
        for get in gets:
            with pytest.raises(TypeError, match="a lock cannot be copied"):
                await get

    run(main())


@pytest.mark.parametrize(
    ("argument", "values"), [("max_rows", [0, -1]), ("ttl", [0, -1.0, float("nan"), float("inf")])]
)
def test_values_out_of_range_are_refused(argument: str, values: list[float]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=argument):
            Cache(**{argument: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("argument", "values"), [("max_rows", ["1", 2.0, True, None]), ("ttl", ["1", True, None]), ("absent", [1, None])]
)
def test_values_of_wrong_types_are_refused(argument: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(TypeError, match=argument):
            Cache(**{argument: value})  # type: ignore[arg-type]
