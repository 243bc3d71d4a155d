"""`RowPatches`: changes of some fields of a stored row, generated for each set of changed fields.

A caller that changes one field of a row pays for that field: the bytes of all others are copied from the old value
unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from structable.backends.base.bounded import Bounded
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Value
from structable.spi.authors import MAX_KEY_SIZE, MAX_ROW_SIZE

from .keys import KeyCodec
from .row_encoding import add_field_encoder
from .row_layout import RowLayout
from .source import GeneratedSource, Slot


class RowPatch(NamedTuple):
    """The change of a row by mappings that name certain fields.

    Both functions return None for any unusual mapping; `check_row` and the row codec then decide. They never accept a
    mapping that `check_row` would reject or change.
    """

    key: Callable[[Mapping[str, Value]], bytes | None]
    """Returns the raw key of a mapping."""
    change: Callable[[Mapping[str, Value], bytes, bytes], bytes | None]
    """Returns the new raw value from a mapping, its raw key and the old raw value."""


class RowPatches:
    """The patches of one table; safe to share between threads."""

    def __init__(self, schema: TableSchema, keys: KeyCodec) -> None:
        self._schema = schema
        self._layout = RowLayout(schema.version, schema.layouts[schema.version])
        self._patches: Bounded[tuple[str, ...], RowPatch] = Bounded()
        self._key = keys.encode_named

    def of(self, row: Mapping[str, Value]) -> RowPatch | None:
        """Return the patch for a dict that names the whole key and some other fields; None for anything else."""
        if row.__class__ is not dict:
            return None
        names = tuple(row)
        return self._patches.get(names) or self._generated(names)

    def _generated(self, names: tuple[str, ...]) -> RowPatch | None:
        spec = self._schema.spec
        if not (set(spec.primary_key) < set(names) <= set(spec.field_names)):
            return None
        patch = self._patches[names] = RowPatch(self._key, self._generate_change(frozenset(names)))
        return patch

    def _generate_change(self, changed: frozenset[str]) -> Callable[[Mapping[str, Value], bytes, bytes], bytes | None]:
        source, layout, schema = GeneratedSource(), self._layout, self._schema
        names = [f"v{position}" for position in range(len(layout.fields))]
        named = [position for position, field in enumerate(layout.fields) if field.name in changed]
        sized = [p for p in layout.variable if p in named or layout.fields[p].name in schema.maintained]
        # If no size changes, the old value stays unchanged from `tail`, behind the last named field.
        tail = 0 if sized or not layout.variable else max(map(layout.end_of, named))
        rebuilt = [] if tail else layout.variable
        source.add(0, "def change(row, key, old):")
        source.add(1, "try:")
        slots = _slots(layout, named, tail, decoded=False)
        source.add_unpack(2, "<", slots, "old", exact=not layout.variable)
        source.add(2, f"if w0 & 65535 != {layout.version}: return None")
        if layout.variable:
            source.add(2, f"if e{layout.variable[-1]} != len(old): return None")
        begin = str(layout.size)
        for position in rebuilt:
            if position not in named:
                source.add(2, f"v{position} = old[{begin}:e{position}]")
            begin = f"e{position}"
        for position in named:
            word, mask = layout.null_bit(position)
            source.add(2, f"w{word} &= {~mask}")
            source.add(2, f"v{position} = row[{layout.fields[position].name!r}]")
            add_field_encoder(source, 2, layout.fields[position], names[position], f"w{word} |= {mask}", checks=True)
        end = str(layout.size)
        for position in rebuilt:
            source.add(2, f"e{position} = {end} + len(v{position})")
            end = f"e{position}"
        # The bounds of whole rows apply: the slow path decides near a limit.
        for position in rebuilt:
            if layout.fields[position].name in schema.maintained:
                source.add(2, f"if len(key) + len(v{position}) > {MAX_KEY_SIZE}: return None")
        if layout.variable:
            source.add(2, f"if e{layout.variable[-1]} > {MAX_ROW_SIZE - MAX_KEY_SIZE}: return None")
        header = source.packed("<", _slots(layout, named, tail, decoded=True))
        pieces = [header, *(names[position] for position in rebuilt), *([f"old[{tail}:]"] if tail else [])]
        source.add(2, f"return {' + '.join(pieces)}" if len(pieces) <= 4 else f'return b"".join(({", ".join(pieces)}))')
        source.add(1, "except FAILURES:")
        source.add(2, "return None")
        return source.function("change")


def _slots(layout: RowLayout, named: Container[int], tail: int, *, decoded: bool) -> list[Slot]:
    """Return the slots of a value: unnamed fields keep their bytes, in runs; named ones are skipped or `decoded`.

    Unless `tail` is 0, the bytes from there on have only the slot of the value's end, and only if named fields are
    skipped.
    """
    fixed: list[Slot] = []
    run = 0
    for position, (code, name) in zip(layout.fixed, layout.fixed_slots(layout.fixed), strict=True):
        if tail and layout.offsets[position] >= tail:
            break
        if position in named:
            fixed.append((code, name if decoded else None))
            run = 0
            continue
        width = struct.calcsize(f"<{code}")
        if run:
            _, name = fixed.pop()
        run += width
        fixed.append((f"{run}s", name))
    if not tail:
        return layout.words_slots() + fixed + layout.end_slots(layout.variable)
    if decoded:
        return layout.words_slots() + fixed
    skipped: Slot = (f"{layout.offsets[layout.variable[-1]] - tail}s", None)
    return [*layout.words_slots(), *fixed, skipped, *layout.end_slots(layout.variable)[-1:]]
