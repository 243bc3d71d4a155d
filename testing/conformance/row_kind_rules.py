"""Rules of row kinds, and of `apply_changes`, which every table has."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, cast

import pytest

from structable.spi import Change, FieldSizeLimitError, InvalidFieldError, RowKind

from .case import OpenTable
from .merge_case import MergeCase
from .samples import ITEMS, Record, item, keys, plain

TEXTS = {
    RowKind.INSERT: ("+I", "insert"),
    RowKind.UPDATE_BEFORE: ("-U", "update_preimage"),
    RowKind.UPDATE_AFTER: ("+U", "update_postimage"),
    RowKind.DELETE: ("-D", "delete"),
}

NO_CHANGES: dict[str, Callable[[], Any]] = {
    "a number": lambda: 1,
    "a text": lambda: "+I",
    "a change that is not in a list": lambda: Change(RowKind.INSERT, {"id": 9}),
    "an unknown kind": lambda: [("+X", {"id": 9})],
    "a kind that is none": lambda: [(None, {"id": 9})],
    "a kind of another type": lambda: [(1, {"id": 9})],
    "a kind in capitals": lambda: [("INSERT", {"id": 9})],
    "a Change without a kind": lambda: [Change(cast(Any, "nothing"), {"id": 9})],
    "a row alone": lambda: [{"id": 9}],
    "three parts": lambda: [("+I", {"id": 9}, 1)],
    "one part": lambda: [("+I",)],
    "a row that is none": lambda: [("+I", 9)],
    "no row": lambda: [("-D", None)],
    "no key": lambda: [("+I", {"n": 1})],
    "a retract without a key": lambda: [("-D", {"n": 1})],
    "an unknown field": lambda: [("+I", {"id": 9, "unknown": 1})],
    "an unknown field in a retract": lambda: [("-D", {"id": 9, "unknown": 1})],
    "a wrong value": lambda: [("+U", {"id": 9, "n": "1"})],
    "a wrong value in a retract": lambda: [("-U", {"id": 9, "n": "1"})],
}


class RowKindRules(MergeCase):
    """Rows with their kinds, as changes."""

    def test_row_kinds_are_texts(self) -> None:
        """`RowKind` is a str enum of four kinds; `change_type` is the other notation."""
        for kind, (short, long) in TEXTS.items():
            assert (kind, str(kind), kind.value, kind.change_type) == (short, short, short, long)
        assert len(RowKind) == 4
        assert [kind for kind in RowKind if kind.retracts] == [RowKind.UPDATE_BEFORE, RowKind.DELETE]

    def test_row_kind_of_a_text(self) -> None:
        """`RowKind.of` takes either notation; any other is a `ValueError` that lists all eight."""
        for kind, texts in TEXTS.items():
            assert {RowKind.of(text) for text in (*texts, kind)} == {kind}
        for text in ("", "i", "INSERT", "+i", "update", "-", None, 1):
            with pytest.raises(ValueError, match="not a row kind") as refusal:
                RowKind.of(cast(Any, text))
            assert [one for both in TEXTS.values() for one in both if one not in str(refusal.value)] == []

    def test_changes_are_values(self) -> None:
        """A `Change` is immutable, picklable and equal by content; version and timestamp may be left out."""
        change = Change(RowKind.INSERT, {"id": 1, "n": 2})
        assert (change.kind, change.row, change.version, change.timestamp) == ("+I", {"id": 1, "n": 2}, None, None)
        full = Change(RowKind.DELETE, {"id": 1}, 7, dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
        for one in (change, full):
            assert pickle.loads(pickle.dumps(one)) == one
            with pytest.raises(FrozenInstanceError):
                one.kind = RowKind.DELETE  # type: ignore[misc]
        assert change != Change(RowKind.UPDATE_AFTER, {"id": 1, "n": 2})

    def test_apply_changes(self, open_table: OpenTable) -> None:
        """`apply_changes` takes changes and pairs, in either notation, in their order, from any iterable."""
        self.require("table_types")
        table = open_table(ITEMS)
        table.upsert_many([item(1, n=1, tag="a"), item(2, n=2, tag="a"), item(3)])
        changes: list[Change | tuple[RowKind | str, Record]] = [
            ("+U", {"id": 1, "n": 10}),
            Change(RowKind.DELETE, {"id": 2}),
            (RowKind.UPDATE_BEFORE, {"id": 3, "n": 7}),
            ("update_postimage", {"id": 3, "n": 8}),
            Change(RowKind.INSERT, {"id": 4, "tag": "a"}, 99, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
            ("insert", {"id": 5}),
            ("delete", {"id": 5}),
            ("-D", {"id": 6}),
        ]
        table.apply_changes(iter(changes))
        assert plain(table.scan()) == [item(1, n=10, tag="a"), item(3, n=8), item(4, tag="a")]
        assert keys(table.scan_index("tag", "a")) == [(1,), (4,)]
        table.apply_changes([])
        assert table.count() == 3

    def test_apply_changes_of_one_key(self, open_table: OpenTable) -> None:
        """Changes of one key take effect one after the other."""
        self.require("table_types")
        table = open_table(ITEMS)
        table.apply_changes([("+I", item(1, n=1, tag="a")), ("-D", {"id": 1}), ("+I", {"id": 1, "note": "x"})])
        assert plain(table.scan()) == [item(1, note="x")]
        table.apply_changes([("-U", {"id": 1}), ("+U", {"id": 1, "tag": "b"}), ("+U", {"id": 1, "n": 2})])
        assert plain(table.scan_index("tag", "b")) == [item(1, tag="b", n=2)]
        table.apply_changes([("+U", {"id": 1, "n": 3}), ("-D", {"id": 1})])
        assert table.count() == 0

    @pytest.mark.parametrize("name", NO_CHANGES)
    def test_apply_changes_of_bad_arguments(self, open_table: OpenTable, name: str) -> None:
        """One element that is not a change is `InvalidFieldError` when the method is called; nothing is written."""
        self.require("table_types")
        table = open_table(ITEMS)
        table.upsert({"id": 1, "n": 1})
        changes = NO_CHANGES[name]()
        if isinstance(changes, list):
            changes = [("+I", {"id": 2}), ("-D", {"id": 1}), *changes]
        with pytest.raises(InvalidFieldError):
            table.apply_changes(changes)
        assert plain(table.scan()) == [item(1, n=1)]

    def test_apply_changes_of_an_oversized_row(self, open_table: OpenTable) -> None:
        """A row over the limits is `FieldSizeLimitError`, and nothing is written."""
        self.require("table_types")
        table = open_table(ITEMS)
        with pytest.raises(FieldSizeLimitError):
            table.apply_changes([("+I", {"id": 1}), ("+I", {"id": 2, "tag": "x" * 2001})])
        with pytest.raises(FieldSizeLimitError):
            table.apply_changes([("+I", {"id": 1}), ("+U", {"id": 2, "note": "x" * 9_000_000})])
        assert table.count() == 0

    def test_apply_many_changes(self, open_table: OpenTable) -> None:
        """One call takes thousands of changes."""
        self.require("table_types")
        table = open_table(ITEMS)
        table.apply_changes(("+I", {"id": number, "tag": "a"}) for number in range(3000))
        table.apply_changes(("-D" if number % 3 else "+U", {"id": number, "n": 1}) for number in range(3000))
        assert keys(table.scan_index("tag", "a")) == [(number,) for number in range(0, 3000, 3)]
        assert table.count() == 1000
