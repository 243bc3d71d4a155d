"""Batch reads of change feeds."""

import datetime as dt

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame

from structable.spark_bridge.base.feed_options import FeedOptions
from structable.spark_bridge.base.options import ReadOptions
from structable.spi import FEED_COLUMNS, ChangeFeed, FeedPosition, Field, Storage, TableSpecification
from tests.spark.conftest import Tables, every_store

SPEC = TableSpecification(
    "fed",
    [Field.long("k"), Field.string("text"), Field.timestamp("at")],
    primary_key=["k"],
    options={"changelog-producer": "lookup"},
)
AT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
PLACE = {"url": "leveldb:///tables", "table": "runs"}


@pytest.fixture
def positions(storage: Storage) -> list[FeedPosition]:
    """Make changes, and return the positions before, between and after the commits."""
    storage.admin.create(SPEC)
    feed, table = storage.changes("fed"), storage.table("fed")
    found = [feed.latest()]
    table.upsert_many({"k": k, "text": "new", "at": AT} for k in range(4))
    found.append(feed.latest())
    table.upsert_many({"k": k, "text": "changed"} for k in range(2))
    found.append(feed.latest())
    table.delete((0,))
    return [*found, feed.latest()]


def changes(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((row["_change_type"], row["k"], row["text"]) for row in frame.collect())


NEW = [("insert", k, "new") for k in range(4)]
CHANGED = [
    *(("update_postimage", k, "changed") for k in range(2)),
    *(("update_preimage", k, "new") for k in range(2)),
]
GONE = [("delete", 0, "changed")]


@every_store
def test_ranges(tables: Tables, storage: Storage, positions: list[FeedPosition]) -> None:
    def read(**options: object) -> DataFrame:
        return tables.read("fed", readChangeFeed="true", **options)

    whole = read(splits=3)
    assert whole.schema.names == [*SPEC.field_names, *FEED_COLUMNS]
    rows = whole.collect()
    assert sorted((row["_change_type"], row["k"], row["text"]) for row in rows) == sorted([*NEW, *CHANGED, *GONE])
    given = {
        (change.kind.change_type, change.row["k"], change.version, change.timestamp)
        for change in storage.changes("fed").read()
    }
    assert {
        (row["_change_type"], row["k"], row["_commit_version"], row["_commit_timestamp"].astimezone(dt.UTC))
        for row in rows
    } == given
    assert changes(read(startingVersion=positions[1], endingVersion=positions[2])) == CHANGED
    last = storage.changes("fed").advance(positions[2], 1).version
    assert changes(read(startingVersion=last, endingVersion=last)) == GONE  # both inclusive
    assert changes(read(startingVersion="latest")) == []
    assert changes(read(startingVersion=positions[0], netChanges="true")) == [
        ("insert", 1, "changed"),
        ("insert", 2, "new"),
        ("insert", 3, "new"),
    ]
    assert read().where("_change_type = 'delete'").select("k").collect() == [(0,)]
    assert read(columns="text").where("_change_type = 'delete'").collect()[0][:1] == ("changed",)
    assert read().select("_commit_version").distinct().count() == 3


def test_times_are_of_the_session(tables: Tables, storage: Storage, positions: list[FeedPosition]) -> None:
    kept = list(storage.changes("fed").read())
    moment = kept[-1].timestamp
    assert moment is not None
    offset = moment - dt.timedelta(microseconds=1)
    zone = tables.session.conf.get("spark.sql.session.timeZone")
    assert zone == "America/Los_Angeles"
    read = tables.read("fed", readChangeFeed="true", startingTimestamp=moment.isoformat(sep=" "))
    assert changes(read) == sorted(
        (change.kind.change_type, change.row["k"], change.row["text"])
        for change in kept
        if change.timestamp >= moment  # type: ignore[operator]
    )
    # Without an offset the time is in Los Angeles, which is hours behind: in UTC the same text would be long ago.
    # Java has names of zones that others do not know.
    tables.session.conf.set("spark.sql.session.timeZone", "PST")
    try:
        local = tables.read("fed", readChangeFeed="true", startingTimestamp=f"{offset:%Y-%m-%d %H:%M:%S.%f}")
        assert changes(local) == []
    finally:
        tables.session.conf.set("spark.sql.session.timeZone", zone)
    assert changes(tables.read("fed", readChangeFeed="true", endingTimestamp="2001-01-01")) == []


def test_changes_are_written_to_another_table_as_they_are(
    tables: Tables, storage: Storage, positions: list[FeedPosition]
) -> None:
    storage.admin.create(SPEC.evolve(name="copy", options={}))
    frame = tables.read("fed", readChangeFeed="true").repartition(1).sortWithinPartitions("_commit_version")
    tables.write(frame, "copy", mode="changes")
    with storage.table("copy").scan() as copied, storage.table("fed").scan() as rows:
        assert list(copied) == list(rows)


def test_a_query_reads_the_same_range_again_until_it_expires(
    tables: Tables, storage: Storage, positions: list[FeedPosition]
) -> None:
    frame = tables.read("fed", readChangeFeed="true")
    assert len(frame.collect()) == 9
    storage.table("fed").delete((1,))
    assert len(frame.collect()) in (9, 10)  # planned again or not
    planned = tables.read("fed", readChangeFeed="true").persist()
    assert planned.count() == 10
    storage.changes("fed").expire(storage.changes("fed").latest())
    with pytest.raises((PythonException, AnalysisException), match="expired"):
        tables.read("fed", readChangeFeed="true", startingVersion=positions[0]).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readchangefeed": "yes"}, "the option readChangeFeed is 'yes'"),
        ({"startingversion": "1"}, "startingVersion: the option readChangeFeed=true is missing"),
        ({"readchangefeed": "true", "startingversion": "1", "startingtimestamp": "2026-01-01"}, "exclude each other"),
        ({"readchangefeed": "true", "endingversion": "1", "endingtimestamp": "2026-01-01"}, "exclude each other"),
        ({"readchangefeed": "true", "startingtimestamp": "today"}, "the option startingTimestamp is 'today'"),
        ({"readchangefeed": "true", "netchanges": "1"}, "the option netChanges is '1'"),
        ({"splits": "9" * 5000}, "the option splits is '999"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadOptions.parse({**PLACE, **options})


class _Times(ChangeFeed):
    """Answers `at` with the seconds of a time."""

    def at(self, timestamp: dt.datetime) -> FeedPosition:
        return FeedPosition("0" * 16, int(timestamp.timestamp()))

    def latest(self) -> FeedPosition:
        return FeedPosition("0" * 16, 2**62)


_Times.__abstractmethods__ = frozenset()


@pytest.mark.parametrize(
    ("zone", "seconds"),
    [("UTC", 0), ("Z", 0), ("+01:00", -3600), ("GMT-02:30", 9000), ("UTC+1", -3600), ("Europe/Berlin", -3600)],
)
def test_time_zones(zone: str, seconds: int) -> None:
    options = FeedOptions.parse({"readchangefeed": "true", "startingtimestamp": "2026-01-31 12:00:00"})
    assert options is not None
    since, _ = options.range_of(_Times(), zone)  # type: ignore[abstract]
    assert since is not None
    assert since.version == int(AT.timestamp()) + seconds


@pytest.mark.parametrize("zone", [None, "Mars/Olympus", "", "../UTC", "+99:00"])
def test_unknown_time_zones(zone: str | None) -> None:
    options = FeedOptions.parse({"readchangefeed": "true", "endingtimestamp": "2026-01-31"})
    assert options is not None
    with pytest.raises(ValueError, match=r"time zone.* is not known here; add an offset"):
        options.range_of(_Times(), zone)  # type: ignore[abstract]


def test_the_last_time_of_all() -> None:
    options = FeedOptions.parse({"readchangefeed": "true", "endingtimestamp": "9999-12-31 23:59:59.999999"})
    assert options is not None
    assert options.range_of(_Times(), "UTC") == (None, _Times().latest())  # type: ignore[abstract]
