"""Orders and products of the benchmarks, a hundred orders for each product, and their join."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import ForeignKeyJoin
from structable.spi import Field, Storage, TableSpecification, Value, WriteMode
from structable.spi.arrow import rows_to_batches

AREA = "joins"
_FEED = {"changelog-producer": "lookup"}
_ORDERS_OF_A_PRODUCT = 100
_NOTE = "x" * 100


class Shop:
    """The tables of one size in a store, and the join of them.

    Parameters
    ----------
    url : str
        The store.
    name : str
        What the tables' names begin with.
    """

    def __init__(self, url: str, name: str) -> None:
        self.orders = TableSpecification(
            f"{name}_orders",
            [Field.long("id"), Field.long("product"), Field.long("pieces"), Field.string("note")],
            ["id"],
            ["product"],
            _FEED,
        )
        self.products = TableSpecification(
            f"{name}_products", [Field.long("sku"), Field.string("name"), Field.long("price")], ["sku"], options=_FEED
        )
        self.join = ForeignKeyJoin(
            f"{name}_join",
            TableRef(url, self.orders.name),
            TableRef(url, self.products.name),
            {"product": "sku"},
            select={"product": "left.product", "pieces": "left.pieces", "note": "left.note", "price": "right.price"},
            result=TableRef(url, f"{name}_result"),
        )

    def make(self, storage: Storage, orders: int, *, hot: bool = False) -> None:
        """Make the tables with the given number of orders, all of one product if it is hot."""
        storage.admin.create(self.orders)
        storage.admin.create(self.products)
        products = 1 if hot else max(1, orders // _ORDERS_OF_A_PRODUCT)
        load(storage, self.products, map(_product, range(products)))
        load(storage, self.orders, (_order(number, products) for number in range(orders)))


def _product(number: int) -> dict[str, Value]:
    return {"sku": number, "name": f"product {number}", "price": number % 90}


def _order(number: int, products: int) -> dict[str, Value]:
    return {"id": number, "product": number % products, "pieces": 1, "note": _NOTE}


def load(storage: Storage, spec: TableSpecification, rows: Iterable[Mapping[str, Value]]) -> None:
    """Write rows by one job."""
    job = storage.begin_write(spec.name, mode=WriteMode.UPSERT, job_id=f"load {uuid.uuid4()}")
    storage.commit_write(job, [storage.stage(job, 0, 0, rows_to_batches(spec, rows))])
