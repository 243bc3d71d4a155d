"""Pipelines that start again on their checkpoints, after changes that a restart allows and errors that stop them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from structable.access import Cache, RateLimit, Retry
from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import JoinWindow, Pipeline, PlanError
from structable.spi import Field, Storage, StructableError, TableNotFoundError, TableSpecification
from tests.spark.pipelines.support.collected import Collected
from tests.spark.pipelines.support.remote import Broken, Folder
from tests.spark.pipelines.support.streams import Streams

PROFILES = TableSpecification("profiles", [Field.string("id"), Field.string("name")], ["id"])
COPY = TableSpecification("copy", [Field.string("id"), Field.long("n"), Field.string("name")], ["n"])


def test_functions_steps_and_access_may_change(streams: Streams, storage: Storage, url: str, tmp_path: Path) -> None:
    """Of what a restart allows each kind changes once; the streams go on where they were, state included."""
    storage.admin.create(PROFILES)
    storage.admin.create(COPY)
    storage.table("profiles").insert_many([{"id": "a", "name": "Ann"}, {"id": "b", "name": "Bob"}])
    seen = streams.of("seen", "id string, n bigint")
    shown = streams.of("shown", "ad string, at timestamp")
    clicked = streams.of("clicked", "ad string, clicked timestamp")
    first, second, met = Collected(), Collected(), Collected()
    remote = Folder(str(tmp_path / "remote"))
    Path(remote.path).mkdir()

    def declared(*, later: bool) -> Pipeline:
        pipeline = Pipeline("changing")
        views = pipeline.source("seen", lambda spark: seen.stream(), key="id", partitions=2, order="n")
        known = views.filter("n > 10" if later else "n > 0", name="some")
        access: dict[str, object] = {"cache": Cache()} if later else {}
        profiles = pipeline.table("profiles", TableRef(url, "profiles"), **access)  # type: ignore[arg-type]
        whole = pipeline.table("whole", TableRef(url, "profiles"), access="broadcast" if later else "lookup")
        limits: dict[str, object] = {"read_retry": Retry(when=TimeoutError), "rate_limit": RateLimit(read=100)}
        fields = [Field.string("id"), Field.int("mark")]
        marks = pipeline.remote_table("marks", key="id", schema=fields, read=remote, **(limits if later else {}))  # type: ignore[arg-type]
        named = known.join_table(profiles, "id", name="named").join_table(marks, "id", how="left", name="marked")
        named = named.join_table(whole, "id", prefix="other_", name="again")

        def kept(frame: DataFrame) -> DataFrame:
            return frame.selectExpr("id", "n", "upper(name) name" if later else "name")

        told = named.map(kept, name="told")
        told.sink("first", first)
        if later:
            told.send_to(pipeline.table("copy", TableRef(url, "copy")), name="copy_it")
            told.sink("second", second)
        window = JoinWindow("at", "clicked", "0 seconds", "10 minutes", "1 hour", "1 hour")
        left = pipeline.source("shown", lambda spark: shown.stream(), key="ad", partitions=2)
        right = pipeline.source("clicked", lambda spark: clicked.stream(), key="ad", partitions=2)
        both = left.join(right, "ad", window=window, name="met")
        both.map(lambda frame: frame.selectExpr("upper(ad)" if later else "ad"), rekeys=True, name="ads").sink(
            "answers", met
        )
        return pipeline

    seen.add({"id": "a", "n": 1}, {"id": "b", "n": 2})
    shown.add({"ad": "x", "at": "2024-01-01T10:00:00Z"}, {"ad": "y", "at": "2024-01-01T10:00:00Z"})
    clicked.add({"ad": "y", "clicked": "2024-01-01T10:01:00Z"})
    streams.run(declared(later=False))
    assert (first.rows, met.rows) == ([("a", 1, "Ann"), ("b", 2, "Bob")], [("y",)])
    seen.add({"id": "a", "n": 3}, {"id": "b", "n": 11})
    clicked.add({"ad": "x", "clicked": "2024-01-01T10:02:00Z"})
    run = declared(later=True).start(streams.spark, str(streams.checkpoint), {"processingTime": "0 seconds"})
    run.process_available()
    run.stop()
    assert run.exception is None
    assert first.rows == [("a", 1, "Ann"), ("b", 2, "Bob"), ("b", 11, "BOB")]
    assert second.rows == [("b", 11, "BOB")]
    assert met.rows == [("y",), ("X",)]
    assert [row.astuple() for row in storage.table("copy").scan()] == [(11, "b", "BOB")]


def test_started_join_of_streams_goes_on(streams: Streams) -> None:
    """Rows of either stream wait in the state, also while nothing runs."""
    shown = streams.of("shown", "ad string, at timestamp, place int")
    clicked = streams.of("clicked", "ad string, clicked timestamp")
    pipeline, found = Pipeline("ads"), Collected()
    left = pipeline.source("shown", lambda spark: shown.stream(), key="ad", partitions=2)
    right = pipeline.source("clicked", lambda spark: clicked.stream(), key="ad", partitions=2)
    window = JoinWindow("at", "clicked", "0 seconds", "10 minutes", "1 hour", "1 hour")
    left.join(right, "ad", window=window).map(lambda frame: frame.select("ad", "place")).sink("found", found)
    day = "2024-01-01T10"
    run = pipeline.start(streams.spark, str(streams.checkpoint))
    shown.add({"ad": "x", "at": f"{day}:00:00Z", "place": 1}, {"ad": "y", "at": f"{day}:00:00Z", "place": 2})
    run.process_available()
    assert found.rows == []
    clicked.add({"ad": "x", "clicked": f"{day}:01:00Z"})
    run.process_available()
    assert found.rows == [("x", 1)]
    clicked.add({"ad": "z", "clicked": f"{day}:02:00Z"}, {"ad": "y", "clicked": f"{day}:20:00Z"})
    run.process_available()
    run.stop()
    assert run.exception is None
    clicked.add({"ad": "y", "clicked": f"{day}:09:59Z"})
    again = pipeline.start(streams.spark, str(streams.checkpoint))
    again.process_available()
    shown.add({"ad": "z", "at": f"{day}:01:30Z", "place": 3})
    again.process_available()
    again.stop()
    assert again.exception is None
    assert found.rows == [("x", 1), ("y", 2), ("z", 3)]


def test_error_of_a_lookup_stops_the_run_as_itself(streams: Streams, storage: Storage, url: str) -> None:
    """A task's error is structable's, with facts and the names of stage and step; then the run goes on."""
    storage.admin.create(PROFILES)
    seen, found = streams.of("seen", "id string"), Collected()
    pipeline = Pipeline("stopped")
    source = pipeline.source("seen", lambda spark: seen.stream(), key="id", partitions=2)
    source.join_table(pipeline.table("profiles", TableRef(url, "profiles")), "id").sink("found", found)
    run = pipeline.start(streams.spark, str(streams.checkpoint))
    run.process_available()
    storage.admin.drop("profiles")
    seen.add({"id": "a"})
    with pytest.raises(TableNotFoundError, match="'profiles' does not exist") as caught:
        run.await_termination(300)
    assert caught.value.table == "profiles"
    [stage] = pipeline.plan().stages
    notes = " ".join(caught.value.__notes__)
    assert f"stage {stage.name!r} of pipeline 'stopped' failed" in notes
    assert f"in sink 'found' of stage {stage.name!r}, pipeline 'stopped'" in notes
    storage.admin.create(PROFILES)
    storage.table("profiles").insert({"id": "a", "name": "Ann"})
    streams.run(pipeline)
    assert found.rows == [("a", "Ann")]


def test_error_of_a_function_stops_the_run_with_its_text(streams: Streams) -> None:
    frame = streams.spark.createDataFrame([("a",)], "id string")
    pipeline = Pipeline("broken")
    fields = [Field.string("id"), Field.int("mark")]
    limits = {"read_retry": Retry(when=TimeoutError), "rate_limit": RateLimit(read=100)}
    table = pipeline.remote_table("remote", key="id", schema=fields, read=Broken(), **limits)  # type: ignore[arg-type]
    joined = pipeline.source("given", lambda spark: frame).join_table(table, "id", name="marked")
    joined.sink("nowhere", {"format": "noop", "mode": "overwrite"})
    with pytest.raises(StructableError, match=r"KeyError: .*no route to a") as caught:
        pipeline.run_batch(streams.spark)
    assert any("in sink 'nowhere' of stage" in note for note in caught.value.__notes__)


def test_state_moves_on_whatever_the_steps_read(streams: Streams, storage: Storage, url: str) -> None:
    """Of new micro-batches and repeated ones, whose writes were committed: all, the first rows, or none."""
    fields = [Field.string("ad"), Field.timestamp("at"), Field.int("place"), Field.timestamp("clicked")]
    for name in ("whole", "first"):
        storage.admin.create(TableSpecification(name, fields, ["ad"]))
    shown = streams.of("shown", "ad string, at timestamp, place int")
    clicked = streams.of("clicked", "ad string, clicked timestamp")
    unread, once, reads = Collected(), Collected(), False

    def if_read(found: Collected) -> Callable[[DataFrame, int], None]:
        return lambda frame, batch: found(frame, batch) if reads else None

    pipeline = Pipeline("ads")
    window = JoinWindow("at", "clicked", "0 seconds", "10 minutes", "1 hour", "1 hour")
    both = {}
    for name in ("whole", "first", "unread"):
        left = pipeline.source(f"shown_{name}", lambda spark: shown.stream(), key="ad", partitions=2)
        right = pipeline.source(f"clicked_{name}", lambda spark: clicked.stream(), key="ad", partitions=2)
        both[name] = left.join(right, "ad", window=window, name=name)
    both["whole"].send_to(pipeline.table("all", TableRef(url, "whole")), unordered=True)
    first = both["first"].map(lambda frame: frame.limit(1))
    first.send_to(pipeline.table("some", TableRef(url, "first")), unordered=True)
    both["unread"].sink("read", if_read(unread))

    def distinct(spark: SparkSession) -> DataFrame:
        return clicked.stream().withWatermark("clicked", "1 hour").dropDuplicatesWithinWatermark(["ad"])

    pipeline.source("distinct", distinct).sink("once", if_read(once))
    shown.add(*({"ad": ad, "at": "2024-01-01T10:00:00Z", "place": 1} for ad in "xy"))
    clicked.add({"ad": "x", "clicked": "2024-01-01T10:01:00Z"})
    streams.run(pipeline)
    for stage in pipeline.plan().stages:
        commits = (streams.checkpoint / stage.name / "commits").iterdir()
        streams.forget(stage.name, max(int(path.name) for path in commits if path.name.isdigit()))
    clicked.add({"ad": "x", "clicked": "2024-01-01T10:02:00Z"}, {"ad": "y", "clicked": "2024-01-01T10:02:00Z"})
    streams.run(pipeline)
    reads = True
    clicked.add({"ad": "y", "clicked": "2024-01-01T10:03:00Z"}, {"ad": "z", "clicked": "2024-01-01T10:02:00Z"})
    streams.run(pipeline)
    assert [row["ad"] for row in storage.table("whole").scan()] == ["x", "y"]
    assert [row["ad"] for row in storage.table("first").scan()] == ["x", "y"]
    assert [row[0] for row in unread.rows] == ["y"]
    assert [row[0] for row in once.rows] == ["z"]


def test_a_new_checkpoint_reads_a_stream_between_stages_from_its_own_begin(
    streams: Streams, storage: Storage, url: str
) -> None:
    storage.admin.create(PROFILES)
    storage.table("profiles").insert_many([{"id": "a", "name": "Ann"}, {"id": "b", "name": "Bob"}])
    shown, clicked = (
        streams.of("shown", "id string, at timestamp"),
        streams.of("clicked", "id string, clicked timestamp"),
    )

    def declared(
        sink: Callable[[DataFrame, int], None],
        name: str = "named",
        change: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    ) -> Pipeline:
        pipeline = Pipeline("cut")
        views = pipeline.source("shown", lambda spark: shown.stream(), key="id", partitions=2)
        clicks = pipeline.source("clicked", lambda spark: clicked.stream(), key="id", partitions=2)
        window = JoinWindow("at", "clicked", "0 seconds", "10 minutes", "1 hour", "1 hour")
        found = views.join_table(pipeline.table("profiles", TableRef(url, "profiles")), "id")
        named = found.map(change, name=name)
        named.join(clicks, "id", window=window).map(lambda frame: frame.select("id", "name")).sink("found", sink)
        return pipeline

    def broken(frame: DataFrame, batch: int) -> None:
        raise ValueError("not today")

    for name in "ab":
        shown.add({"id": name, "at": "2024-01-01T10:00:00Z"})
        clicked.add({"id": name, "clicked": "2024-01-01T10:01:00Z"})
    for number in range(2):
        found = Collected()
        streams.checkpoint = streams.checkpoint.with_name(f"checkpoint {number}")
        with pytest.raises(ValueError, match="not today"):
            streams.run(declared(broken))
        streams.run(declared(found))
        assert sorted(found.rows, key=str) == [("a", "Ann"), ("b", "Bob")]
    shown.add({"id": "a", "at": "2024-01-01T10:00:30Z"})
    later = Collected()
    streams.run(declared(later, change=lambda frame: frame.select("name", "id", "at")))  # in another order
    assert list(later.rows) == [("a", "Ann")]
    for change in (lambda frame: frame.drop("name"), lambda frame: frame.withColumn("more", sf.lit(1))):
        streams.checkpoint = streams.checkpoint.with_name("changed columns")
        with pytest.raises(PlanError, match=r"'cut_named', .* has the columns .*; give the stream another name=, or"):
            streams.run(declared(Collected(), change=change))
    storage.admin.create(COPY.evolve(name="cut_other"))
    streams.checkpoint = streams.checkpoint.with_name("last")
    with pytest.raises(PlanError, match="exists and is not a table between stages"):
        streams.run(declared(broken, "other"))
