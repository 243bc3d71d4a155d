"""The tables of the shop, and the join of orders and products."""

from __future__ import annotations

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import ForeignKeyJoin
from structable.spi import Field, Storage, TableSpecification

FEED = {"changelog-producer": "lookup"}
ORDERS = TableSpecification(
    "shop_orders",
    [Field.long("id"), Field.string("product"), Field.int("pieces"), Field.string("note")],
    primary_key=["id"],
    indexes=["product"],
    options=FEED,
)
PRODUCTS = TableSpecification(
    "shop_products",
    [Field.string("sku"), Field.string("name"), Field.int("price"), Field.string("supplier")],
    primary_key=["sku"],
    options=FEED,
)
RESULT = "shop_priced_orders"


def join_of(url: str) -> ForeignKeyJoin:
    """Return the join: a row for each order, with the name and the price of its product, if there is such a product."""
    return ForeignKeyJoin(
        "shop.priced_orders",
        TableRef(url, ORDERS.name),
        TableRef(url, PRODUCTS.name),
        on={"product": "sku"},
        how="left",
        select={"product": "left.product", "pieces": "left.pieces", "name": "right.name", "price": "right.price"},
        result=TableRef(url, RESULT),
    )


def prepare(storage: Storage) -> None:
    """Drop the tables and make them again."""
    for name in (ORDERS.name, PRODUCTS.name, RESULT):
        storage.admin.drop(name)
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS)
