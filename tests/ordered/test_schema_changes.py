"""Schema changes that do several things at once, or at the same time as others."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    Isolation,
    Storage,
    StructableError,
    TableSpecification,
    TransactionConflictError,
    connect,
)

COUNT = Field.int("count")


def items(*more: Field, count: Field = COUNT, indexes: tuple[str, ...] = ()) -> TableSpecification:
    fields = [Field.int("id"), count, Field.string("status"), Field.string("text"), *more]
    return TableSpecification("items", fields, ["id"], indexes)


@pytest.fixture
def storage() -> Iterator[Storage]:
    with connect("memory://") as storage:
        storage.admin.create(items())
        yield storage


@contextmanager
def repeatedly(*bodies: Callable[[int], object]) -> Iterator[list[BaseException]]:
    """Call each body again and again in a thread of its own, with numbers; collect all errors except conflicts."""
    stop, failures = threading.Event(), list[BaseException]()

    def run(body: Callable[[int], object]) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                body(number)
            except TransactionConflictError:
                continue
            except BaseException as failure:
                failures.append(failure)
                return

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield failures
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_an_index_that_cannot_be_built_changes_nothing(storage: Storage) -> None:
    """The new and the wider field of the same call are absent, and unindexable values can still be written."""
    table = storage.table("items")
    table.upsert({"id": 1, "count": 1, "text": "x" * 3_000})
    before = storage.admin.get_specification("items")
    with pytest.raises(FieldSizeLimitError):
        storage.admin.create_or_update(
            items(Field.int("more"), count=Field.long("count"), indexes=("status", "text", "more"))
        )
    assert storage.admin.get_specification("items") == before
    table.upsert({"id": 2, "text": "y" * 4_000})


def test_everything_at_once_on_rows_of_several_layouts(storage: Storage) -> None:
    table = storage.table("items")
    table.upsert({"id": 1, "count": 1, "status": "a"})
    storage.admin.create_or_update(items(Field.int("second")))
    table.upsert({"id": 2, "count": 2, "status": "b", "second": 2})
    last = items(
        Field.int("second"), Field.date("third"), count=Field.long("count"), indexes=("count", "status", "third")
    )
    storage.admin.create_or_update(last)
    assert storage.admin.get_specification("items") == last
    table.upsert({"id": 3, "count": 2**40, "status": "a"})
    for field, value, ids in (
        ("count", 1, [1]),
        ("count", 2**40, [3]),
        ("status", "a", [1, 3]),
        ("third", None, [1, 2, 3]),
    ):
        assert [row.id for row in table.scan_index(field, value)] == ids


@pytest.mark.slow
def test_indexes_stay_whole_under_writers_and_other_changes(storage: Storage) -> None:
    """Fields are added, and rows written in new layouts, while an index is built from rows of the old ones."""
    table = storage.table("items")
    table.upsert_many([{"id": n, "count": n % 5, "status": str(n % 3)} for n in range(1_500)])
    added = 0

    def write(number: int) -> None:
        table.upsert({"id": number * 7 % 1_500, "status": str(number % 3)})

    def delete(number: int) -> None:
        table.delete((number * 11 % 1_500,))

    def add_field(number: int) -> None:
        nonlocal added
        if added < 8:
            storage.admin.create_or_update(items(Field.int(f"more{number}")))
            added += 1

    with repeatedly(write, delete, add_field) as failures:
        while added < 8 and not failures:
            storage.admin.create_or_update(items(indexes=("status",)))
            storage.admin.drop_index("items", "status")
        storage.admin.create_or_update(items(indexes=("status",)))
    assert failures == []
    assert len(storage.admin.get_specification("items").fields) == 12
    with storage.transaction() as transaction:
        inside = transaction.table("items")
        rows = list(inside.scan())
        for status in ("0", "1", "2"):
            expected = [row.id for row in rows if row.status == status]
            assert [row.id for row in inside.scan_index("status", status)] == expected


def test_an_index_taken_away_while_it_is_built_is_built_again(storage: Storage) -> None:
    table = storage.table("items")
    table.upsert_many([{"id": n, "status": str(n % 3)} for n in range(2_000)])

    left = 0

    def take_away(_: int) -> None:
        nonlocal left
        if left:  # bounded: otherwise the faster of the two would decide the end
            try:
                storage.admin.drop_index("items", "status")
            except StructableError:
                return
            left -= 1

    with repeatedly(take_away):
        for _ in range(5):
            left = 10
            storage.admin.create_or_update(items(indexes=("status",)))
    storage.admin.create_or_update(items(indexes=("status",)))
    assert len(list(table.scan_index("status", "1"))) == 667


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_transaction_from_before_the_index_conflicts(storage: Storage, isolation: Isolation) -> None:
    storage.table("items").upsert({"id": 1, "status": "a"})
    transaction = storage.transaction(isolation)
    transaction.table("items").upsert({"id": 1, "status": "b"})
    storage.admin.create_or_update(items(indexes=("status",)))
    with pytest.raises(TransactionConflictError):
        transaction.commit()
    assert [row.id for row in storage.table("items").scan_index("status", "a")] == [1]
