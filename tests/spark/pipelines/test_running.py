"""Pipelines on Spark: stages, steps, lookups, side inputs, joins of streams, batches, starts and restarts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from structable.access import Cache
from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import (
    JoinWindow,
    Partitioner,
    Pipeline,
    PlanChangedError,
    PlanError,
    partition_of,
)
from structable.spark_bridge.pipelines.running import stages, writes
from structable.spark_bridge.write import jobs
from structable.spi import Field, RecordNotFoundError, Storage, StructableError, TableSpecification, Value
from tests.access.support.measured import Measured
from tests.spark.pipelines.support.collected import Collected
from tests.spark.pipelines.support.remote import Deaf, Folder
from tests.spark.pipelines.support.streams import Streams

two_stores = pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)

PROFILES = TableSpecification("profiles", [Field.string("id"), Field.string("name"), Field.int("age")], ["id"])
VIEWS = TableSpecification("views", [Field.string("id"), Field.long("n"), Field.string("name")], ["n"])
SOFT = TableSpecification(
    "soft",
    [Field.string("id"), Field.boolean("gone"), Field.string("word")],
    ["id"],
    options={"soft-delete.field": "gone"},
)


def rows(storage: Storage, table: str) -> list[dict[str, Value]]:
    return [dict(row) for row in storage.table(table).scan()]


def create(storage: Storage, *specs: TableSpecification) -> None:
    for spec in specs:
        storage.admin.create(spec)


@two_stores
def test_stream_is_joined_with_a_table_that_another_feeds(streams: Streams, storage: Storage, url: str) -> None:
    """Three streams: S1 -> T, S2 joined with T -> U, S3 joined with U; replayed, every table and sink is the same."""
    create(storage, PROFILES, VIEWS)
    changed = streams.of("changed", "id string, name string, age int")
    viewed = streams.of("viewed", "id string, n bigint")
    asked = streams.of("asked", "n bigint")
    answers = Collected()
    pipeline = Pipeline("pages", default_partitions=2)
    profiles, views = (pipeline.table(name, TableRef(url, name)) for name in ("profiles", "views"))
    questions = pipeline.source("asked", lambda spark: asked.stream(), key="n", partitions=2)
    questions.join_table(views, "n", how="left").sink("answers", answers)
    seen = pipeline.source("viewed", lambda spark: viewed.stream(), key="id", partitions=2)
    named = seen.join_table(profiles, "id", columns="name").partition_by("n")
    named.send_to(views, unordered=True, name="write_views").filter("n > 0").map(lambda df: df).sink("new", Collected())
    profile = pipeline.source("changed", lambda spark: changed.stream(), key="id", partitions=2)
    profile.send_to(profiles, name="write_profiles")
    changed.add({"id": "a", "name": "Ann", "age": 1}, {"id": "a", "name": "Anna"})
    viewed.add({"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": None, "n": 3}, {"id": "a", "n": 4})
    asked.add({"n": 1}, {"n": 2}, {"n": 1})
    streams.run(pipeline)
    expected = [{"id": "a", "n": 1, "name": "Anna"}, {"id": "a", "n": 4, "name": "Anna"}]
    assert rows(storage, "profiles") == [{"id": "a", "name": "Anna", "age": None}]
    assert rows(storage, "views") == expected
    assert answers.rows == [(1, "a", "Anna"), (1, "a", "Anna"), (2, None, None)]
    [stage] = pipeline.plan().stages
    streams.forget(stage.name, 0)
    streams.run(pipeline)
    assert answers.calls == 2
    assert answers.rows == [(1, "a", "Anna"), (1, "a", "Anna"), (2, None, None)]
    assert rows(storage, "views") == expected
    changed.add({"id": "b", "name": "Bob"})
    viewed.add({"id": "b", "n": 2})
    streams.run(pipeline)
    assert rows(storage, "views") == [expected[0], {"id": "b", "n": 2, "name": "Bob"}, expected[1]]


@two_stores
def test_lookups_find_rows_of_every_kind_of_table(streams: Streams, storage: Storage, url: str, tmp_path: Path) -> None:
    create(storage, PROFILES, SOFT)
    storage.table("profiles").insert_many([{"id": "a", "name": "Ann", "age": 1}, {"id": "b", "name": "Bob"}])
    storage.table("soft").insert_many([{"id": "a", "word": "kept"}, {"id": "b", "word": "lost"}])
    storage.table("soft").delete(("b",))
    remote = Folder(str(tmp_path / "remote"))
    Path(remote.path).mkdir()
    Path(remote.path, "a").write_text('{"mark": 7}')
    given = streams.of("given", "key string, place int")
    given.add({"key": "a", "place": 1}, {"key": "b", "place": 2}, {"key": "c", "place": 3}, {"place": 4})
    given.add({"key": "a", "place": 5})
    pipeline, found = Pipeline("lookups"), dict[str, Collected]()
    tables = {
        "plain": pipeline.table("plain", TableRef(url, "profiles")),
        "cached": pipeline.table("cached", TableRef(url, "profiles"), cache=Cache(max_rows=2, absent=True)),
        "whole": pipeline.table("whole", TableRef(url, "profiles"), access="broadcast"),
        "soft": pipeline.table("soft", TableRef(url, "soft")),
        "soft_whole": pipeline.table("soft_whole", TableRef(url, "soft"), access="broadcast"),
        "remote": pipeline.remote_table(
            "remote", key="id", schema=[Field.string("id"), Field.int("mark")], read=remote, cache=Cache()
        ),
    }
    more = ["*", "place `a.b``c`", "place _key0"]  # names that mean something to Spark, or to us
    source = pipeline.source("given", lambda spark: given.stream().selectExpr(*more))
    for name, table in tables.items():
        for how in ("inner", "left"):
            columns = {"plain": ["age", "name"], "soft": "word", "soft_whole": "word"}.get(name)
            joined = source.join_table(table, {"key": "id"}, how=how, columns=columns, prefix=f"{how}_")
            joined.sink(f"{name}_{how}", found.setdefault(f"{name} {how}", Collected()))
    streams.run(pipeline)
    row: dict[str, dict[str, tuple[object, ...]]] = {
        "plain": {"a": (1, "Ann"), "b": (None, "Bob")},
        "cached": {"a": ("Ann", 1), "b": ("Bob", None)},
        "whole": {"a": ("Ann", 1), "b": ("Bob", None)},
        "soft": {"a": ("kept",)},
        "soft_whole": {"a": ("kept",)},
        "remote": {"a": (7,)},
    }
    arrived = [("a", 1), ("b", 2), ("c", 3), (None, 4), ("a", 5)]
    for name, known in row.items():
        width = len(known["a"])
        every = [(key, *[place] * 3, *known.get(key or "", (None,) * width)) for key, place in arrived]
        assert sorted(found[f"{name} left"].rows, key=str) == sorted(every, key=str), name
        matched = [one for one in every if one[0] in known]
        assert sorted(found[f"{name} inner"].rows, key=str) == sorted(matched, key=str), name


def test_partitions_are_those_of_the_rule(spark: SparkSession) -> None:
    keys = [(word, number) for word in ("x", "é", "", None) for number in (-3, 0, 2**40)]
    frame = spark.createDataFrame(keys, "s string, n bigint")
    own, ruled, other = Collected(), Collected(), Collected()
    pipeline = Pipeline("parts")
    source = pipeline.source("rows", lambda spark: frame)
    parts = source.partition_by(["s", "n"], partitions=5)
    parts.map(lambda df: df.select("s", "n", spark_partition_id()), rekeys=True).sink("own", own)
    by_number = Partitioner("by_number", lambda names, count: f"pmod({names[0]}, {count})")
    moved = source.partition_by("n", partitions=3, partitioner=by_number)
    moved.map(lambda df: df.select("n", spark_partition_id()), rekeys=True).sink("ruled", ruled)
    # Behind a partition_by the key is another: the columns of the former one may go, those of the order may not.
    keyed = pipeline.source("keyed", lambda spark: frame, key="s", order="n").partition_by("n", partitions=2)
    keyed.map(lambda df: df.select("n")).sink("other", other)
    pipeline.run_batch(spark)
    assert other.rows == sorted(((key[1],) for key in keys), key=str)
    assert own.rows == sorted([(key[0], key[1], partition_of(key, 5)) for key in keys], key=str)
    assert ruled.rows == sorted([(key[1], key[1] % 3) for key in keys], key=str)


def test_streams_are_joined_within_a_window(streams: Streams, spark: SparkSession) -> None:
    shown = streams.of("shown", "ad string, at timestamp, place int")
    clicked = streams.of("clicked", "ad string, clicked timestamp")

    def declared(name: str, stream: bool, how: str = "inner", after: str = "10 minutes") -> tuple[Pipeline, Collected]:
        pipeline, found = Pipeline(name), Collected()
        left = pipeline.source("shown", lambda spark: shown.stream() if stream else shown.batch(), partitions=3)
        right = pipeline.source("clicked", lambda spark: clicked.stream() if stream else clicked.batch(), partitions=3)
        within = JoinWindow("at", "clicked", "0 seconds", after, "1 hour", "1 hour")
        left.join(right, "ad", window=within, how=how, name="met").sink("found", found)
        return pipeline, found

    day = "2024-01-01T"
    shown.add({"ad": "x", "at": f"{day}10:00:00Z", "place": 1}, {"ad": "y", "at": f"{day}10:00:00Z", "place": 2})
    clicked.add({"ad": "z", "clicked": f"{day}10:00:00Z"})
    pipeline, found = declared("ads", True)
    streams.run(pipeline)
    [stage] = pipeline.plan().stages
    assert stage.partitions == 3
    clicked.add({"ad": "x", "clicked": f"{day}10:10:00Z"}, {"ad": "y", "clicked": f"{day}10:10:01Z"})
    streams.run(pipeline)
    streams.forget(stage.name, max(found.batches))
    streams.run(pipeline)
    assert [(row[0], row[2]) for row in found.rows] == [("x", 1)]
    saved = [path for path in (streams.checkpoint / stage.name / "state" / "0").iterdir() if path.name.isdigit()]
    assert len(saved) == 3
    batch, at_once = declared("ads", False, "full")
    batch.run_batch(spark)
    matched = [(row[0], row[2], row[3] is None) for row in at_once.rows]
    assert sorted(matched, key=str) == [("x", 1, False), ("y", 2, True), ("y", None, False), ("z", None, False)]
    for name, after, what in (
        ("ads", "11 minutes", r"join met: its window was \(0, 600000000\), and is \(0, 660000000\)"),
        ("advertisements", "10 minutes", "the pipeline: its name was ads, and is advertisements"),
    ):
        other, _ = declared(name, True, after=after)
        with pytest.raises(PlanChangedError, match=what) as caught:
            streams.run(other)
        assert caught.value.differences
    kept = json.loads((streams.checkpoint / "structable-plan.json").read_text())
    assert kept["pipeline"] == "ads"


@two_stores
def test_run_goes_on_until_it_is_stopped_or_fails(
    streams: Streams, storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured()
    for module in (jobs, stages, writes):
        monkeypatch.setattr(module, "recording_meter", lambda: measured.meter)
    create(storage, PROFILES)
    known, seen = streams.of("known", "id string, name string"), streams.of("seen", "id string, n bigint")
    updated = streams.of("updated", "id string, age int")
    found = Collected()
    pipeline = Pipeline("run", default_partitions=2)
    side = pipeline.source("known", lambda spark: known.stream(), key="id", partitions=2)
    profiles = pipeline.table("profiles", TableRef(url, "profiles"), side_inputs=[side])
    views = pipeline.source("seen", lambda spark: seen.stream(), key="id", partitions=2)
    views.join_table(profiles, "id", columns="name").sink("found", found)
    other = pipeline.table("other", TableRef(url, "profiles"), copartition=False)
    pipeline.source("updated", lambda spark: updated.stream(), order="age").send_update_to(other, name="ages")
    for number in range(3):
        known.add({"id": f"k{number}", "name": f"name {number}"})
    seen.add({"id": "k2", "n": 1}, {"id": "k9", "n": 2})
    with_run = pipeline.start(streams.spark, str(streams.checkpoint))
    with_run.process_available()
    assert found.rows == [("k2", 1, "name 2")]
    known.add({"id": "k9", "name": "late"})
    with_run.process_available()
    seen.add({"id": "k9", "n": 3})
    updated.add({"id": "k0", "age": 3}, {"id": "k1", "age": 4})
    with_run.process_available()
    assert found.rows == [("k2", 1, "name 2"), ("k9", 3, "late")]
    assert not with_run.await_termination(0.1)
    with_run.stop()
    with_run.stop()
    assert with_run.await_termination(10)
    assert with_run.exception is None
    stage_of = {step.name: stage.name for stage in pipeline.plan().stages for step in stage.steps}
    labels = tuple(sorted({"pipeline": "run", "stage": stage_of["ages"], "step": "ages"}.items()))
    assert measured.read()["structable.step.rows"][labels] == 2
    assert labels in measured.read()["structable.step.duration"]
    sink = tuple(sorted({"pipeline": "run", "stage": stage_of["found"], "step": "found"}.items()))
    assert measured.read()["structable.step.rows"][sink] == 2
    updated.add({"id": "missing", "age": 1})
    again = pipeline.start(streams.spark, str(streams.checkpoint), {"processingTime": "0 seconds"})
    with pytest.raises(RecordNotFoundError, match=r"'missing'") as caught:
        again.await_termination(120)
    assert again.exception is caught.value
    notes = " ".join(caught.value.__notes__)
    assert f"stage {stage_of['ages']!r} of pipeline 'run' failed" in notes
    assert 'on_missing="drop"' in notes
    assert not any(query.isActive for query in again.queries.values())


def test_remote_tables_are_written(streams: Streams, spark: SparkSession, tmp_path: Path) -> None:
    remote = Folder(str(tmp_path / "remote"))
    Path(remote.path).mkdir()
    schema = [Field.string("id"), Field.int("a"), Field.string("b")]
    frame = spark.createDataFrame(
        [("x", 1, "b", False), ("y", 2, "b", False), ("x", 3, None, False), ("y", 4, None, True), ("z", 5, "q", False)],
        "id string, a int, b string, gone boolean",
    ).coalesce(1)
    for step in ("rows", "updates", "fails"):
        pipeline = Pipeline("remote")
        table = pipeline.remote_table("folder", key="id", schema=schema, read=remote, write=remote)
        source = pipeline.source("given", lambda spark: frame)
        if step == "rows":
            source.send_to(table, deletes="gone")
        elif step == "updates":
            source.send_update_to(table, deletes="gone", nulls="keep", default={"b": "first"})
        else:
            Path(remote.path, "z").unlink()
            source.map(lambda df: df.drop("gone")).send_update_to(table)
        if step == "fails":
            with pytest.raises(RecordNotFoundError, match=r"'[yz]'"):
                pipeline.run_batch(spark)
            continue
        pipeline.run_batch(spark)
        expected: dict[str, dict[str, Mapping[str, Value]]] = {
            "rows": {"x": {"a": 3, "b": None}, "z": {"a": 5, "b": "q"}},
            "updates": {"x": {"a": 3, "b": "b"}, "z": {"a": 5, "b": "q"}},
        }
        assert remote.rows() == expected[step]


def test_error_of_a_function_that_writes_has_its_text(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a",)], "id string")
    pipeline = Pipeline("broken")
    table = pipeline.remote_table("remote", key="id", schema=[Field.string("id")], write=Deaf())
    pipeline.source("given", lambda spark: frame).send_to(table, name="told")
    with pytest.raises(StructableError, match=r"KeyError: .*nobody takes a") as caught:
        pipeline.run_batch(spark)
    assert any("in send_to 'told' of stage" in note for note in caught.value.__notes__)


def test_a_table_without_a_key_takes_rows_in_any_order(spark: SparkSession, storage: Storage, url: str) -> None:
    create(storage, TableSpecification("log", [Field.long("n")], options={"write-mode": "append-only"}))
    pipeline = Pipeline("log")
    source = pipeline.source("given", lambda spark: spark.range(3).withColumnRenamed("id", "n"), order="n")
    source.send_to(pipeline.table("log", TableRef(url, "log")), mode="insert")
    pipeline.run_batch(spark)
    assert {row["n"] for row in storage.table("log").scan()} == {0, 1, 2}


@two_stores
def test_batch_run_with_an_id_is_one(spark: SparkSession, storage: Storage, url: str) -> None:
    create(storage, PROFILES, VIEWS)
    profiles = spark.createDataFrame([("a", "Ann", 1), ("b", "Bob", 2)], "id string, name string, age int")
    views = spark.createDataFrame([("a", 1), ("b", 2), ("c", 3)], "id string, n bigint")
    pipeline, told = Pipeline("nightly"), Collected()
    table, target = (pipeline.table(name, TableRef(url, name)) for name in ("profiles", "views"))
    joined = pipeline.source("views_of", lambda spark: views, key="id", partitions=1).join_table(
        table, "id", how="left", columns="name"
    )
    joined.send_to(target, name="out").sink("told", told)
    pipeline.source("profiles_of", lambda spark: profiles, key="id", partitions=1).send_to(table, name="in")
    pipeline.run_batch(spark, "2024-02-29")
    expected = [
        {"id": "a", "n": 1, "name": "Ann"},
        {"id": "b", "n": 2, "name": "Bob"},
        {"id": "c", "n": 3, "name": None},
    ]
    assert rows(storage, "views") == expected
    storage.table("views").delete((1,))
    pipeline.run_batch(spark, "2024-02-29")
    assert rows(storage, "views") == expected[1:]
    pipeline.run_batch(spark)
    assert rows(storage, "views") == expected
    assert told.calls == 3


def test_changes_of_a_table_are_a_stream(streams: Streams, storage: Storage, url: str) -> None:
    create(storage, PROFILES.evolve(options={"changelog-producer": "lookup"}), PROFILES.evolve(name="copy"))
    profiles, pipeline = storage.table("profiles"), Pipeline("copies")
    copy = pipeline.table("copy", TableRef(url, "copy"))
    pipeline.changes("changed", TableRef(url, "profiles")).send_to(copy, mode="changes")
    profiles.insert_many({"id": name, "name": name.upper()} for name in "abc")
    streams.run(pipeline)
    profiles.delete(("b",))
    profiles.update({"id": "a", "age": 7})
    streams.run(pipeline)
    assert rows(storage, "copy") == rows(storage, "profiles")
    with pytest.raises(PlanError, match="the changes of table 'profiles' are a stream; use start or run_available"):
        pipeline.run_batch(streams.spark)


def test_stream_behind_a_table_is_joined_in_a_stage_of_its_own(streams: Streams, storage: Storage, url: str) -> None:
    create(storage, PROFILES)
    storage.table("profiles").insert({"id": "a", "name": "Ann"})
    shown = streams.of("shown", "id string, at timestamp")
    clicked = streams.of("clicked", "id string, clicked timestamp")
    window = JoinWindow("at", "clicked", "0 seconds", "10 minutes", "1 hour", "1 hour")

    def declared(stream: bool) -> tuple[Pipeline, Collected]:
        pipeline, found = Pipeline("cut", default_partitions=2), Collected()
        profiles = pipeline.table("profiles", TableRef(url, "profiles"))
        views = pipeline.source(
            "shown", lambda spark: shown.stream() if stream else shown.batch(), key="id", partitions=2
        )
        clicks = pipeline.source(
            "clicked", lambda spark: clicked.stream() if stream else clicked.batch(), key="id", partitions=2
        )
        named = views.join_table(profiles, "id", columns="name", name="named")
        named.join(clicks, "id", window=window).sink("found", found)
        return pipeline, found

    pipeline, found = declared(stream=True)
    for number in range(2):
        shown.add({"id": "a", "at": f"2024-01-01T1{number}:00:00Z"}, {"id": "b", "at": "2024-01-01T10:00:00Z"})
        clicked.add({"id": "a", "clicked": f"2024-01-01T1{number}:01:00Z"})
        streams.run(pipeline)
    assert [row[0] for row in found.rows] == ["a", "a"]
    assert len(rows(storage, "cut_named")) == 2
    assert len(pipeline.plan().stages) == 2
    batch, found = declared(stream=False)
    batch.run_batch(streams.spark)
    assert [row[0] for row in found.rows] == ["a", "a"]
    assert len(rows(storage, "cut_named")) == 2


@two_stores
def test_foreign_key_join_follows_the_writes_of_its_tables(streams: Streams, storage: Storage, url: str) -> None:
    fed = {"changelog-producer": "lookup"}
    create(
        storage,
        TableSpecification(
            "orders", [Field.long("id"), Field.string("product"), Field.int("count")], ["id"], ["product"], fed
        ),
        TableSpecification("products", [Field.string("product"), Field.string("title")], ["product"], options=fed),
    )
    ordered = streams.of("ordered", "id bigint, product string, count int")
    priced, asked = streams.of("priced", "product string, title string"), streams.of("asked", "id bigint")
    answers = Collected()

    def shop(how: Literal["inner", "left"]) -> Pipeline:
        pipeline = Pipeline("shop", default_partitions=1)
        orders, products = (pipeline.table(name, TableRef(url, name)) for name in ("orders", "products"))
        titled = pipeline.foreign_key_join(
            "titled",
            orders,
            products,
            ["product"],
            how=how,
            select={"title": "right.title"},
            result=TableRef(url, "titled"),
        )
        pipeline.source("asked", lambda spark: asked.stream()).join_table(titled, "id", how="left").sink("out", answers)
        pipeline.source("ordered", lambda spark: ordered.stream()).send_to(orders)
        pipeline.source("priced", lambda spark: priced.stream()).send_to(products)
        return pipeline

    pipeline = shop("inner")
    ordered.add({"id": 1, "product": "a", "count": 2}, {"id": 2, "product": "b", "count": 1})
    priced.add({"product": "a", "title": "Apple"})
    asked.add({"id": 1}, {"id": 2})
    streams.run(pipeline)
    streams.forget(pipeline.plan().stages[0].name, 0)
    streams.run(pipeline)
    assert rows(storage, "titled") == [{"id": 1, "title": "Apple"}]
    priced.add({"product": "a", "title": "Apples"}, {"product": "b", "title": "Bread"})
    asked.add({"id": 2})
    streams.run(pipeline)
    assert rows(storage, "titled") == [{"id": 1, "title": "Apples"}, {"id": 2, "title": "Bread"}]
    assert answers.rows == [(1, "Apple"), (2, None), (2, "Bread")]
    with pytest.raises(PlanError, match=r"join 'titled' has changed .*: how was inner and is left"):
        streams.run(shop("left"))


def test_what_does_not_fit_is_found_before_anything_runs(
    streams: Streams, storage: Storage, url: str, spark: SparkSession
) -> None:
    create(storage, PROFILES, VIEWS)
    given = streams.of("given", "id string, n int, other string")
    timed = streams.of("timed", "id bigint, seen timestamp")

    def broken(frame: DataFrame) -> DataFrame:
        raise KeyError("absent")

    pipeline = Pipeline("faults")
    profiles, views = (pipeline.table(name, TableRef(url, name), copartition=False) for name in ("profiles", "views"))
    absent = pipeline.table("absent", TableRef(url, "absent"))
    source = pipeline.source("given", lambda spark: given.stream(), key="id", order="n")
    source.join_table(views, "n", name="typed").sink("one", Collected())
    source.join_table(profiles, "other", name="partly").sink("two", Collected())
    source.join_table(profiles, "id", name="clash", columns=["name"], prefix="").map(
        lambda df: df.drop("id"), name="lost"
    ).sink("three", Collected())
    source.filter("nothing = 1", name="unknown").sink("four", Collected())
    source.map(broken, name="broken").sink("five", Collected())
    source.send_to(profiles, name="wrong")
    again = source.map(lambda df: df.selectExpr("*", "id name"))
    again.join_table(profiles, "id", columns="name", name="twice").sink("eight", Collected())
    source.partition_by("nowhere", partitions=2, name="aside").sink("nine", Collected())
    left = pipeline.source("left", lambda spark: given.stream(), partitions=2)
    right = pipeline.source("right", lambda spark: timed.stream(), partitions=2)
    for name, column in (("timeless", "at"), ("untyped", "id")):
        window = JoinWindow(column, "seen", "1 minute", "1 minute", "1 minute", "1 minute")
        left.join(right, "id", window=window, name=name).sink(f"{name}_sink", Collected())
    source.join_table(absent, "id", name="nowhere").sink("six", Collected())
    pipeline.source("batch", lambda spark: given.batch()).sink("seven", Collected())
    with pytest.raises(PlanError) as caught:
        streams.run(pipeline)
    text = str(caught.value)
    for what in (
        "join_table 'typed': ",
        "names the column 'n' of type int for the field 'n' of type bigint; cast it",
        "map 'lost': a map must keep the columns of key and order, or say rekeys=True; it has lost: id",
        "filter 'unknown': ",
        "map 'broken': 'absent'",
        "send_to 'wrong': ",
        "field 'other': is not a field",
        "join_table 'nowhere': ",
        "source 'batch': load returned a batch DataFrame, and this run needs a streaming one",
        "join_table 'twice': the result would have the column 'name' twice; choose the columns, or give a prefix=",
        "partition_by 'aside': the stream lacks columns of its new key: nowhere",
        "join 'timeless': the left stream lacks the columns: at",
        "join 'untyped': on compares 'id' and 'id', of the types string and bigint; cast one of them in a map",
    ):
        assert what in text, text
    fitting = Pipeline("fitting")
    fitting.source("given", lambda spark: given.stream()).sink("out", Collected())
    with pytest.raises(ValueError, match="trigger is '1 minute'; it must be a dict"):
        fitting.start(spark, str(streams.checkpoint), "1 minute")  # type: ignore[arg-type]  # no dict
    assert not streams.checkpoint.exists()
