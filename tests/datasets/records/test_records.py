"""Every method of `Records`, on every store, in a transaction and as a view that commits each call."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from typing import Annotated, Any

import pytest

from structable.datasets import (
    AlreadyExistsError,
    DocumentError,
    Int,
    InvalidCursorError,
    Json,
    NotFoundError,
    Record,
    Records,
    RecordShapeError,
    RecordTable,
    RecordTypeError,
    SchemaMissingError,
)
from structable.spi import Filter, InvalidFieldError, Range, Storage, TransactionClosedError, col, connect

Begin = Callable[[], AbstractContextManager["Records[Job]"]]


class Kind(enum.StrEnum):
    BATCH = "batch"
    SERVICE = "service"


class Job(Record):
    kind: Kind
    number: int
    owner: str | None = None
    attempts: Annotated[int, Int] = 0
    token: uuid.UUID | None = None
    arguments: Annotated[dict[str, Any], Json] = {}


class NewJob(Job):
    priority: int = 5


JOBS = RecordTable(Job, "record_tests", key=("kind", "number"), indexes=("owner",))
NEW_JOBS = RecordTable(NewJob, "record_tests", key=("kind", "number"))
TOKEN = uuid.UUID(int=7)


def job(number: int, kind: Kind = Kind.BATCH, **fields: Any) -> Job:  # noqa: ANN401
    return Job(kind=kind, number=number, **fields)


def _equals(name: str, value: Any) -> Filter:  # noqa: ANN401 - filters are typed for what tables keep
    found: Filter = col(name) == value
    return found


@pytest.fixture
def store(shared_store: Storage) -> Iterator[Storage]:
    shared_store.admin.create(JOBS.specification)
    yield shared_store
    shared_store.admin.drop(JOBS.name)


@pytest.fixture(params=["transaction", "view"])
def begin(store: Storage, request: pytest.FixtureRequest) -> Begin:
    @contextmanager
    def records() -> Iterator[Records[Job]]:
        if request.param == "view":
            yield JOBS(store)
        else:
            with store.transaction() as tx:
                yield JOBS(tx)

    return records


def test_every_method(begin: Begin) -> None:
    one, two, three = job(1, owner="a", token=TOKEN), job(2, owner="b"), job(1, Kind.SERVICE, owner="a")
    with begin() as jobs:
        assert jobs.get(Kind.BATCH, 1) is None
        jobs.insert(one)
        jobs.put(two)
        jobs.put_many([three])
    with begin() as jobs:
        assert jobs.type is Job
        assert jobs.get(Kind.BATCH, 1) == one == jobs.require(Kind.BATCH, 1)
        keys = [(Kind.SERVICE, 1), (Kind.BATCH, 9), (Kind.BATCH, 1), (Kind.BATCH, 1)]
        assert jobs.get_many(keys) == [one, three]
        with jobs.scan() as found:
            assert list(found) == [one, two, three]
        with jobs.scan(Range.prefix((Kind.BATCH,)), where=_equals("token", TOKEN)) as found:
            assert list(found) == [one]
        with jobs.scan(reverse=True, limit=1) as found:
            assert next(found) == three
        with jobs.find("owner", "a", where=col("kind").isin([Kind.SERVICE])) as found:
            assert list(found) == [three]
        several = [Range.prefix((Kind.SERVICE,)), Range.prefix((Kind.BATCH, 2)), Range.prefix((Kind.SERVICE, 1))]
        with jobs.scan(several) as found:
            assert list(found) == [two, three]
        assert (jobs.count(), jobs.count(several), jobs.count(several[0])) == (3, 2, 1)
        assert jobs.count([Range.prefix((Kind.BATCH,))], col("owner") == "b") == 1
        assert jobs.count(where=col("owner") != col("token")) == 1
        page = jobs.page(limit=2)
        assert page.items == [one, two]
        assert jobs.page(cursor=page.next, limit=2).items == [three]
    with begin() as jobs:
        jobs.change((Kind.BATCH, 1), owner=None, attempts=3)
        jobs.increment((Kind.BATCH, 2), "attempts", 2)
        jobs.merge_document((Kind.SERVICE, 1), "arguments", {"a": 1, "b": None})
        assert jobs.swap((Kind.BATCH, 2), "token", None, TOKEN)
        assert not jobs.swap((Kind.BATCH, 1), "token", None, TOKEN)
    with begin() as jobs:
        assert jobs.require(Kind.BATCH, 1) == job(1, attempts=3, token=TOKEN)
        assert jobs.require(Kind.BATCH, 2) == job(2, owner="b", attempts=2, token=TOKEN)
        assert jobs.require(Kind.SERVICE, 1).arguments == {"a": 1}
    with begin() as jobs:
        jobs.delete(Kind.BATCH, 1)
        jobs.delete(Kind.BATCH, 9)
        assert jobs.delete_all(Range.prefix((Kind.SERVICE,))) == 1
    with begin() as jobs:
        assert jobs.count() == 1


class Priced(Record):
    id: int
    prices: Annotated[dict[int, set[Decimal]], Json] = {}
    anything: Annotated[object, Json] | None = None


PRICED = RecordTable(Priced, "priced_records", key=("id",))


def test_swap_compares_documents_by_value(shared_store: Storage) -> None:
    """Equal values of other texts are found: of new software, of old software, and of several at once."""
    shared_store.admin.create(PRICED.specification)
    view = PRICED(shared_store)
    new = {1: {Decimal(7)}}
    spellings = [{10: {Decimal("1.0"), Decimal(scale)}, 2: set()} for scale in ("2", "2.0", "2.00", "2.000")]
    view.put(Priced(id=1, prices=spellings[0], anything={"at": 1}))
    view.table.upsert({"id": 2, "prices": '{"2":[],"10":["2.0","1"]}', "anything": '{"at": 1.0}'})
    for number in (1, 2):
        with shared_store.transaction() as tx:
            prices = PRICED(tx)
            assert not prices.swap((number,), "prices", new, new)
            assert not prices.swap((number,), "prices", None, new)
            assert not prices.swap((number,), "anything", {"at": True}, 2)
            assert prices.swap((number,), "prices", spellings[1], new)
            assert prices.swap((number,), "prices", new, spellings[2])
        assert not view.swap((number,), "anything", {"at": 2}, 3)
        assert view.swap((number,), "anything", {"at": 1.0}, None)
        assert not view.swap((number,), "anything", {"at": 1}, 2)
        assert view.swap((number,), "anything", None, {"at": 1})
    assert not view.swap((3,), "prices", new, new)
    assert view.get(3) is None

    def swapped(place: int) -> bool:
        return view.swap((1,), "prices", spellings[place % 4], {place: {Decimal(place)}})

    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            view.put(Priced(id=1, prices=spellings[0]))
            won = [place for place, swap in enumerate(pool.map(swapped, range(8))) if swap]
            assert len(won) == 1
            assert view.require(1).prices == {won[0]: {Decimal(won[0])}}
    shared_store.admin.drop(PRICED.name)


def test_errors_write_nothing(begin: Begin) -> None:
    one = job(1)
    with begin() as jobs:
        jobs.insert(one)
    bad: Any = {"a": float("nan")}
    with begin() as jobs:
        with pytest.raises(AlreadyExistsError):
            jobs.insert(job(1, owner="b"))
        with pytest.raises(NotFoundError):
            jobs.require(Kind.BATCH, 2)
        with pytest.raises(NotFoundError):
            jobs.change((Kind.BATCH, 2), owner="b")
        with pytest.raises(NotFoundError):
            jobs.merge_document((Kind.BATCH, 2), "arguments", {})
        with pytest.raises(DocumentError):
            jobs.put_many([job(3), job(4, arguments=bad)])
        with pytest.raises(DocumentError):
            jobs.merge_document((Kind.BATCH, 1), "arguments", bad)
        with pytest.raises(InvalidFieldError):
            jobs.merge_document((Kind.BATCH, 1), "owner", {})
        with pytest.raises(InvalidFieldError):
            jobs.change((Kind.BATCH, 1), number=2)
        with pytest.raises(InvalidFieldError):
            jobs.change((Kind.BATCH, 1), attempts=None)
        with pytest.raises(InvalidFieldError):
            jobs.put(job(1, kind="batch"))  # type: ignore[arg-type]
        with pytest.raises(RecordTypeError):
            jobs.put("text")  # type: ignore[arg-type]
    with begin() as jobs, jobs.scan() as found:
        assert list(found) == [one]


def test_row_that_does_not_fit(begin: Begin) -> None:
    with begin() as jobs:
        jobs.table.upsert({"kind": "other", "number": 1, "arguments": "{}"})
        jobs.table.upsert({"kind": "batch", "number": 1, "arguments": "[1]"})
    with begin() as jobs:
        with pytest.raises(RecordShapeError, match="'arguments'"):
            jobs.get(Kind.BATCH, 1)
        with jobs.scan() as found:
            with pytest.raises(RecordShapeError, match="'arguments'"):
                next(found)
            with pytest.raises(RecordShapeError, match="'kind'"):
                next(found)
        assert jobs.table.read(("other", 1)) is not None


def test_default_fills_null(begin: Begin) -> None:
    with begin() as jobs:
        jobs.table.upsert({"kind": "batch", "number": 1})
    with begin() as jobs:
        assert jobs.require(Kind.BATCH, 1) == job(1)


def test_closed_scan_is_never_an_empty_one(store: Storage, begin: Begin) -> None:
    with begin() as jobs:
        jobs.put_many([job(number) for number in range(1, 4)])
    with begin() as jobs:
        for scan in (jobs.scan(), jobs.find("owner", None)):
            assert next(scan) == job(1)
            scan.close()
            with pytest.raises(TransactionClosedError):
                next(scan)
            with pytest.raises(TransactionClosedError):
                list(scan)
    with store.transaction() as tx:
        scan = JOBS(tx).scan()
    for _ in range(2):
        with pytest.raises(TransactionClosedError):
            next(scan)
        with pytest.raises(TransactionClosedError):
            list(scan)


def test_older_class_beside_a_newer(begin: Begin, store: Storage, shared_url: str) -> None:
    """A program of the release before, which knows the table from before the upgrade, loses nothing that it lacks."""
    with begin() as jobs:
        jobs.put_many([job(number, owner="a") for number in range(1, 5)])
    with connect(shared_url) as newer:
        newer.admin.create_or_update(NEW_JOBS.specification.evolve(indexes=["priority"]))
        store_of_new = NEW_JOBS(newer)
        store_of_new.put_many([NewJob(kind=Kind.BATCH, number=number, priority=9) for number in range(1, 5)])
        with begin() as jobs:
            jobs.put(job(1, owner="b"))
            jobs.put_many([job(2, owner="b"), job(6, owner="b")])
            jobs.change((Kind.BATCH, 3), owner="b")
            jobs.insert(job(5, owner="b"))
        store.admin.create_or_update(JOBS.specification)
        with begin() as jobs:
            jobs.put(job(4, owner="b"))
            assert jobs.require(Kind.BATCH, 4) == job(4, owner="b")
            assert JOBS.check(jobs.table.specification) == []
        found = {one.number: (one.owner, one.priority) for one in store_of_new.scan()}
        assert found == {**dict.fromkeys(range(1, 5), ("b", 9)), 5: ("b", 5), 6: ("b", 5)}


FIRST_OPERATIONS: dict[str, Callable[[Records[NewJob]], object]] = {
    "get": lambda jobs: jobs.get(Kind.BATCH, 1),
    "count": lambda jobs: jobs.count(),
    "delete": lambda jobs: jobs.delete(Kind.BATCH, 1),
    "put": lambda jobs: jobs.put(NewJob(kind=Kind.BATCH, number=1)),
    "put_many": lambda jobs: jobs.put_many([]),
    "change": lambda jobs: jobs.change((Kind.BATCH, 1), priority=1),
    "swap": lambda jobs: jobs.swap((Kind.BATCH, 1), "priority", None, 1),
    "merge_document": lambda jobs: jobs.merge_document((Kind.BATCH, 1), "arguments", {}),
    "find": lambda jobs: jobs.find("priority", 1),
    "increment": lambda jobs: jobs.increment((Kind.BATCH, 1), "attempts"),
    "scan": lambda jobs: jobs.scan(),
}


@pytest.mark.parametrize("operation", FIRST_OPERATIONS)
def test_lacking_field_is_found_by_the_first_operation(store: Storage, operation: str) -> None:
    with store.transaction() as transaction:
        for jobs in (NEW_JOBS(transaction), NEW_JOBS(store)):
            with pytest.raises(SchemaMissingError, match=r"record_tests\.priority"):
                FIRST_OPERATIONS[operation](jobs)


def test_table_of_another_key(store: Storage) -> None:
    class Other(Record):
        number: int
        kind: Kind

    others = RecordTable(Other, "record_tests", key=("number",))
    assert others.check(JOBS.specification) == [
        "record_tests has the key ('kind', 'number'); ('number',) is needed",
    ]
    for call in (lambda: others(store).get(1), lambda: others(store).delete(1), lambda: others(store).get_many([(1,)])):
        with pytest.raises(SchemaMissingError, match=r"record_tests\.primary_key"):
            call()


def test_open_document_whose_default_is_none_may_be_none(shared_store: Storage) -> None:
    class Note(Record):
        id: int
        body: Annotated[Any, Json] = None

    table = RecordTable(Note, "notes", key=("id",))
    shared_store.admin.create(table.specification)
    try:
        notes = table(shared_store)
        notes.put_many([Note(id=1), Note(id=2, body=[None])])
        notes.change((2,), body=None)
        assert notes.swap((1,), "body", None, 7)
        assert list(notes.scan()) == [Note(id=1, body=7), Note(id=2)]
        assert [one.id for one in notes.scan(where=col("body").is_null())] == [2]
    finally:
        shared_store.admin.drop(table.name)


def test_classes_that_check_themselves_and_wide_ones(store: Storage) -> None:
    """Both are made another way than small plain classes."""

    class Checked(Record):
        id: int
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"{self.low} > {self.high}")

    wide = type("Wide", (Record,), {"__annotations__": {"id": int, **{f"n{number}": int for number in range(40)}}})
    for place, table in enumerate(
        (RecordTable(Checked, "checked", key=("id",)), RecordTable(wide, "wide", key=("id",)))
    ):
        store.admin.create_or_update(table.specification)
        records = table(store)
        names = [name for name in table.specification.field_names if name != "id"]
        made = table.type(id=1, **{name: number for number, name in enumerate(names)})
        records.put(made)
        assert records.get(1) == made
        with records.scan() as found:
            assert list(found) == [made]
        if place == 0:
            store.table("checked").update({"id": 1, "low": 9})
            with pytest.raises(ValueError, match="9 > 1"):
                records.get(1)
        store.admin.drop(table.name)


def test_pages(begin: Begin) -> None:
    with begin() as jobs:
        jobs.put_many([job(number) for number in range(0, 20, 2)])
    with begin() as jobs:
        first = jobs.page(limit=4)
        assert first.next is not None
        for cursor in ("", "?", "ü", first.next[:-1], first.next + "A", first.next[::-1]):
            with pytest.raises(InvalidCursorError):
                jobs.page(cursor=cursor, limit=4)
        for other in ({"reverse": True}, {"range": Range.prefix((Kind.BATCH,))}, {"where": col("number") > 1}):
            with pytest.raises(InvalidCursorError):
                jobs.page(cursor=first.next, **other)
        for limit in (0, 1_001, True, "1"):
            with pytest.raises(ValueError, match="limit"):
                jobs.page(limit=limit)  # type: ignore[arg-type]
    with begin() as jobs:
        jobs.delete(Kind.BATCH, 6)  # the one that the cursor names
        jobs.put(job(1))
    with begin() as jobs:
        second = jobs.page(cursor=first.next, limit=6)
        assert [one.number for one in second.items] == [8, 10, 12, 14, 16, 18]
        assert second.next is None
        either, turned = (jobs.page(where=col("kind").isin(kinds), limit=4) for kinds in (Kind, reversed(Kind)))
        assert either.next == turned.next, "a set has another order in another process"
        backwards = jobs.page(reverse=True, limit=6)
        rest = jobs.page(cursor=backwards.next, reverse=True)
        assert [one.number for one in rest.items] == [4, 2, 1, 0]
