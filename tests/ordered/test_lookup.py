from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.engine import EngineSnapshot, Pair
from structable.backends.ordered.scan.lookup import values_of


class _Snapshot(EngineSnapshot):
    """A dict that counts steps and lookups."""

    def __init__(self, pairs: dict[bytes, bytes]) -> None:
        self._pairs = pairs
        self.steps = self.lookups = 0

    def get(self, key: bytes) -> bytes | None:
        return self._pairs.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.lookups += len(keys)
        return [self._pairs.get(key) for key in keys]

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        for key in sorted(self._pairs):
            if begin <= key < end:
                self.steps += 1
                yield key, self._pairs[key]

    def close(self) -> None:
        return None


def _keys(count: int, step: int = 1, start: int = 0) -> list[bytes]:
    return [number.to_bytes(3) for number in range(start, start + count * step, step)]


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300), min_size=1))
def test_values_are_those_of_single_lookups(stored: set[int], wanted: set[int]) -> None:
    snapshot = _Snapshot({number.to_bytes(2): b"v%d" % number for number in stored})
    raw_keys = [number.to_bytes(2) for number in sorted(wanted)]
    assert values_of(snapshot, raw_keys) == [snapshot.get(raw_key) for raw_key in raw_keys]


def test_new_rows_cost_one_seek() -> None:
    snapshot = _Snapshot(dict.fromkeys(_keys(5_000), b"v"))
    assert values_of(snapshot, _keys(1_000, start=5_000)) == [None] * 1_000
    assert (snapshot.steps, snapshot.lookups) == (0, 0)


def test_neighbouring_rows_cost_a_scan() -> None:
    snapshot = _Snapshot(dict.fromkeys(_keys(5_000), b"v"))
    assert values_of(snapshot, _keys(1_000, start=700)) == [b"v"] * 1_000
    assert (snapshot.steps, snapshot.lookups) == (1_000, 0)


def test_scattered_rows_are_looked_up() -> None:
    snapshot = _Snapshot(dict.fromkeys(_keys(50_000), b"v"))
    assert values_of(snapshot, _keys(1_000, step=50)) == [b"v"] * 1_000
    assert snapshot.steps <= 1_000
    assert snapshot.lookups >= 950
