"""What is refused when it is declared."""

from __future__ import annotations

import datetime
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from structable.access import Cache, TableReadFunction
from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import JoinWindow, Partitioner, Pipeline, Stream, Table, partition_of
from structable.spi import Field
from tests.pipelines.support.declared import STORE, WINDOW, load, write

REF = TableRef(STORE, "t")


def by_hash(columns: Sequence[str], n: int) -> str:
    return f"pmod(hash({columns[0]}), {n})"


def by_sum(columns: Sequence[str], n: int) -> str:
    return f"pmod({' + '.join(columns)}, {n})"


class Read(TableReadFunction[tuple[Any, ...], Mapping[str, Any]]):
    async def get(self, key: tuple[Any, ...]) -> Mapping[str, Any] | None:
        return None


def remote(p: Pipeline, *, key: str = "id", read: Read | None = Read()) -> Table:  # noqa: B008
    return p.remote_table("R", key=key, schema=[Field.string("id"), Field.int("v")], read=read)


Wrong = Callable[[Pipeline, Stream, Table], object]

WRONG: dict[str, tuple[Wrong, str]] = {
    "name": (lambda p, s, t: p.source("1a", load), "name is '1a'; it must be a letter and at most 47"),
    "used name": (lambda p, s, t: p.source("T", load), "the name 'T' is used already"),
    "used name of a sink": (lambda p, s, t: s.sink("S", write), "the name 'S' is used already"),
    "pipeline": (lambda p, s, t: Pipeline("a b"), "the pipeline's name is 'a b'"),
    "default": (lambda p, s, t: Pipeline("a", default_partitions=0), "default_partitions is 0"),
    "cap": (lambda p, s, t: Pipeline("a", partition_cap=0), "partition_cap is 0"),
    "mismatch": (lambda p, s, t: Pipeline("a", on_mismatch="x"), "on_mismatch is 'x'; allowed are error, repartition"),
    "store": (lambda p, s, t: Pipeline("a", intermediate_store="x"), "intermediate_store is 'x'"),
    "load": (lambda p, s, t: p.source("A", 1), "load is 1; it must be a function"),  # type: ignore[arg-type]
    "count": (lambda p, s, t: p.source("A", load, partitions=True), "partitions is True"),
    "large count": (lambda p, s, t: p.source("A", load, partitions=2**31), "whole number from 1 to 2147483647"),
    "key": (lambda p, s, t: p.source("A", load, key=["a", "a"]), "key is .*each once"),
    "a mapping for columns": (lambda p, s, t: s.join_table(t, "a", columns={"b": "c"}), "columns is {'b': 'c'}"),  # type: ignore[arg-type]
    "a set for a key": (lambda p, s, t: p.source("A", load, key={"a", "b"}), "key is .*must be a list"),  # type: ignore[arg-type]
    "a number for a key": (lambda p, s, t: s.partition_by(5), "key is 5; it must be a list"),  # type: ignore[arg-type]
    "no key": (lambda p, s, t: s.partition_by([]), "key is .*at least one column"),
    "label": (lambda p, s, t: p.source("A", load, partitioner=""), "partitioner is ''"),
    "two labels": (
        lambda p, s, t: [s.partition_by("a", partitioner=Partitioner("l", rule)) for rule in (by_hash, by_sum)],
        "two partitioners have the label 'l'",
    ),
    "own label": (lambda p, s, t: Partitioner("structable", lambda c, n: ""), "label is 'structable'"),
    "access": (lambda p, s, t: p.table("A", REF, access="local"), "access is 'local'; allowed are lookup, broadcast"),
    "cached broadcast": (
        lambda p, s, t: p.table("A", REF, access="broadcast", cache=Cache()),
        "only lookups use a cache",
    ),
    "map": (lambda p, s, t: s.map(None), "fn is None"),  # type: ignore[arg-type]
    "rekeys": (lambda p, s, t: s.map(load, rekeys="a"), "rekeys is 'a'; it must be True or False"),  # type: ignore[arg-type]
    "unordered": (lambda p, s, t: s.send_to(t, unordered=["a"]), r"unordered is \['a'\]; it must be True or False"),  # type: ignore[arg-type]
    "copartition": (lambda p, s, t: p.table("A", REF, copartition=1), "copartition is 1; it must be True or False"),  # type: ignore[arg-type]
    "filter": (lambda p, s, t: s.filter(" "), "condition is ' '"),
    "merge": (lambda p, s, t: s.merge(), "merge has no other stream"),
    "window": (lambda p, s, t: s.join(s, "a", window=None), "window is None"),  # type: ignore[arg-type]
    "how": (lambda p, s, t: s.join(s, "a", window=WINDOW, how="cross"), "how is 'cross'"),
    "how with a table": (lambda p, s, t: s.join_table(t, "a", how="full"), "how is 'full'"),
    "on": (lambda p, s, t: s.join_table(t, {"a": "x", "b": "x"}), "on is"),
    "order and unordered": (lambda p, s, t: s.send_to(t, order_by="a", unordered=True), "give only one of the two"),
    "mode": (lambda p, s, t: s.send_to(t, mode="x"), "mode is 'x'; allowed are upsert, changes, replace, insert"),
    "deletes": (lambda p, s, t: s.send_to(t, mode="insert", deletes="d"), "deletes needs upsert or replace"),
    "nulls": (lambda p, s, t: s.send_update_to(t, nulls="x"), "nulls is 'x'"),
    "missing": (lambda p, s, t: s.send_update_to(t, on_missing="x"), "on_missing is 'x'"),
    "default row": (lambda p, s, t: s.send_update_to(t, default=1), "default is 1"),  # type: ignore[arg-type]
    "sink": (lambda p, s, t: s.sink("A", {"path": "x"}), "write is .*mapping of format"),
    "format of a sink": (lambda p, s, t: s.sink("A", {"format": 1}), "write is .*format, a text"),
    "options of a sink": (lambda p, s, t: s.sink("A", {"format": "json", "options": 1}), "options, a mapping"),
    "mode of a sink": (
        lambda p, s, t: s.sink("A", {"format": "json", "mode": "x"}),
        "mode is 'x'; allowed are append,",
    ),
    "other pipeline": (lambda p, s, t: s.merge(Pipeline("q").source("A", load)), "a stream of another pipeline, 'q'"),
    "no functions": (lambda p, s, t: remote(p, read=None), "has neither a read nor a write function"),
    "remote schema": (lambda p, s, t: remote(p, key="x"), "remote table 'R': .*x"),
    "remote write": (lambda p, s, t: s.send_to(remote(p)), "table 'R' has no write function"),
    "remote key": (lambda p, s, t: s.join_table(remote(p), "v"), "on compares v; it must compare the whole key"),
    "remote column": (lambda p, s, t: s.join_table(remote(p), "id", columns="x"), "columns has 'x'"),
    "foreign key": (lambda p, s, t: p.foreign_key_join("F", remote(p), t, "a", result=REF), "left is the remote table"),
    "result": (
        lambda p, s, t: s.send_to(p.foreign_key_join("F", t, t, "a", result=TableRef(STORE, "f"))),
        "only the join writes to it",
    ),
    "result that is an input": (lambda p, s, t: p.foreign_key_join("F", t, t, "a", result=REF), "is an input, too"),
    "kind of join": (
        lambda p, s, t: p.foreign_key_join("F", t, t, "a", how="full", result=TableRef(STORE, "f")),
        "how is 'full'; it must be inner or left",
    ),
    "select": (
        lambda p, s, t: p.foreign_key_join("F", t, t, "a", select={"x": "y"}, result=TableRef(STORE, "f")),
        "select has 'x': 'y'; it must map a name",
    ),
    "duration": (lambda p, s, t: JoinWindow("a", "b", "1 month", "", "", ""), "before is '1 month'; it must be a text"),
    "negative": (lambda p, s, t: JoinWindow("a", "b", "-1 day", "", "", ""), "must not be negative"),
    "time": (lambda p, s, t: JoinWindow("", "b", "1 day", "", "", ""), "left_time is ''"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_declaration_is_a_value_error(case: str) -> None:
    p = Pipeline("app")
    stream, table = p.source("S", load), p.table("T", REF)
    wrong, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        wrong(p, stream, table)


def test_wrong_types() -> None:
    p = Pipeline("app")
    stream, table = p.source("S", load), p.table("T", REF)
    for wrong in (
        lambda: stream.send_to(REF),  # type: ignore[arg-type]
        lambda: stream.send_to(stream),  # type: ignore[arg-type]
        lambda: stream.merge(table),  # type: ignore[arg-type]
        lambda: p.table("U", "leveldb:///x"),  # type: ignore[arg-type]
        lambda: p.table("U", REF, shards=4),  # type: ignore[call-arg]
        lambda: p.table("U", REF, cache=5),  # type: ignore[arg-type]
        lambda: remote(p, read=5),  # type: ignore[arg-type]
        lambda: p.remote_table("U", key="id", schema=[Field.string("id")], read=Read(), read_retry=3),  # type: ignore[arg-type]
        lambda: p.remote_table("U", key="id", schema=[Field.string("id")], read=Read(), rate_limit=3),  # type: ignore[arg-type]
        lambda: p.table("U", REF, side_inputs=stream),  # type: ignore[arg-type]
        lambda: p.remote_table("U", key="id", schema=5, read=Read()),  # type: ignore[arg-type]
        lambda: p.source("U", load, partition_column="p"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=r"it must be|unexpected keyword argument"):
            wrong()


def test_generated_names_give_way() -> None:
    p = Pipeline("app")
    source = p.source("S", load, partitions=2)
    source.filter("a").filter("b").sink("O", write)
    source.filter("c", name="S.filter.1").filter("d").sink("P", write)
    (stage,) = p.plan().stages
    assert [step.name for step in stage.steps] == [
        "S.filter.2",
        "S.filter.3",
        "O",
        "S.filter.1",
        "S.filter.1.filter.1",
        "P",
    ]


def test_partition_of() -> None:
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
    for values, text in (
        (("a", 1), "a\x001"),
        ((True, None, b"\xff\x00"), "true\x00\x00ff00"),
        ((datetime.date(2020, 1, 2),), "2020-01-02"),
        ((moment,), "1577934245000006"),
        ((moment.replace(tzinfo=datetime.UTC),), "1577934245000006"),
        ((datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),), "-1"),
    ):
        assert partition_of(values, 1_000_003) == zlib.crc32(text.encode()) % 1_000_003
    with pytest.raises(ValueError, match="n is 0"):
        partition_of(("a",), 0)
    with pytest.raises(TypeError):
        partition_of((1.5,), 4)


PROGRAM = """
import sys

class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoSpark())
from structable.spark_bridge.pipelines import command, restart
from tests.pipelines.support.declared import declare, lines

case = "A source 8|B source 2|I by B|T table|W send I T|L lookup A T|J join A I|O sink J|P sink L"
plan = declare(lines(case.replace("|", "\\n"))).plan()
plan.explain(), plan.to_json(), plan.to_mermaid(), plan.to_dot()
print(plan.partitions["I"], "pyspark" in sys.modules)
"""


def test_planning_where_pyspark_cannot_be_imported() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("8 False\n", "")
