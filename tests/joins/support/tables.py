"""Orders that refer to products, in any store."""

from __future__ import annotations

from typing import Any, TypedDict

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import ForeignKeyJoin
from structable.spi import Field, Storage, TableSpecification

FEED = {"changelog-producer": "lookup"}
ORDERS = TableSpecification(
    "orders",
    [Field.string("id"), Field.string("product"), Field.int("pieces"), Field.string("note")],
    ["id"],
    ["product"],
    FEED,
)
PRODUCTS = TableSpecification(
    "products", [Field.string("sku"), Field.string("name"), Field.double("price")], ["sku"], options=FEED
)


class Limits(TypedDict, total=False):
    """Which steps are small, and which are no rebuilds."""

    small: int
    large: int


# Any: tests give wrong arguments, too.
def join_of(url: str, how: Any = "inner", name: str = "named", **changes: Any) -> ForeignKeyJoin:  # noqa: ANN401
    """Return the join of orders and products, with other arguments in place of some."""
    arguments: dict[str, Any] = {
        "left": TableRef(url, "orders"),
        "right": TableRef(url, "products"),
        "on": {"product": "sku"},
        "select": {"pieces": "left.pieces", "name": "right.name"},
        "result": TableRef(url, "named_orders"),
    }
    chosen = {**arguments, **changes}
    return ForeignKeyJoin(name, chosen.pop("left"), chosen.pop("right"), chosen.pop("on"), how, **chosen)


def rows_of(storage: Storage, table: str = "named_orders") -> list[dict[str, Any]]:
    """Return the rows of a table, in key order."""
    with storage.table(table).scan() as rows:
        return [dict(row) for row in rows]


def told(storage: Storage, table: str = "named_orders") -> list[tuple[str, dict[str, Any]]]:
    """Return what the feed of a table has."""
    return [(change.kind.value, dict(change.row)) for change in storage.changes(table).read()]
