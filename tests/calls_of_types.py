"""Tables of all types, and calls on them with the table of each: every store counts how often they wait."""

from __future__ import annotations

from collections.abc import Callable

from structable.spi import Field, Storage, StructuredTable, TableSpecification

CALLS_OF_TYPES: dict[str, tuple[str, Callable[[StructuredTable], object]]] = {
    "upsert": ("parts", lambda table: table.upsert({"id": 1, "note": "x"})),
    "upsert_many": ("parts", lambda table: table.upsert_many([{"id": n, "note": "x"} for n in range(5)])),
    "apply_changes": ("parts", lambda table: table.apply_changes([("+U", {"id": n}) for n in range(5)])),
    "insert_many": ("parts", lambda table: table.insert_many([{"id": n} for n in range(10, 15)])),
    "blind upsert": ("totals", lambda table: table.upsert({"id": 1, "hits": 1})),
    "blind apply_changes": (
        "totals",
        lambda table: table.apply_changes([("-U", {"id": n, "hits": 1}) for n in range(5)]),
    ),
    "insert without a key": ("log", lambda table: table.insert({"text": "x"})),
    "insert_many without a key": ("log", lambda table: table.insert_many([{"text": "x"}] * 5)),
    "put into a bag": ("bag", lambda table: table.apply_changes([("+I", {"text": "x"})] * 5)),
    "take out of a bag": ("bag", lambda table: table.apply_changes([("-D", {"text": "a"}), ("-D", {"text": "b"})])),
}
READ_FIRST = ("upsert", "upsert_many", "apply_changes", "insert_many", "take out of a bag")
"""The calls that read rows, which the ordered stores do at once."""


def create_tables_of_types(storage: Storage) -> None:
    """Create the tables of the calls, with some rows."""
    fields = [Field.int("id"), Field.string("note"), Field.long("hits")]
    parts = TableSpecification("parts", fields, ["id"], options={"merge-engine": "partial-update"})
    storage.admin.create(parts)
    sums = {"merge-engine": "aggregation", "fields.hits.aggregate-function": "sum"}
    storage.admin.create(TableSpecification("totals", [Field.int("id"), Field.long("hits")], ["id"], options=sums))
    for name, mode in (("log", "append-only"), ("bag", "change-log")):
        storage.admin.create(TableSpecification(name, [Field.string("text")], options={"write-mode": mode}))
    storage.table("parts").upsert_many([{"id": n, "hits": 1} for n in range(5)])
    storage.table("bag").insert_many([{"text": "a"}, {"text": "b"}])
