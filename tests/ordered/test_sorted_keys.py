"""The order of memory's keys: changed in place, page by page, and whole after an interruption at any line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structable.backends.memory import sorted_keys
from structable.backends.memory.sorted_keys import SortedKeys
from structable.backends.memory.versions import VersionedMap
from structable.spi import Field, Range, TableSpecification, connect

KEYS = st.binary(max_size=2)
CHANGES = st.lists(st.tuples(st.booleans(), KEYS), max_size=60)


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_keys, "_BLOCK", 3)
        patch.setattr(sorted_keys, "_PAGE", 2)
        yield


def ascending(ordered: SortedKeys, begin: bytes, end: bytes) -> list[bytes]:
    found: list[bytes] = []
    while page := ordered.first(begin, end):
        found += page
        begin = page[-1] + b"\0"
    return found


def descending(ordered: SortedKeys, begin: bytes, end: bytes) -> list[bytes]:
    found: list[bytes] = []
    while page := ordered.last(begin, end):
        found += reversed(page)
        end = page[0]
    return found


@settings(max_examples=300)
@given(st.sets(KEYS, max_size=30), CHANGES, KEYS, KEYS)
def test_pages_are_those_of_a_sorted_list(start: set[bytes], changes: Any, begin: bytes, end: bytes) -> None:  # noqa: ANN401
    ordered, expected = SortedKeys(start), set(start)
    for added, key in changes:
        if added:
            ordered.put(key)
            expected.add(key)
        else:
            ordered.remove(key)
            expected.discard(key)
    inside = sorted(key for key in expected if begin <= key < end)
    assert ascending(ordered, begin, end) == inside
    assert descending(ordered, begin, end) == inside[::-1]
    assert ascending(ordered, b"", b"\xff" * 3) == sorted(expected)


class Interrupted(BaseException):
    pass


def interrupted_at(line: int) -> Any:  # noqa: ANN401 - a trace function
    """Return a trace function that raises at the given line of all that run in memory's modules."""
    passed = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
        nonlocal passed
        if "memory" not in frame.f_code.co_filename:
            return None
        if event == "line":
            passed += 1
            if passed == line:
                raise Interrupted
        return trace

    return trace


def test_an_interrupted_scan_leaves_the_order_whole() -> None:
    """Each scan is interrupted one line later than the one before; the next scan finds every row."""
    with connect("memory://") as storage:
        storage.admin.create(TableSpecification("numbers", [Field.int("n")], ["n"]))
        table = storage.table("numbers")
        table.upsert_many([{"n": n} for n in range(0, 200, 2)])
        expected = {row.n for row in table.scan()}
        for line in range(1, 120):
            changed = 2 * (line * 37 % 100)
            for n in (changed, changed + 1):
                if n in expected:
                    table.delete((n,))
                    expected.discard(n)
                else:
                    table.upsert({"n": n})
                    expected.add(n)
            before = sys.gettrace()
            sys.settrace(interrupted_at(line))
            try:
                list(table.scan(Range.at_least((0,)), limit=5))
            except Interrupted:
                pass
            finally:
                sys.settrace(before)
            assert {row.n for row in table.scan()} == expected
            assert [row.n for row in table.scan(reverse=True)] == sorted(expected, reverse=True)


def test_a_new_key_sorts_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = VersionedMap()
    stored.commit((dict.fromkeys([n.to_bytes(2) for n in range(1000)], b"v"),), {}, set())
    assert len(list(stored.keys(b"", b"\xff"))) == 1000

    def sorts(*_: object) -> None:
        raise AssertionError("all keys are sorted again")

    monkeypatch.setattr(SortedKeys, "__init__", sorts)
    stored.commit(({b"\0\0\0": b"v"},), {}, set())
    assert list(stored.keys(b"", b"\0\1")) == [b"\0\0", b"\0\0\0"]
