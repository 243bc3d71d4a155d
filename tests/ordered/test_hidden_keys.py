"""The hidden keys of tables without a primary key: made by codecs and by Arrow encoders alike, seen by nobody."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.arrow.decoder import ArrowDecoder
from structable.backends.ordered.arrow.encoder import ArrowEncoder
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Field, Range, Storage, TableSpecification, Value, col, connect
from structable.spi.arrow import conform_batch
from tests.ordered.strategies import SPACE, fields, row_values, same

MODES = ["append-only", "change-log"]
BOTH = pytest.mark.parametrize("mode", MODES)


def binding_of(columns: list[Field], mode: str, indexes: tuple[str, ...] = ()) -> TableBinding:
    spec = TableSpecification("t", columns, (), indexes, {"write-mode": mode})
    numbers = {name: number for number, name in enumerate(indexes)}
    schema = TableSchema.decode(TableSchema(spec, SPACE, 0, {0: spec.value_fields}, numbers).encode())
    return TableBinding(schema, schema.encode())


@given(st.data(), st.sampled_from(MODES))
def test_rows_come_back_without_their_keys(data: st.DataObject, mode: str) -> None:
    columns = data.draw(fields("v", min_size=1, max_size=18))
    binding = binding_of(columns, mode)
    row = dict(zip(binding.value_names, data.draw(row_values(columns, nulls=True)), strict=True))
    encoded = binding.encode_full(row)
    assert encoded is not None
    decoded = binding.whole(*encoded)
    assert same(tuple(decoded.items()), tuple(row.items()))
    assert decoded.key == binding.key_of(encoded[0]) == ()
    again = binding.encode_full(row)
    assert again is not None
    assert (again[0] != encoded[0], again[1]) == (True, encoded[1])


@given(st.data())
def test_equal_rows_lie_together_however_they_were_written(data: st.DataObject) -> None:
    columns = data.draw(fields("v", min_size=1, max_size=8))
    binding = binding_of(columns, "change-log")
    rows = data.draw(st.lists(row_values(columns, nulls=True), min_size=1, max_size=4, unique_by=repr))
    given_rows = [dict(zip(binding.value_names, row, strict=True)) for row in rows]
    pairs = [binding.encode_full(row) for row in given_rows]
    assert None not in pairs
    found = cast(list[tuple[bytes, bytes]], pairs)
    batch = ArrowDecoder(binding.schema, binding.value_names).decode(*map(list, zip(*found, strict=True)))
    staged = ArrowEncoder(binding.schema, binding.value_names).encode(conform_batch(binding.spec, batch))
    for row, (raw_key, raw), (other, other_raw) in zip(given_rows, found, staged, strict=True):
        begin, end = binding.keys.equal_rows(raw_key)
        named = {name: value for name, value in row.items() if value is not None}
        assert begin < other < end
        assert begin < binding.checked_raw_key(named) < end
        assert other != raw_key
        assert other_raw == raw


def test_zeros_are_equal_and_so_are_all_nans() -> None:
    binding = binding_of([Field.double("d"), Field.float("f")], "change-log")
    rows: list[dict[str, Value]] = [{"d": 0.0, "f": -0.0}, {"d": -0.0, "f": 0.0}]
    nans: list[dict[str, Value]] = [{"d": float("nan")}, {"d": -float("nan")}]
    for one, other in (rows, nans):
        begin, end = binding.keys.equal_rows(binding.checked_raw_key(one))
        assert begin < binding.checked_raw_key(other) < end
    begin, end = binding.keys.equal_rows(binding.checked_raw_key(rows[0]))
    assert not begin < binding.checked_raw_key(nans[0]) < end


@pytest.fixture
def storage() -> Storage:
    return connect("memory://")


@BOTH
def test_index_scans_sort_nothing(storage: Storage, mode: str) -> None:
    columns = [Field.string("a"), Field.long("b")]
    storage.admin.create(TableSpecification("t", columns, (), ["a", "b"], {"write-mode": mode}))
    table = storage.table("t")
    assert "sorted" not in str(table.explain(where=col("a") > "x", limit=3))
    assert "full scan" in str(table.explain(limit=3))
    assert "sorted by b" in str(table.explain(where=col("a") == "x", order_by="b"))
    with storage.plan_scan("t") as plan:
        assert not plan.ordered


@BOTH
def test_a_range_that_comes_twice_counts_once(storage: Storage, mode: str) -> None:
    storage.admin.create(TableSpecification("t", [Field.long("a")], (), ["a"], {"write-mode": mode}))
    table = storage.table("t")
    table.insert_many([{"a": number % 3} for number in range(9)])
    twice = [Range.all(), Range.at_most(()), Range(None, None, False, True)]
    assert len(list(table.multi_scan(twice, where=col("a") > 0, limit_per_range=9))) == 6
    assert len(list(table.multi_scan(twice, limit_per_range=2))) == 2
    assert list(table.multi_scan([Range.above(()), Range.below(())], limit_per_range=2)) == []
