"""What a foreign-key join refuses, all faults at once, before anything is created."""

from __future__ import annotations

import functools
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import JoinWorker
from structable.spark_bridge.joins.binding import bind
from structable.spark_bridge.joins.recording import Definition, definition_of
from structable.spi import (
    Field,
    InvalidSpecificationError,
    Row,
    Storage,
    StoreNotFoundError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    connect,
)

from .support.tables import FEED, ORDERS, PRODUCTS, join_of


def joiner(left: Row, right: Row | None) -> dict[str, Value]:
    return {}


URL = "memory://definition"
FIELDS = [Field.string("name")]
WITHOUT_STORE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "name": ({"name": "1st"}, ["the name is '1st'"]),
    "how": ({"how": "outer"}, ["how is 'outer'; it must be inner or left"]),
    "on": ({"on": "product"}, ["on is 'product'"]),
    "on is empty": ({"on": {}}, ["on is empty"]),
    "on has no names": ({"on": {"product": ["sku"]}}, ["on has ['sku'], which is not the name of a field"]),
    "on names one twice": ({"on": {"product": "sku", "note": "sku"}}, ["'sku' of the right table twice"]),
    "select": ({"select": {"x": "other.y", "z": "left"}}, ["'x': 'other.y'", "'z': 'left'"]),
    "selected names": (
        {"select": {"1st": "left.note", "Name": "left.note", "name": "right.name"}},
        ["select names the field '1st'", "Name, name, which differ in case at most"],
    ),
    "result's names": (
        {"select": None, "joiner": joiner, "result_fields": [Field.int("a b"), *FIELDS, *FIELDS]},
        ["result_fields names the field 'a b'", "name, name, which differ in case at most"],
    ),
    "lambda": ({"select": None, "joiner": lambda left, right: None, "result_fields": FIELDS}, ["cannot be imported"]),
    "partial": ({"select": None, "joiner": functools.partial(joiner), "result_fields": FIELDS}, ["cannot be imported"]),
    "both": ({"joiner": joiner, "result_fields": FIELDS}, ["select and joiner are given"]),
    "no fields": ({"select": None, "joiner": joiner}, ["with a joiner it must list Fields"]),
    "fields alone": ({"result_fields": FIELDS}, ["without a joiner"]),
    "result": ({"result": TableRef(URL, "orders")}, ["is an input, too"]),
    "all": ({"name": "", "how": "right", "on": {}, "select": 5}, ["name", "how is", "on is empty", "select is 5"]),
}


@pytest.mark.parametrize("case", WITHOUT_STORE)
def test_faults_that_need_no_store(case: str) -> None:
    changes, problems = WITHOUT_STORE[case]
    how = changes.pop("how", "inner")
    with pytest.raises(InvalidSpecificationError) as refused:
        join_of(URL, how, **changes)
    for problem in problems:
        assert problem in str(refused.value)


def test_tables_are_references() -> None:
    with pytest.raises(TypeError, match="right is 'products'"):
        join_of(URL, right="products")


def test_a_worker_takes_a_join() -> None:
    with pytest.raises(TypeError, match="join is 'named'; it must be a ForeignKeyJoin"):
        JoinWorker("named")  # type: ignore[arg-type]  # no join


def test_definitions_are_values() -> None:
    join = join_of(URL)
    assert pickle.loads(pickle.dumps(join)) == join == join_of(URL)
    assert hash(join) == hash(join_of(URL))
    assert join != join_of(URL, "left")
    reordered = join_of(URL, select={"name": "right.name", "pieces": "left.pieces"})
    assert reordered == join
    secret = join_of("postgresql://me:secret@host/db")
    assert "secret" not in repr(secret)


@pytest.fixture
def storage() -> Iterator[Storage]:
    with connect(f"memory://{uuid.uuid4().hex}") as storage:
        yield storage


WITH_STORE: dict[str, tuple[TableSpecification, TableSpecification, dict[str, Any], list[str]]] = {
    "no index": (ORDERS.evolve(indexes=[]), PRODUCTS, {}, ["add an index on 'product'"]),
    "later field of the key": (
        ORDERS.evolve(primary_key=["id", "product"], indexes=[]),
        PRODUCTS,
        {"select": {}},
        ["'product' is a later field of its primary key"],
    ),
    "types": (
        ORDERS,
        PRODUCTS.evolve(fields=[Field.bytes("sku"), *PRODUCTS.fields[1:]]),
        {},
        ["orders.product is string, and products.sku is bytes"],
    ),
    "part of the key": (
        ORDERS,
        PRODUCTS.evolve(primary_key=["sku", "name"]),
        {},
        ["on lacks name of the primary key of table 'products'"],
    ),
    "too few": (ORDERS, PRODUCTS.evolve(primary_key=["sku", "name"]), {"on": ["product"]}, ["on has 1 fields"]),
    "no key field": (
        ORDERS,
        PRODUCTS,
        {"on": {"product": "name"}},
        ["'name', which is not a field of the primary key"],
    ),
    "unknown": (
        ORDERS,
        PRODUCTS,
        {"on": {"item": "sku"}},
        ["'item', which is not a field of table 'orders'; the fields are id"],
    ),
    "selected": (
        ORDERS,
        PRODUCTS,
        {"select": {"a": "left.absent", "b": "right.absent", "id": "left.pieces"}},
        ["'a': left.absent", "'b': right.absent"],
    ),
    "key again": (ORDERS, PRODUCTS, {"select": {"id": "left.pieces"}}, ["the result's fields id belong to its key"]),
    "by case": (ORDERS, PRODUCTS, {"select": {"ID": "left.pieces"}}, ["the result: "]),
    "clash": (
        ORDERS,
        PRODUCTS.evolve(fields=[*PRODUCTS.fields, Field.string("Note"), Field.int("pieces")]),
        {"select": None},
        ["both tables have fields named Note, pieces"],
    ),
    "all": (
        ORDERS.evolve(indexes=[], options={}),
        PRODUCTS.evolve(options={"changelog-producer": "input"}),
        {"select": {"a": "left.absent"}},
        [
            "'orders' has changelog-producer=none",
            "'products' has changelog-producer=input",
            "add an index",
            "left.absent",
        ],
    ),
}


@pytest.mark.parametrize("case", WITH_STORE)
def test_faults_against_the_tables(storage: Storage, case: str) -> None:
    orders, products, changes, problems = WITH_STORE[case]
    storage.admin.create(orders)
    storage.admin.create(products)
    with pytest.raises(InvalidSpecificationError) as refused:
        JoinWorker(join_of(storage.url, **changes))
    for problem in problems:
        assert problem in str(refused.value)
    assert storage.admin.list() == ["orders", "products"]


@pytest.mark.parametrize("producer", ["none", "input", "full-compaction"])
def test_only_lookup_feeds_are_joined(storage: Storage, producer: str) -> None:
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS.evolve(options={"changelog-producer": producer}))
    with pytest.raises(UnsupportedOperationError, match=f"'products' has changelog-producer={producer}; a join needs"):
        JoinWorker(join_of(storage.url))


def test_tables_without_a_key(storage: Storage) -> None:
    options = {**FEED, "write-mode": "change-log"}
    storage.admin.create(TableSpecification("orders", ORDERS.fields, indexes=["product"], options=options))
    storage.admin.create(PRODUCTS)
    with pytest.raises(UnsupportedOperationError, match="'orders' has no primary key"):
        JoinWorker(join_of(storage.url, select={}))


def test_key_alone_and_default_selection(storage: Storage) -> None:
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS)
    for select, fields in (({}, ["id"]), (None, ["id", "product", "pieces", "note", "name", "price"])):
        name = f"with{len(fields)}"
        join = join_of(storage.url, name=name, select=select, result=TableRef(storage.url, name))
        with JoinWorker(join) as worker:
            worker.step()
            assert list(storage.admin.get_specification(name).field_names) == fields


def test_absent_tables_and_stores(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        JoinWorker(join_of(storage.url))
    absent = TableRef(f"leveldb://{tmp_path}/absent", "products")
    with pytest.raises(StoreNotFoundError, match="create=True"):
        JoinWorker(join_of(storage.url, right=absent))


def test_result_by_another_url_of_an_input(storage: Storage) -> None:
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS)
    with pytest.raises(InvalidSpecificationError, match="is an input, too"):
        JoinWorker(join_of(storage.url, result=TableRef(storage.url, "orders", pool_timeout=5)))


def test_meter_is_a_meter(storage: Storage) -> None:
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS)
    with pytest.raises(TypeError, match="meter is 'm'"):
        JoinWorker(join_of(storage.url), meter="m")  # type: ignore[arg-type]


def test_field_that_is_twice_in_the_foreign_key() -> None:
    """A definition that is recorded is the same join again."""
    join = join_of(URL, on=["product", "product"])
    definition = definition_of(bind(join, ORDERS, PRODUCTS.evolve(primary_key=["sku", "name"])), "0123456789abcdef")
    assert Definition.parse(definition.text).join("named", [join.left, join.right, join.result]) == join


def test_passwords_are_not_recorded() -> None:
    """The driver finds them elsewhere, as for other commands."""
    left = TableRef("postgresql://me:secret1@host/db?schema=s&sslpassword=secret2", "orders", password="secret3")
    join = join_of("postgresql://me:secret1@host/db?schema=s", left=left)
    definition = definition_of(bind(join, ORDERS, PRODUCTS), "0123456789abcdef")
    assert "secret" not in definition.text
    assert definition.ref("left") == TableRef("postgresql://me@host/db?schema=s", "orders")
    assert Definition.parse(definition.text).differences(definition) == ()
