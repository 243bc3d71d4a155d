"""Streams of change feeds without Spark: how far a micro-batch goes, and the first snapshot made anew."""

import datetime as dt
import pickle
import random
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from structable.spark_bridge.base.feed_options import FeedOptions
from structable.spark_bridge.base.options import ReadOptions
from structable.spark_bridge.base.store_client import READ_OPTIONS, StoreClient
from structable.spark_bridge.coordinator.client import CoordinatorClient
from structable.spark_bridge.coordinator.feed_streams import (
    Advance,
    FeedStream,
    advance,
    check_streamed,
    first_snapshot,
    plan_changes,
)
from structable.spark_bridge.coordinator.held_plans import PlannedSplits
from structable.spark_bridge.coordinator.stream_offsets import StreamOffset, StreamStart, offset_of
from structable.spark_bridge.stream.reader import FeedStreamReader
from structable.spark_bridge.stream.snapshot_parts import snapshot_parts
from structable.spi import (
    Change,
    ChangesLostError,
    FeedPosition,
    Field,
    RowKind,
    SchemaIncompatibleError,
    Storage,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    connect,
)

FIELDS = [Field.long("k"), Field.string("text"), Field.double("size")]
LOOKUP = {"changelog-producer": "lookup"}
NEW_CHECKPOINT = "Start the query with a new checkpoint"
KEYED = TableSpecification("fed", FIELDS, primary_key=["k"], options=LOOKUP)
COMPACTED = KEYED.evolve(options={"changelog-producer": "full-compaction"})
BAG = TableSpecification("fed", FIELDS, options={"write-mode": "change-log", **LOOKUP})
LOG = TableSpecification("fed", FIELDS, options={"write-mode": "append-only", "changelog-producer": "input"})


@pytest.fixture
def storage() -> Iterator[Storage]:
    with connect(f"memory://{uuid.uuid4().hex}") as storage:
        yield storage


def stream(
    spec: TableSpecification, columns: tuple[str, ...] = (), version: str | None = None, timestamp: str | None = None
) -> FeedStream:
    names = columns or spec.field_names
    options = ReadOptions(StoreClient("memory://"), "fed", None, 2, feed=FeedOptions(version, timestamp))
    return FeedStream(options, tuple(spec.field(name) for name in names), spec.primary_key, "UTC")


def end(
    read: FeedStream,
    storage: Storage,
    start: FeedPosition | None = None,
    rows: int | None = None,
    until: FeedPosition | None = None,
    age: float | None = 0.0,
) -> FeedPosition | None:
    since = StreamStart.of(read.options.feed) if start is None else StreamOffset(start)
    return advance(read, storage, Advance(since, rows, until, age))


def test_offsets_are_constants_of_the_options_then_positions() -> None:
    assert StreamStart.of(None).to_json() == StreamStart.of(FeedOptions()).to_json() == {"start": "snapshot"}
    assert StreamStart.of(FeedOptions(starting_version="7")).to_json() == {"start": "version 7"}
    assert StreamStart.of(FeedOptions(starting_timestamp="2026-01-31")).to_json() == {"start": "timestamp 2026-01-31"}
    assert not StreamStart.of(FeedOptions(starting_version="snapshot")).is_snapshot
    position = FeedPosition("0" * 16, 5)
    assert StreamOffset(position).to_json() == {"feed": "0" * 16, "version": 5}
    time = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
    for offset in (StreamStart("version 7"), StreamOffset(position), StreamOffset(position, time)):
        assert offset_of(offset.to_json()) == offset
    for other in ({}, {"version": 5}, {"feed": "x", "version": 5}, {"row": 1}, {"start": "snapshot", "version": 5}):
        with pytest.raises(ValueError, match="which is not a structable table's; use a new checkpoint"):
            offset_of(other)


def test_the_first_batch_is_not_repeated_with_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "1")  # as the reader does where it fails
    options = ReadOptions(StoreClient("memory://"), "fed", None, None)
    reader = FeedStreamReader(CoordinatorClient(("", 0), ("", 0), b""), options, StructType(), "")
    assert reader.initialOffset() == {"start": "snapshot"}
    with pytest.raises(ValueError, match="was begun with another start than the options startingVersion and"):
        reader.partitions(reader.initialOffset(), {"feed": "0" * 16, "version": 5})


def test_a_batch_ends_at_the_newest_change_within_its_limits(storage: Storage) -> None:
    storage.admin.create(KEYED)
    feed, table = storage.changes("fed"), storage.table("fed")
    positions = [feed.latest()]
    for rows in (3, 1, 2):
        table.upsert_many({"k": k, "text": str(rows)} for k in range(10 * rows, 11 * rows))
        positions.append(feed.latest())
    read = stream(KEYED, version="earliest")
    assert end(read, storage) == positions[-1]
    assert end(read, storage, rows=3) == positions[1]
    assert end(read, storage, positions[1], rows=1) == positions[2]
    assert end(read, storage, positions[2], rows=1) == positions[3]  # one commit at least
    assert end(read, storage, positions[0], until=positions[2]) == positions[2]
    assert end(read, storage, positions[0], rows=100, until=positions[2]) == positions[2]
    assert end(read, storage, positions[2], until=positions[2]) is None
    assert end(read, storage, positions[3], until=positions[2]) is None
    assert end(read, storage, positions[3]) is None
    assert end(stream(KEYED, version=str(positions[2].version)), storage, rows=1) == positions[2]  # inclusive
    assert end(stream(KEYED, version=str(positions[2])), storage, rows=1) == positions[3]  # after it
    assert end(stream(KEYED, version="latest"), storage) == positions[3]  # never what was asked for
    assert end(stream(KEYED, timestamp="2001-01-01 00:00:00"), storage) == positions[3]


def test_a_log_begins_with_its_earliest_change(storage: Storage) -> None:
    """It has no rows to begin with: a stream without a start has what is kept, with a feed's columns or without."""
    spec = TableSpecification("fed", FIELDS, options={"write-mode": "log"})
    storage.admin.create(spec)
    feed, table = storage.changes("fed"), storage.table("fed")
    positions = []
    for rows in (3, 1):
        table.insert_many({"k": k} for k in range(rows))
        positions.append(feed.latest())
    for changes in (FeedOptions(), None):
        check_streamed(spec, changes=changes is not None)
        options = ReadOptions(StoreClient("memory://"), "fed", None, 2, feed=changes)
        read = FeedStream(options, spec.fields, (), "UTC", log=True)
        assert end(read, storage, rows=3) == positions[0]
        assert end(read, storage) == positions[1]
        splits = plan_changes(read, storage, StreamStart.of(changes), positions[1], 2)
        found = [row["k"] for split in splits for batch in storage.read_split(split) for row in batch.to_pylist()]
        assert found == [0, 1, 2, 0]
        assert end(read, storage, positions[1]) is None


def test_a_quiet_position_moves_on_once_it_is_old(storage: Storage) -> None:
    storage.admin.create(KEYED.evolve(options={**LOOKUP, "changelog.time-retained": "1000 s"}))
    other = KEYED.evolve(name="other")
    storage.admin.create(other)
    start = storage.changes("fed").latest()
    storage.table("other").upsert({"k": 1})
    latest = storage.changes("fed").latest()
    assert latest > start
    read = stream(KEYED)
    assert end(read, storage, start, age=99.0) is None
    assert end(read, storage, start, age=101.0) == latest
    assert end(read, storage, start, age=101.0, until=start) is None
    assert end(read, storage, start, age=None) == latest  # of an unknown age, and without younger changes
    storage.table("fed").upsert({"k": 1})
    start = storage.changes("fed").latest()
    storage.table("other").upsert({"k": 2})
    assert end(read, storage, start, age=None) is None  # it is younger than a change before it


def test_lost_changes_and_other_schemas_are_errors(storage: Storage) -> None:
    storage.admin.create(KEYED)
    feed, table = storage.changes("fed"), storage.table("fed")
    start = feed.latest()
    table.upsert({"k": 1})
    read, narrow = stream(KEYED), stream(KEYED, ("k",))
    until = feed.latest()
    storage.admin.create_or_update(KEYED.evolve(fields=[*FIELDS, Field.int("more")]))
    assert plan_changes(read, storage, StreamOffset(start), until, 1)[0].columns[:3] == KEYED.field_names
    widened = FeedStream(read.options, (Field.int("k"), *FIELDS[1:]), ("k",), None)
    with pytest.raises(SchemaIncompatibleError, match=r"'k' is long, and was int when the query started; restart"):
        plan_changes(widened, storage, StreamOffset(start), until, 1)
    table.upsert({"k": 2})
    feed.expire(feed.latest())
    for rows in (None, 1):
        with pytest.raises(ChangesLostError, match="has expired") as lost:
            end(narrow, storage, start, rows=rows)
        assert NEW_CHECKPOINT in pickle.loads(pickle.dumps(lost.value)).__notes__[0]
    with pytest.raises(ChangesLostError, match="has expired") as lost:
        plan_changes(narrow, storage, StreamOffset(start), until, 1)
    assert NEW_CHECKPOINT in lost.value.__notes__[0]
    storage.admin.drop("fed")
    storage.admin.create(KEYED)
    for rows in (None, 1):
        with pytest.raises(ChangesLostError, match="belongs to a feed that is gone"):
            end(narrow, storage, until, rows=rows, until=storage.changes("fed").latest())


@pytest.mark.parametrize("version", ["0", "1", "00"])
def test_a_start_before_the_feed_is_not_said_to_have_expired(storage: Storage, version: str) -> None:
    storage.admin.create(KEYED.evolve(name="other"))
    for k in range(3):
        storage.table("other").upsert({"k": k})
    storage.admin.create(KEYED)
    begin = storage.changes("fed").earliest()
    with pytest.raises(ChangesLostError) as lost:
        end(stream(KEYED, version=version), storage)
    assert lost.value.earliest == begin
    assert f"the option startingVersion is '{version}', and the first version that is kept is {begin.version + 1}" in (
        str(lost.value)
    )
    assert "startingVersion=earliest" in str(lost.value)
    assert "has expired" not in str(lost.value)


@pytest.mark.parametrize("digits", [19, 20, 5000])
@pytest.mark.parametrize("option", ["startingversion", "endingversion"])
def test_a_version_beyond_64_bits_is_a_clear_error(option: str, digits: int) -> None:
    with pytest.raises(ValueError, match=f"the option {READ_OPTIONS[option]} is '999.*; it must be a version") as wrong:
        FeedOptions.parse({"readchangefeed": "true", option: "9" * digits})
    assert len(str(wrong.value)) < 250


@pytest.mark.parametrize(
    ("options", "key", "changes", "message"),
    [
        (LOOKUP, ["k"], False, "not append-only.*readChangeFeed=true"),
        ({"write-mode": "change-log", **LOOKUP}, [], False, "not append-only.*readChangeFeed=true"),
        ({"write-mode": "append-only"}, [], False, "no change feed.*changelog-producer"),
        ({}, ["k"], True, "no change feed.*changelog-producer"),
    ],
)
def test_tables_that_give_no_stream(options: dict[str, str], key: list[str], changes: bool, message: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=message):
        check_streamed(TableSpecification("fed", FIELDS, primary_key=key, options=options), changes=changes)


def snapshot_rows(
    read: FeedStream, storage: Storage, position: FeedPosition | None = None
) -> tuple[FeedPosition, Counter[tuple[Value, ...]]]:
    """Return the rows of a first snapshot, taken now or made anew."""
    plan = storage.plan_scan("fed", columns=read.snapshot_columns(position), splits=2)
    planned = PlannedSplits("", plan.splits, plan.position)
    snapshot = first_snapshot(read, storage, planned, position, 2)
    found: Counter[tuple[Value, ...]] = Counter()
    for part in snapshot_parts(snapshot):
        for batch in part.read(read.columns, storage.read_split):
            columns = [batch.column(name).to_pylist() for name in read.columns]
            found.update(tuple(str(value) for value in row) for row in zip(*columns, strict=True))
    plan.close()
    return snapshot.position, found


@pytest.mark.parametrize("spec", [KEYED, COMPACTED, BAG, LOG], ids=["keyed", "compacted", "bag", "append-only"])
@pytest.mark.parametrize("columns", [(), ("text",), ("size", "k")])
def test_the_first_snapshot_is_made_anew(storage: Storage, spec: TableSpecification, columns: tuple[str, ...]) -> None:
    storage.admin.create(spec)
    chosen, table = random.Random(7), storage.table("fed")
    kinds = [RowKind.INSERT] if spec is LOG else [RowKind.UPDATE_AFTER, RowKind.DELETE]

    def change() -> None:
        table.apply_changes(
            Change(
                chosen.choice(kinds),
                {
                    "k": chosen.randrange(6),
                    "text": chosen.choice([None, "a", "b"]),
                    "size": chosen.choice([None, 1.0, float("nan")]),
                },
            )
            for _ in range(chosen.randrange(8))
        )

    read = stream(spec, columns)
    for _ in range(12):
        change()
    taken = []
    for _ in range(12):
        taken.append(snapshot_rows(read, storage))
        assert snapshot_rows(read, storage, taken[-1][0]) == taken[-1]
        change()
    for position, rows in taken:
        assert snapshot_rows(read, storage, position) == (position, rows)


def test_a_first_snapshot_that_cannot_be_made_anew_is_an_error(storage: Storage) -> None:
    spec = KEYED.evolve(options={"changelog-producer": "input"})
    storage.admin.create(spec)
    position, _ = snapshot_rows(stream(spec), storage)
    with pytest.raises(UnsupportedOperationError, match=r"producer input\); start the query with a new checkpoint"):
        snapshot_rows(stream(spec), storage, position)
