"""What may change between two starts on one checkpoint."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from structable.access import Cache
from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import JoinWindow, Partitioner, Pipeline, PlanChangedError, PlanError
from structable.spark_bridge.pipelines.restart import check_restart, differences
from tests.pipelines.support.declared import STORE, load, write

Change = dict[str, Any]


def pipeline(
    name: str = "app",
    *,
    left: str = "id",
    right: str = "B",
    partitions: int = 8,
    key: str = "id",
    by: int | None = None,
    partitioner: Partitioner | None = None,
    times: tuple[str, str] = ("at", "seen"),
    on: str = "id",
    how: str = "inner",
    before: str = "1 hour",
    lateness: str = "1 minute",
    swapped: bool = False,
    more: Callable[[Pipeline, Any], object] = lambda p, streams: None,
    cache: Cache | None = None,
    filtered: bool = False,
    cut: bool = False,
) -> Pipeline:
    p = Pipeline(name)
    a = p.source("A", load, key=left, partitions=partitions, order="at")
    b = p.source(right, load, key="id", partitions=3, order="at").partition_by(
        key, partitions=by, partitioner=partitioner, name="I"
    )
    if filtered:
        a = a.filter("x > 0")
    t = p.table("T", TableRef(STORE, "t"), cache=cache, copartition=False)
    if cut:
        b = b.join_table(t, "id", name="C")
    window = JoinWindow(*times, before, "1 minute", lateness, "1 minute")
    first, second = (b, a) if swapped else (a, b)
    j = first.join(second, [on], window=window, how=how, name="J")
    j.send_to(t, name="W")
    j.join_table(t, "id", name="L").sink("O", write)
    more(p, {"A": a, "J": j, "T": t})
    return p


ALLOWED: dict[str, Change] = {
    "nothing": {},
    "a filter": {"filtered": True},
    "a new sink": {"more": lambda p, s: s["J"].filter("x").sink("P", write)},
    "a new table behind the front": {"more": lambda p, s: s["J"].send_to(p.table("U", TableRef(STORE, "u")))},
    "a new pipeline beside it": {"more": lambda p, s: p.source("Z", load).sink("P", write)},
    "a cache": {"cache": Cache()},
    "a side input": {
        "more": lambda p, s: (
            s["A"].join_table(p.table("U", TableRef(STORE, "u"), side_inputs=[s["A"]]), "id").sink("P", write)
        )
    },
}
REFUSED: dict[str, tuple[Change, list[str]]] = {
    "pipeline": ({"name": "other"}, ["the pipeline: its name was app, and is other"]),
    "a source's name": ({"right": "C"}, ["stage A: its sources was (A, B), and is (A, C)"]),
    "a new source of a stage": (
        {"more": lambda p, s: s["J"].merge(p.source("Z", load, order="at")).sink("P", write)},
        ["stage A: its sources was (A, B), and is (A, B, Z)"],
    ),
    "the count of a grouped input": (
        {"partitions": 16},
        [
            "join J: its state partitions was 8, and is 16",
            "intermediate I: its partition count was 8, and is 16",
            "input A: its partition count was 8, and is 16",
        ],
    ),
    "the key of an intermediate and a join": (
        {"key": "x", "on": "x", "left": "x"},
        ["join J: its keys was ((id, id)), and is ((x, x))", "intermediate I: its key was (id), and is (x)"],
    ),
    "the label of an intermediate": (
        {"partitioner": Partitioner("sum", lambda columns, n: f"pmod({columns[0]}, {n})")},
        ["intermediate I: its partitioner was structable, and is sum"],
    ),
    "time columns": ({"times": ("seen", "at")}, ["join J: its time columns was (at, seen), and is (seen, at)"]),
    "type": ({"how": "left"}, ["join J: its type was inner, and is left"]),
    "window": ({"before": "2 hours"}, ["join J: its window was (3600000000, 60000000), and is (7200000000, 60000000)"]),
    "lateness": ({"lateness": "0 seconds"}, ["join J: its lateness was (60000000, 60000000), and is (0, 60000000)"]),
    "sides": ({"swapped": True}, ["join J: its streams was ((A), (I)), and is ((I), (A))"]),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_allowed(case: str) -> None:
    before = pipeline().plan(strict=False).to_json()
    check_restart(before, pipeline(**ALLOWED[case]).plan(strict=False))


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    change, wanted = REFUSED[case]
    before = pipeline().plan(strict=False).to_json()
    now = pipeline(**change).plan(strict=False)
    assert now.stages
    with pytest.raises(PlanChangedError) as error:
        check_restart(before, now)
    assert list(error.value.differences) == wanted
    assert all(difference in str(error.value) for difference in wanted)
    assert "new checkpoint" in str(error.value)
    copy = pickle.loads(pickle.dumps(error.value))
    assert (copy.differences, str(copy)) == (error.value.differences, str(error.value))
    assert isinstance(error.value, PlanError)


def test_stages_that_are_split_or_merged() -> None:
    one, two = pipeline().plan(), pipeline(cut=True).plan()
    assert [stage.name for stage in two.stages] == ["B", "C.feed.1"]
    assert set(differences(one.to_json(), two)) >= {
        "stage A of (A, B) is gone",
        "stage B is new, and reads (B), which another stage has read",
    }
    assert set(differences(two.to_json(), one)) >= {"stage C.feed.1 of (A, C.feed.1) is gone"}


def test_repartitions_count_as_what_they_insert() -> None:
    def mended(count: int) -> Pipeline:
        p = Pipeline("app", on_mismatch="repartition")
        a, b = (p.source(name, load, key="id", partitions=one) for name, one in (("A", 8), ("B", count)))
        window = JoinWindow("at", "seen", "1 hour", "1 minute", "1 minute", "1 minute")
        a.join(b, "id", window=window, name="J").sink("O", write)
        return p

    before = mended(8).plan().to_json()
    assert list(differences(before, mended(4).plan())) == [
        "join J: its streams was ((A), (B)), and is ((A), (B.auto))",
        "stage A: its intermediates before state was (), and is (B.auto)",
    ]


def test_another_version() -> None:
    plan = pipeline().plan()
    found = {**json.loads(plan.to_json()), "version": 2}
    assert list(differences(json.dumps(found), plan)) == [
        "the checkpoint's plan has version 2, and this release reads 1"
    ]
    assert list(differences("{", plan)) == ["the checkpoint's plan is damaged"]


def test_state_whose_place_in_the_query_changes() -> None:
    def chain(*, read_twice: bool) -> Pipeline:
        p = Pipeline("chain")
        a, b, c = (p.source(name, load, key="id", partitions=2, order="at") for name in "ABC")
        window = JoinWindow("at", "seen", "1 hour", "1 minute", "1 minute", "1 minute")
        first = a.join(b, ["id"], window=window, name="J")
        first.join(c, ["id"], window=window, name="K").sink("O", write)
        if read_twice:
            first.sink("also", write)
        return p

    before = chain(read_twice=False).plan().to_json()
    [found] = differences(before, chain(read_twice=True).plan())
    assert found == "stage A: its order of joins by what its steps read was (J, K), and is (J, J, K)"


def test_streams_that_pass_many_steps() -> None:
    p = Pipeline("long")
    a, b = (p.source(name, load, key="id", partitions=2, order="at") for name in "AB")
    for _ in range(1_500):
        a = a.filter("x > 0")
    window = JoinWindow("at", "seen", "1 hour", "1 minute", "1 minute", "1 minute")
    a.join(b, ["id"], window=window, name="J").sink("O", write)
    plan = p.plan()
    assert list(differences(plan.to_json(), plan)) == []
