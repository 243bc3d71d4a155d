"""Keys, partitioners and orders: what must agree, what is noted, and what `repartition` mends."""

from __future__ import annotations

import itertools
import pickle

import pytest

from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import JoinWindow, Member, Partitioner, Pipeline, PlanError, Problem, Stream
from structable.spark_bridge.pipelines.graph import PartitionBy
from tests.pipelines.support.declared import STORE, WINDOW, load, write

KAFKA = Partitioner("murmur2", lambda columns, n: f"pmod(hash({', '.join(columns)}), {n})")


def same(frame: object) -> object:
    return frame


def joined(left: Stream, right: Stream, on: object = "id", how: str = "inner", **more: object) -> Stream:
    return left.join(right, on, window=WINDOW, how=how, **more)  # type: ignore[arg-type]


def problems(pipeline: Pipeline) -> list[str]:
    return [problem.text for problem in pipeline.plan(strict=False).problems]


@pytest.mark.parametrize(
    ("left", "right", "on", "agree"),
    [
        (["a"], ["a"], ["a"], True),
        (["a"], ["b"], {"a": "b"}, True),
        (["a"], ["b"], {"a": "a"}, False),
        (["a", "b"], ["a", "b"], ["b", "a"], True),
        (["a", "b"], ["b", "a"], ["a", "b"], False),
        (["a"], ["a"], ["a", "b"], True),
        (["a"], ["a", "b"], ["a", "b"], False),
        (["a", "c"], ["a", "c"], ["a"], False),
        (None, ["c"], ["a"], False),
        (None, ["a"], ["a"], True),
        (None, None, ["a"], True),
    ],
)
def test_keys_of_joined_streams(left: list[str] | None, right: list[str] | None, on: object, agree: bool) -> None:
    for table in (False, True):
        p = Pipeline("app")
        a = p.source("A", load, key=left, partitions=4, partitioner="structable", order="at")
        b = p.source("B", load, key=right, partitions=4, partitioner="structable", order="at")
        if table:
            t = p.table("T", TableRef(STORE, "t"))
            b.send_to(t)
            a.join_table(t, on, name="J").sink("O", write)  # type: ignore[arg-type]
        else:
            joined(a, b, on, name="J").sink("O", write)
        found = problems(p)
        assert len(found) == (not agree), found
        if found:
            assert found[0].startswith("join J: it compares (")
            members = "Members: A: 4 (input), B: 4 (input" + ("; feeds table T (send_to))" if table else ")")
            assert found[0].endswith(members)
        undeclared = [name for name, key in (("A", left), ("B", right)) if key is None]
        assert [note.split(":")[0] for note in p.plan(strict=False).notes] == [f"input {name}" for name in undeclared]


@pytest.mark.parametrize(
    ("how", "key", "agree"),
    [
        ("inner", "a", True),
        ("inner", "b", True),
        ("left", "a", True),
        ("left", "b", False),
        ("right", "b", True),
        ("right", "a", False),
        ("full", "a", True),
    ],
)
def test_the_key_behind_a_join(how: str, key: str, agree: bool) -> None:
    """An inner join makes the columns that it compares equal; behind a full one no key is known."""
    p = Pipeline("app")
    a, b = (p.source(name.upper(), load, key=name, partitions=4, partitioner="x") for name in "ab")
    c = p.source("C", load, key="c", partitions=4, partitioner="x")
    joined(joined(a, b, {"a": "b"}, how, name="J"), c, {key: "c"}, name="K").sink("O", write)
    assert [text.split(":")[0] for text in problems(p)] == ([] if agree else ["join K"])


def test_crossed_pairs_differ() -> None:
    p = Pipeline("app")
    a = p.source("A", load, key=["x", "y"], partitions=4, partitioner="x")
    b = p.source("B", load, key=["x", "y"], partitions=4, partitioner="x")
    joined(a, b, {"x": "y", "y": "x"}).sink("O", write)
    (text,) = problems(p)
    assert "A by (x, y), B by (x, y)" in text


def test_rekeyed_map_is_a_note() -> None:
    p = Pipeline("app")
    a = p.source("A", load, key="z", partitions=4, partitioner="x").map(same, rekeys=True, name="M")  # type: ignore[arg-type]
    b = p.source("B", load, key="id", partitions=4, partitioner="x")
    joined(a, b).sink("O", write)
    assert p.plan().notes == ("map M: the key behind it is not known, and taken to fit the joins of the stream",)


def test_partitioners_of_a_group() -> None:
    p = Pipeline("app")
    a = p.source("A", load, key="id", partitions=4, partitioner=KAFKA)
    b = p.source("B", load, key="id").partition_by("id", name="I")
    joined(a, b).sink("O", write)
    plan = p.plan()
    (by,) = [step for step in plan.stages[0].front if isinstance(step.node, PartitionBy)]
    assert (by.partitioner, by.partitions) == ("murmur2", 4)
    assert plan.partitioners["murmur2"].expression(["id"], 4) == "pmod(hash(id), 4)"

    p = Pipeline("app")
    a = p.source("A", load, key="id", partitions=4, partitioner="murmur2")
    joined(a, p.source("B", load, key="id").partition_by("id", name="I")).sink("O", write)
    (text,) = problems(p)
    assert "different rules, murmur2, structable" in text
    assert "Members: A: 4 (input), I: 4 (intermediate)" in text

    p = Pipeline("app")
    p.source("A", load, partitions=4).partition_by("id", partitioner="murmur2", name="I").sink("O", write)
    assert problems(p) == [
        "intermediate I: the partitioner 'murmur2' is not registered; give "
        "partitioner=Partitioner('murmur2', expression)"
    ]


def sent(*, order: str | None = None, send: dict[str, object] | None = None, shuffle: str = "by") -> Pipeline:
    p = Pipeline("app")
    stream = p.source("A", load, key="id", partitions=4, order=order)
    if shuffle == "by":
        stream = stream.partition_by("id", name="I")
    elif shuffle == "merge":
        stream = stream.merge(p.source("B", load, order="at"), name="I")
    elif shuffle == "join":
        stream = joined(stream, p.source("B", load, key="id", partitions=4, order="at"), name="I")
    stream.filter("x > 0").send_to(p.table("T", TableRef(STORE, "t")), name="W", **(send or {}))  # type: ignore[arg-type]
    return p


@pytest.mark.parametrize("shuffle", ["by", "merge", "join"])
def test_a_send_needs_an_order_behind_a_shuffle(shuffle: str) -> None:
    assert problems(sent(shuffle=shuffle)) == [
        "write W: I loses the order of its rows, and A has no order=; declare the same order= of all its sources, or "
        "give the write order_by= or unordered=True"
    ]
    (stage,) = sent(shuffle=shuffle, send={"unordered": True}).plan().stages
    assert stage.steps[-1].order is None
    (stage,) = sent(shuffle=shuffle, send={"order_by": ["x", "y"]}).plan().stages
    assert stage.steps[-1].order == ("x", "y")
    (stage,) = sent(shuffle=shuffle, order="at").plan().stages
    assert stage.steps[-1].order == ("at",)


def test_orders() -> None:
    (stage,) = sent(shuffle="").plan().stages
    assert stage.steps[-1].order is None
    assert "its inputs have different order=" in problems(sent(order="other", shuffle="merge"))[0]
    (stage,) = sent(order="other", shuffle="join").plan().stages
    assert stage.steps[-1].order == ("other", "at")
    p = Pipeline("app")
    p.changes("C", TableRef(STORE, "c")).partition_by("id", partitions=2).send_to(p.table("T", TableRef(STORE, "t")))
    assert p.plan().stages[0].steps[-1].order == ("_commit_version",)


def test_an_unordered_side_input() -> None:
    p = Pipeline("app")
    t = p.table("T", TableRef(STORE, "t"), side_inputs=[p.source("A", load, partitions=2).partition_by("id", name="I")])
    p.source("B", load, partitions=2).join_table(t, "id", name="L").sink("O", write)
    assert [text.split(":")[0] for text in problems(p)] == ["write T.side_input.1"]


def test_faults_of_the_graph_are_problems() -> None:
    p = Pipeline("app")
    with pytest.raises(PlanError, match="nothing is declared"):
        p.plan()
    a = p.source("A", load, partitions=4)
    a.partition_by("id", name="I").map(same)  # type: ignore[arg-type]
    p.table("T", TableRef(STORE, "t"))
    p.foreign_key_join(
        "F", p.table("U", TableRef(STORE, "u")), p.table("V", TableRef(STORE, "v")), ["id"], result=TableRef(STORE, "f")
    )
    found = p.plan(strict=False)
    assert [(problem.nodes, problem.text.partition(";")[0].partition(":")[0]) for problem in found.problems] == [
        (("F",), "foreign-key join F"),
        (("I",), "intermediate I reaches no send, side input or sink"),
        (("A",), "source A reaches no send, side input or sink"),
        (("T",), "table T is neither fed nor joined"),
    ]
    assert found.stages == ()


@pytest.mark.parametrize("names", list(itertools.permutations("IKM")))
def test_problems_do_not_depend_on_the_order_of_declaration(names: tuple[str, ...]) -> None:
    """The streams of a side come in the order of their names, and the first key that fits is followed."""
    p = Pipeline("app")
    sources = {name: p.source(f"S{name}", load, key="id", partitions=4) for name in names}
    keys = {"I": "k", "K": "id", "M": ["id", "other"]}
    feeders = {name: sources[name].partition_by(keys[name], name=name) for name in names}
    t = p.table("T", TableRef(STORE, "t"), side_inputs=list(feeders.values()))
    sources["K"].merge(*(feeders[name] for name in names), name="all").join_table(t, ["id", "k"], name="L").send_to(
        p.table("U", TableRef(STORE, "u")), name="W"
    )
    *_, written, keyed = problems(p)
    right = "I by (k), K by (id), M by (id, other)"
    assert f"columns: {right}, SK by (id), {right}; partition all by (id), with" in keyed
    assert "all loses the order of its rows, and SI, SK, SM have no order=; declare" in written


def test_errors_are_picklable() -> None:
    with pytest.raises(PlanError) as error:
        sent().plan()
    copy = pickle.loads(pickle.dumps(error.value))
    assert str(copy) == str(error.value)
    assert copy.problems == error.value.problems
    assert isinstance(copy.problems[0], Problem)
    assert isinstance(error.value, ValueError)
    member = Member("A", None, ("input", "side input of T"))
    assert member == "A: unknown (input; side input of T)"
    copied = pickle.loads(pickle.dumps(member))
    assert (copied, copied.name, copied.partitions, copied.reasons) == (member, "A", None, member.reasons)


def repartitioned(left: dict[str, object], right: dict[str, object], **more: object) -> Pipeline:
    p = Pipeline("app", on_mismatch="repartition")
    a, b = (p.source(name, load, **facts) for name, facts in (("A", left), ("B", right)))  # type: ignore[arg-type]
    joined(a, b, **more).sink("O", write)  # type: ignore[arg-type]
    return p


def test_repartition_follows_the_largest_count() -> None:
    plan = repartitioned({"key": "id", "partitions": 4}, {"key": "id", "partitions": 16}).plan()
    assert plan.partitions == {"A": 4, "A.auto": 16, "B": 16}
    assert [str(member) for group in plan.groups for member in group.members] == [
        "A.auto: 16 (intermediate, given)",
        "B: 16 (input)",
    ]
    assert plan.notes[0] == "input A: A.auto was inserted, 16 partitions by (id), because on_mismatch is repartition"
    (stage,) = plan.stages
    assert [step.name for step in stage.front] == ["A", "B", "A.auto", "A.join.1"]


def test_repartition_mends_undeclared_counts_keys_and_partitioners() -> None:
    plan = repartitioned({"key": "id"}, {"key": "id", "partitions": 16}).plan()
    assert plan.partitions == {"A": None, "A.auto": 16, "B": 16}
    plan = repartitioned({"key": "z", "partitions": 16}, {"key": "y", "partitions": 4}, on={"x": "y"}).plan()
    assert plan.partitions == {"A": 16, "A.auto": 16, "B": 4, "B.auto": 16}
    assert "A.auto was inserted, 16 partitions by (x)" in plan.notes[0]
    facts = {"key": "id", "partitions": 4}
    plan = repartitioned({**facts, "partitioner": "murmur2"}, {**facts, "partitioner": "other"}).plan()
    assert plan.partitions == {"A": 4, "A.auto": 4, "B": 4, "B.auto": 4}
    plan = repartitioned({**facts, "partitioner": KAFKA}, {"key": "z", "partitions": 2, "partitioner": "other"}).plan()
    assert plan.partitions == {"A": 4, "B": 2, "B.auto": 4}
    # What nothing needs is not inserted, and an intermediate that was given is not mended.
    assert repartitioned(facts, facts).plan().partitions == {"A": 4, "B": 4}
    p = Pipeline("app", on_mismatch="repartition")
    a = p.source("A", load, key="id", partitions=4)
    joined(a, p.source("B", load).partition_by("id", partitions=8, name="I")).merge(
        joined(a, p.source("C", load).partition_by("id", partitions=2, name="K"))
    ).sink("O", write)
    (text,) = problems(p)
    assert "2 and 8 partitions" in text


def test_repartition_leaves_streams_that_reach_no_join() -> None:
    p = Pipeline("app", on_mismatch="repartition")
    a = p.source("A", load, key="id", partitions=4)
    b = p.source("B", load, key="id", partitions=8)
    joined(a, b, name="J").sink("O", write)
    a.send_to(p.table("T", TableRef(STORE, "t")), name="W")  # in the order of A, which a shuffle would lose
    a.partition_by("x", name="I").sink("P", write)
    inputs = {step.name: step.inputs for stage in p.plan().stages for step in (*stage.front, *stage.steps)}
    assert (inputs["J"], inputs["W"], inputs["I"]) == (("A.auto", "B"), ("A",), ("A",))


def test_repartition_mends_all_inputs_of_a_merge() -> None:
    for mismatch in ("error", "repartition"):
        p = Pipeline("app", on_mismatch=mismatch)
        a, b, c = (p.source(name, load, key="z", partitions=4) for name in "ABC")
        merged = a.merge(b, name="M")
        joined(merged, c.partition_by("id", name="I"), name="J").sink("O", write)
        if mismatch == "error":
            (text,) = problems(p)
            assert "A by (z), B by (z), I by (id)" in text
        else:
            assert p.plan().partitions == {"A": 4, "A.auto": 4, "B": 4, "B.auto": 4, "C": 4, "I": 4}


def test_the_key_of_a_merge_is_the_known_one() -> None:
    """Whatever the order in which its streams are merged."""
    for first, second in (("A", "B"), ("B", "A")):
        p = Pipeline("app")
        streams = {"A": p.source("A", load, key="id", partitions=4), "B": p.source("B", load, partitions=4)}
        left = joined(streams[first].merge(streams[second]), p.source("C", load, key="id", partitions=4), name="J")
        joined(left, p.source("D", load, key="y", partitions=4), {"z": "y"}, name="K").sink("O", write)
        assert [text.split(":")[0] for text in problems(p)] == ["join K"]


def test_two_declarations_of_one_table_are_noted() -> None:
    p = Pipeline("app")
    a = p.source("A", load, key="id", partitions=4, partitioner="x")
    a.send_to(p.table("T", TableRef(STORE, "t")))
    a.join_table(p.table("U", TableRef(STORE, "t")), "id").sink("O", write)
    (note,) = p.plan().notes
    assert note.startswith("tables T, U are one table of a store")


def test_repartition_behind_the_feeder_of_a_table() -> None:
    p = Pipeline("app", on_mismatch="repartition")
    t = p.table("T", TableRef(STORE, "t"))
    p.source("A", load, key="z", partitions=2, order="at").send_to(t)
    p.source("B", load, key="id", partitions=8).join_table(t, {"id": "k"}, name="L").sink("O", write)
    plan = p.plan()
    assert plan.partitions == {"A": 2, "A.auto": 8, "B": 8}
    assert "by (k)" in plan.notes[0]


def test_windows_are_kept_in_microseconds() -> None:
    window = JoinWindow("a", "b", "1 hour 30 minutes", "interval 2 seconds", "5 milliseconds", "1 week")
    assert (window.before, window.after, window.left_lateness, window.right_lateness) == (
        5_400_000_000,
        2_000_000,
        5_000,
        604_800_000_000,
    )
