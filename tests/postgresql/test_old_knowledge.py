"""A process with outdated knowledge of a table, until the server corrects it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import pytest

from structable.spi import (
    Field,
    FieldType,
    InvalidFieldError,
    Range,
    Storage,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    TableStatistics,
    TransactionConflictError,
    UnsupportedOperationError,
    Value,
    col,
    connect,
)


def table(kind: FieldType = FieldType.BYTE, *more: Field) -> TableSpecification:
    return TableSpecification("t", [Field.int("k"), Field("v", kind), *more], ["k"])


WIDER = table(FieldType.BYTE, Field.int("new"))


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    """Return the storage that changes the table."""
    with connect(postgresql_url) as storage:
        storage.admin.create(table())
        yield storage


@pytest.fixture
def old(storage: Storage, postgresql_url: str) -> Iterator[Storage]:
    """Return another storage that has used the table before and knows no change of it."""
    with connect(postgresql_url, pool_size=1, pool_timeout=1) as other:
        other.table("t").upsert_many([{"k": key, "v": 1} for key in (1, 2)])
        yield other


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.upsert({"k": 3, "v": 3}),
        lambda t: t.replace({"k": 3, "v": 3}),
        lambda t: t.delete((1,)),
        lambda t: t.upsert_many([{"k": 3, "v": 3}]),
        lambda t: t.upsert_many([{"k": key, "v": 3} for key in range(10, 210)]),
    ],
    ids=["upsert", "replace", "delete", "upsert_many", "copy"],
)
@pytest.mark.parametrize(
    "changed", [WIDER, table(FieldType.SHORT), table(FieldType.LONG)], ids=["added", "widened", "rewritten"]
)
def test_first_write_of_a_transaction_meets_the_new_schema(
    storage: Storage, old: Storage, changed: TableSpecification, write: Callable[[StructuredTable], None]
) -> None:
    """A transaction that begins after an admin call returned uses the new schema: no conflict, no error."""
    storage.admin.create_or_update(changed)
    with old.transaction() as tx:
        write(tx.table("t"))
    assert old.table("t").count() != 2 or storage.table("t").read((1,)) is None


def test_refused_retract_of_a_table_that_has_another_type_now(storage: Storage, postgresql_url: str) -> None:
    """What the former table of the name refused is asked of the new one, which takes it."""
    sums, bag = (
        TableSpecification("t", [Field.int("k"), Field.int("v")], key, options=options)
        for key, options in ((["k"], {"merge-engine": "aggregation"}), ((), {"write-mode": "change-log"}))
    )
    with connect(postgresql_url) as old:
        for new in (table(), sums, bag):
            storage.admin.drop("t")
            storage.admin.create(sums)
            old.table("t").upsert({"k": 1, "v": 1})
            storage.admin.drop("t")
            storage.admin.create(new)
            storage.table("t").insert_many([{"k": 1, "v": 1}, {"k": 2, "v": 2}])
            if new is sums:
                with pytest.raises(UnsupportedOperationError):
                    old.table("t").apply_changes([("-D", {"k": 1, "v": 1})])
            else:
                old.table("t").apply_changes([("-D", {"k": 1, "v": 1})])
            assert old.table("t").count() == (2 if new is sums else 1)


def test_replace_clears_fields_that_were_added_meanwhile(storage: Storage, old: Storage) -> None:
    storage.admin.create_or_update(WIDER)
    storage.table("t").upsert({"k": 1, "new": 5})
    with old.transaction() as tx:
        tx.table("t").replace({"k": 1, "v": 2})
        assert tx.table("t").read((2,)) is not None
    assert storage.table("t").read((1,)) == {"k": 1, "v": 2, "new": None}


@pytest.mark.parametrize("limit", [None, 300, 900])
def test_scan_that_may_be_larger_than_it_was(storage: Storage, old: Storage, limit: int | None) -> None:
    """Rows of a text that was added meanwhile are read in smaller chunks: none of them is left out."""
    old.table("t").upsert_many([{"k": key} for key in range(500)])
    storage.admin.create_or_update(table(FieldType.BYTE, Field.string("new")))
    with old.transaction() as tx:
        assert len(list(tx.table("t").scan(Range.at_least((0,)), limit=limit))) == min(limit or 500, 500)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("verb", ["upsert", "upsert_many"])
def test_given_rows_may_change_after_the_call(storage: Storage, old: Storage, verb: str, rows: int) -> None:
    """A write that is made again for a newer version of the table writes what was given."""
    given: list[dict[str, Value]] = [{"k": key, "v": 5} for key in range(rows)]
    old.table("t").upsert_many([{"k": key} for key in range(rows)])
    with old.transaction() as tx:
        if verb == "upsert":
            for row in given:
                tx.table("t").upsert(row)
        else:
            tx.table("t").upsert_many(given)
        for row in given:
            row["v"] = 99
        storage.admin.create_or_update(WIDER)
        assert tx.table("t").read((0,)) is not None
    assert [row["v"] for row in old.table("t").multi_read([(key,) for key in range(rows)])] == [5] * rows


@pytest.mark.parametrize(
    "call",
    [lambda t: t.increment((1,), "v"), lambda t: t.increment_many([((key,), "v", 1) for key in range(9)])],
    ids=["increment", "increment_many"],
)
def test_increment_of_a_removed_field(
    storage: Storage, old: Storage, call: Callable[[StructuredTable], object]
) -> None:
    storage.admin.drop("t")
    storage.admin.create(TableSpecification("t", [Field.int("k")], ["k"]))
    tx = old.transaction()
    with pytest.raises((InvalidFieldError, TransactionConflictError), match="v"):
        call(tx.table("t"))
    tx.rollback()
    with pytest.raises(InvalidFieldError, match="v"):
        call(old.table("t"))
    assert old.table("t").count() == 0


def test_filter_on_a_removed_field(storage: Storage, old: Storage) -> None:
    """The table was created again without it: a conflict in a transaction, and the reason on repeated calls."""
    storage.admin.drop("t")
    storage.admin.create(TableSpecification("t", [Field.int("k")], ["k"]))
    tx = old.transaction()
    with pytest.raises(TransactionConflictError, match="'t'"):
        tx.table("t").scan(where=col("v") > 0)
    tx.rollback()
    with pytest.raises(InvalidFieldError, match="v"):
        old.table("t").scan(where=col("v") > 0)


def test_conflict_needs_no_second_connection(storage: Storage, old: Storage) -> None:
    """The transaction with the only connection gets its conflict at once."""
    tx = old.transaction()
    tx.table("t").read((1,))
    storage.admin.create_or_update(table(FieldType.SHORT))
    with pytest.raises(TransactionConflictError, match="changed"):
        tx.table("t").count([Range.all()])
    tx.rollback()


LARGE = "x" * 100_000
RICH = TableSpecification("t", [Field.int("k"), Field.int("v"), Field.string("s"), Field.string("q")], ["k"])
CALLS: dict[str, Callable[[StructuredTable], object]] = {
    "insert": lambda t: t.insert({"k": 2, "v": 5}),
    "insert_many": lambda t: t.insert_many([{"k": 2, "v": 5}]),
    "upsert": lambda t: t.upsert({"k": 1, "v": 5}),
    "large upsert": lambda t: t.upsert({"k": 1, "v": 5, "s": LARGE}),
    "upsert_many": lambda t: t.upsert_many([{"k": key, "v": 5} for key in range(1, 9)]),
    "large upsert_many": lambda t: t.upsert_many([{"k": 1, "v": 5, "s": LARGE}]),
    "copies": lambda t: t.upsert_many([{"k": key, "v": 5, "s": "", "q": None} for key in range(1, 150)]),
    "update": lambda t: t.update({"k": 1, "v": 5}),
    "update_many": lambda t: t.update_many([{"k": 1, "v": 5}]),
    "large update_many": lambda t: t.update_many([{"k": 1, "v": 5, "s": LARGE}]),
    "compare_and_swap": lambda t: t.compare_and_swap((1,), "v", 1, 5),
    "increment": lambda t: t.increment((1,), "v", 4),
    "increment_many": lambda t: t.increment_many([((key,), "v", 4) for key in range(1, 9)]),
    "increments of one key": lambda t: t.increment_many([((1,), "v", 1), ((1,), "v", 3)]),
    "rows of other fields": lambda t: t.upsert_many([{"k": 3, "s": "a"}, {"k": 1, "v": 5}, {"k": 1, "s": "a"}]),
}


@pytest.fixture(params=["none", "input"])
def rich(request: pytest.FixtureRequest, storage: Storage) -> TableSpecification:
    """Give the table four fields, and a feed or none."""
    spec = RICH.evolve(options={"changelog-producer": request.param})
    storage.admin.drop("t")
    storage.admin.create(spec)
    return spec


def call(storage: Storage, use: Callable[[StructuredTable], object], view: str, name: str = "t") -> None:
    """Make one call in a transaction, or in the auto-commit view."""
    if view == "auto-commit":
        use(storage.table(name))
    else:
        storage.run(lambda tx: use(tx.table(name)))


def warm(storage: Storage) -> None:
    for _ in range(3):
        storage.table("t").upsert({"k": 1, "v": 1})
        storage.table("t").update({"k": 1, "v": 1})


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("view", ["auto-commit", "transaction"])
def test_first_call_after_a_number_was_widened(
    storage: Storage, rich: TableSpecification, postgresql_url: str, name: str, view: str
) -> None:
    """What was encoded for the narrow number is encoded again for the wide one, also where a look-up comes between."""
    with connect(postgresql_url) as old:
        warm(old)
        wide = [Field.int("k"), Field.long("v"), Field.string("new"), Field.string("s"), Field.string("q")]
        storage.admin.create_or_update(rich.evolve(fields=wide))
        call(old, CALLS[name], view)
    found = storage.table("t").multi_read([(1,), (2,)], ["v"])
    assert found[-1]["v"] == (4 if name == "increment_many" else 5)
    assert found[0]["v"] == (1 if name.startswith("insert") else 5)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda t: t.upsert_many([{"k": 1, "n": 3}, {"k": 1, "n": 4}]), 8),
        (lambda t: t.upsert_many([{"k": key % 2, "n": 1} for key in range(20)]), 11),
        (lambda t: t.apply_changes([("+I", {"k": 1, "n": 3}), ("-D", {"k": 1, "n": 1})]), 3),
        (lambda t: t.increment_many([((1,), "n", 3), ((1,), "n", 4)]), 8),
    ],
    ids=["two of a key", "many of a key", "a retract", "increments"],
)
@pytest.mark.parametrize("view", ["auto-commit", "transaction"])
def test_first_merges_after_a_number_was_widened(
    storage: Storage, postgresql_url: str, write: Callable[[StructuredTable], object], expected: int, view: str
) -> None:
    """Also the later statements of a call are for the new type."""
    sums = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    spec = TableSpecification("sums", [Field.int("k"), Field.int("n"), Field.string("s")], ["k"], options=sums)
    storage.admin.create(spec)
    with connect(postgresql_url) as old:
        for number in (1, 0, 0):
            old.table("sums").upsert({"k": 1, "n": number})
        storage.admin.create_or_update(spec.evolve(fields=[Field.int("k"), Field.long("n"), Field.string("s")]))
        call(old, write, view, "sums")
    found = storage.table("sums").read((1,))
    assert found is not None
    assert found["n"] == expected


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.insert({"k": 2, "v": 0.1}),
        lambda t: t.upsert({"k": 1, "v": 0.1}),
        lambda t: t.replace({"k": 1, "v": 0.1}),
        lambda t: t.update({"k": 1, "v": 0.1}),
        lambda t: t.upsert_many([{"k": key, "v": 0.1} for key in range(1, 9)]),
        lambda t: t.update_many([{"k": 1, "v": 0.1}]),
        lambda t: t.apply_changes([("+U", {"k": 1, "v": 0.1})]),
        lambda t: t.compare_and_swap((1,), "v", 0.0, 0.1),
        lambda t: t.update_all(Range.all(), {"v": 0.1}),
    ],
    ids=[
        "insert",
        "upsert",
        "replace",
        "update",
        "upsert_many",
        "update_many",
        "apply_changes",
        "compare_and_swap",
        "update_all",
    ],
)
@pytest.mark.parametrize("view", ["auto-commit", "transaction"])
@pytest.mark.parametrize("producer", ["none", "input"])
def test_first_write_after_a_float_became_a_double(
    storage: Storage, postgresql_url: str, write: Callable[[StructuredTable], object], view: str, producer: str
) -> None:
    """The value is not rounded to the old type."""
    spec = table(FieldType.FLOAT).evolve(name="f", options={"changelog-producer": producer})
    storage.admin.create(spec)
    with connect(postgresql_url) as old:
        for _ in range(3):
            old.table("f").upsert({"k": 1, "v": 0.0})
        storage.admin.create_or_update(spec.evolve(fields=[Field.int("k"), Field.double("v")]))
        call(old, write, view, "f")
    assert 0.1 in [row["v"] for row in storage.table("f").scan()]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("view", ["auto-commit", "transaction"])
def test_first_call_after_the_table_was_made_again_with_other_types(
    storage: Storage, rich: TableSpecification, postgresql_url: str, name: str, view: str
) -> None:
    """No bytes of the old types reach the new table."""
    with connect(postgresql_url) as old:
        warm(old)
        storage.admin.drop("t")
        storage.admin.create(rich.evolve(fields=[Field.int("k"), Field.double("v"), *RICH.fields[2:]]))
        storage.table("t").upsert({"k": 1, "v": 1.0})
        if name.startswith("increment"):
            with pytest.raises(InvalidFieldError, match="v"):
                call(old, CALLS[name], view)
        else:
            call(old, CALLS[name], view)
    assert {row["v"] for row in storage.table("t").scan()} <= {1.0, 5.0, None}


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.read((1,)),
        lambda t: t.multi_read([(1,)]),
        lambda t: t.delete((1,)),
        lambda t: t.delete_many([(key,) for key in range(1, 9)]),
        lambda t: t.increment((1,), "v"),
        lambda t: t.delete_all(Range.prefix((1,))),
        lambda t: list(t.scan(Range.prefix((1,)))),
    ],
    ids=["read", "multi_read", "delete", "delete_many", "increment", "delete_all", "scan"],
)
@pytest.mark.parametrize("view", ["auto-commit", "transaction"])
def test_key_of_a_table_that_was_made_again_with_another(
    storage: Storage, rich: TableSpecification, postgresql_url: str, use: Callable[[StructuredTable], object], view: str
) -> None:
    """A key of the old type is refused, not taken for one of the new."""
    with connect(postgresql_url) as old:
        warm(old)
        storage.admin.drop("t")
        storage.admin.create(rich.evolve(fields=[Field.date("k"), *RICH.fields[1:]]))
        row: dict[str, Value] = {"k": dt.date(2000, 1, 2), "v": 1, "s": None, "q": None}
        storage.table("t").upsert(row)
        with pytest.raises(InvalidFieldError, match="k"):
            call(old, use, view)
        assert list(storage.table("t").scan()) == [row]


def test_statistics_of_a_log_that_is_gone(storage: Storage, postgresql_url: str) -> None:
    """A log has no rows to count, and is looked up all the same."""
    log = TableSpecification("log", [Field.int("k")], options={"write-mode": "log"})
    storage.admin.create(log)
    with connect(postgresql_url) as old:
        assert old.statistics("log") == TableStatistics(0, 0, exact=True)
        storage.admin.drop("log")
        with pytest.raises(TableNotFoundError):
            old.statistics("log")
        storage.admin.create(log)
        old.table("log").insert({"k": 1})
        storage.admin.drop("log")
        storage.admin.create(TableSpecification("log", [Field.int("k")], ["k"]))
        storage.table("log").upsert({"k": 1})
        assert old.statistics("log").rows == 1
