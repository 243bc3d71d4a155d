from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.codec.keys import KeyCodec
from structable.backends.ordered.codec.rows import RowCodec
from structable.backends.ordered.schema.binding import IndexBinding
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Field, TableSpecification
from tests.ordered.entries import decode_entry, encode_entry
from tests.ordered.strategies import SPACE, fields, row_values, table


@given(st.data())
def test_entries_are_those_of_decoded_values(data: st.DataObject) -> None:
    key = data.draw(fields("k", keyable=True, min_size=1, max_size=2))
    indexed = data.draw(fields("i", keyable=True, min_size=1, max_size=1))
    others = data.draw(st.permutations([*indexed, *data.draw(fields("v", max_size=20))]))
    schema = table(key, others, indexes=("i0",))
    keys, rows = KeyCodec(schema), RowCodec(schema)
    index = IndexBinding(0, indexed[0], schema, keys, rows)
    values = data.draw(row_values(others, nulls=True))
    raw_key = keys.encode_checked(data.draw(row_values(key)))
    value = values[others.index(indexed[0])]
    wanted = encode_entry(keys, 0, indexed[0], value, raw_key)
    assert index.entry_of(raw_key, rows.encode_values(values)) == wanted
    assert decode_entry(keys, 0, indexed[0], wanted) == (value, raw_key)


def test_rows_of_an_older_layout() -> None:
    key, narrow, wide = Field.string("k"), Field.int("n"), Field.long("n")
    spec = TableSpecification("t", [key, wide, Field.string("s")], ["k"], ["n", "s"])
    schema = TableSchema(spec, SPACE, 1, {0: (narrow,), 1: (wide, Field.string("s"))}, {"n": 0, "s": 1})
    keys, rows = KeyCodec(schema), RowCodec(schema)
    old = RowCodec(table([key], [narrow])).encode_values((7,))
    raw_key = keys.encode_checked(("a",))
    for number, (field, value) in enumerate([(wide, 7), (Field.string("s"), None)]):
        index = IndexBinding(number, field, schema, keys, rows)
        assert index.entry_of(raw_key, old) == encode_entry(keys, number, field, value, raw_key)
