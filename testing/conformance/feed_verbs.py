"""Every verb of a keyed table, each on separate rows, with its records in a feed of the producer `input`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from structable.spi import Field, Range, StructuredTable, TableSpecification, Value, col

from .feed_case import Image
from .samples import Record

VERBED = TableSpecification(
    "t", [Field.long("id"), Field.long("n"), Field.string("note"), Field.string("tag")], ["id"], ["tag"]
)
SPACING = 10
"""The distance between the ids of two verbs."""


@dataclass(frozen=True)
class FeedVerb:
    """A call on the rows from `base`: 1 and 2 exist.

    `records` is what producer input records, by id without the base; `ordered` says whether in this order.
    """

    call: Callable[[StructuredTable, int], object]
    records: tuple[Image, ...] = ()
    ordered: bool = True

    def images(self, base: int) -> list[Image]:
        return [(kind, {**row, "id": base + row["id"]}) for kind, row in self.records]


def rows_before(base: int) -> list[Record]:
    """Return the rows that a verb finds."""
    return [{"id": base + 1, "n": 1, "note": "a", "tag": "t"}, {"id": base + 2, "n": 2, "note": None, "tag": "t"}]


def _image(kind: str, number: int, **values: Value) -> Image:
    return kind, {"id": number, "n": None, "note": None, "tag": None, **values}


def _all_of(base: int) -> Range:
    return Range((base,), (base + SPACING,))


VERBS: dict[str, FeedVerb] = {
    "upsert": FeedVerb(lambda table, b: table.upsert({"id": b + 1, "n": 5}), (_image("+U", 1, n=5),)),
    "upsert of an absent row": FeedVerb(lambda table, b: table.upsert({"id": b + 3, "n": 5}), (_image("+U", 3, n=5),)),
    "upsert of an equal row": FeedVerb(lambda table, b: table.upsert({"id": b + 1, "n": 1}), (_image("+U", 1, n=1),)),
    "upsert_many": FeedVerb(
        lambda table, b: table.upsert_many([{"id": b + 1, "n": 5}, {"id": b + 3}, {"id": b + 1, "note": "z"}]),
        (_image("+U", 1, n=5), _image("+U", 3), _image("+U", 1, note="z")),
    ),
    "insert": FeedVerb(lambda table, b: table.insert({"id": b + 3, "note": "n"}), (_image("+I", 3, note="n"),)),
    "insert_many": FeedVerb(
        lambda table, b: table.insert_many([{"id": b + 4}, {"id": b + 3, "n": 3}]),
        (_image("+I", 4), _image("+I", 3, n=3)),
    ),
    "replace": FeedVerb(lambda table, b: table.replace({"id": b + 1, "note": "r"}), (_image("+U", 1, note="r"),)),
    "replace_many": FeedVerb(
        lambda table, b: table.replace_many([{"id": b + 1, "note": "r"}, {"id": b + 3}]),
        (_image("+U", 1, note="r"), _image("+U", 3)),
    ),
    "apply_changes": FeedVerb(
        lambda table, b: table.apply_changes(
            [
                ("+I", {"id": b + 3, "n": 3}),
                ("-U", {"id": b + 1, "n": 1}),
                ("update_postimage", {"id": b + 1, "n": 7}),
                ("-D", {"id": b + 2}),
                ("-D", {"id": b + 5, "note": "x"}),
            ]
        ),
        (_image("+I", 3, n=3), _image("-U", 1, n=1), _image("+U", 1, n=7), _image("-D", 2), _image("-D", 5, note="x")),
    ),
    "update": FeedVerb(
        lambda table, b: table.update({"id": b + 1, "n": 5}), (_image("+U", 1, n=5, note="a", tag="t"),)
    ),
    "update to what is there": FeedVerb(
        lambda table, b: table.update({"id": b + 1, "n": 1}), (_image("+U", 1, n=1, note="a", tag="t"),)
    ),
    "update with a default": FeedVerb(
        lambda table, b: table.update({"id": b + 3, "n": 5}, default={"tag": "d"}), (_image("+U", 3, n=5, tag="d"),)
    ),
    "compare_and_swap": FeedVerb(
        lambda table, b: table.compare_and_swap((b + 1,), "n", 1, 9), (_image("+U", 1, n=9, note="a", tag="t"),)
    ),
    "compare_and_swap that fails": FeedVerb(lambda table, b: table.compare_and_swap((b + 1,), "n", 2, 9)),
    "increment": FeedVerb(
        lambda table, b: table.increment((b + 1,), "n", 4), (_image("+U", 1, n=5, note="a", tag="t"),)
    ),
    "increment of an absent row": FeedVerb(lambda table, b: table.increment((b + 3,), "n"), (_image("+U", 3, n=1),)),
    "increment_many": FeedVerb(
        lambda table, b: table.increment_many([((b + 2,), "n", 1), ((b + 1,), "n", 1)]),
        (_image("+U", 2, n=3, tag="t"), _image("+U", 1, n=2, note="a", tag="t")),
        ordered=False,
    ),
    "delete": FeedVerb(lambda table, b: table.delete((b + 1,)), (_image("-D", 1),)),
    "delete of an absent row": FeedVerb(lambda table, b: table.delete((b + 3,)), (_image("-D", 3),)),
    "delete_many": FeedVerb(
        lambda table, b: table.delete_many([(b + 2,), (b + 1,)]), (_image("-D", 2), _image("-D", 1)), ordered=False
    ),
    "delete_all": FeedVerb(
        lambda table, b: table.delete_all(_all_of(b)), (_image("-D", 1), _image("-D", 2)), ordered=False
    ),
    "delete_all with a condition": FeedVerb(
        lambda table, b: table.delete_all(_all_of(b), where=col("n") > 1), (_image("-D", 2),)
    ),
    "delete_all of no row": FeedVerb(lambda table, b: table.delete_all(_all_of(b), where=col("n") > 5)),
    "update_all": FeedVerb(
        lambda table, b: table.update_all(_all_of(b), {"tag": "u"}),
        (_image("+U", 1, n=1, note="a", tag="u"), _image("+U", 2, n=2, tag="u")),
        ordered=False,
    ),
    "update_all of no row": FeedVerb(lambda table, b: table.update_all(_all_of(b), {"n": 1}, where=col("n") > 5)),
}


def _write_twice(table: StructuredTable, base: int) -> None:
    table.insert({"id": base + 3, "n": 1})
    table.increment((base + 3,), "n", 2)
    table.upsert({"id": base + 3, "note": "x"})
    table.update({"id": base + 3, "tag": "y"})
    table.delete((base + 1,))
    table.insert({"id": base + 1, "n": 8})


def _come_and_go(table: StructuredTable, base: int) -> None:
    table.insert({"id": base + 3})
    table.delete((base + 3,))
    table.upsert({"id": base + 1, "n": 2})
    table.upsert({"id": base + 1, "n": 1})


SEVERAL: dict[str, FeedVerb] = {
    "writes of one row": FeedVerb(
        _write_twice,
        (
            _image("+I", 3, n=1),
            _image("+U", 3, n=3),
            _image("+U", 3, note="x"),
            _image("+U", 3, n=3, note="x", tag="y"),
            _image("-D", 1),
            _image("+I", 1, n=8),
        ),
    ),
    "rows that end as they were": FeedVerb(
        _come_and_go, (_image("+I", 3), _image("-D", 3), _image("+U", 1, n=2), _image("+U", 1, n=1))
    ),
}
"""Several writes of one row, for one transaction: producer input records each of them as of its call."""
