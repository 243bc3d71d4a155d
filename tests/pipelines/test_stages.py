"""Stages and steps: what is one query, what is cut, and in which order a micro-batch writes and reads."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import Pipeline, Plan, PlanError, Stage, StepKind
from structable.spark_bridge.pipelines.graph import Intermediate, StreamJoin, TableFeed, TableJoin
from tests.pipelines.support.declared import STORE, WINDOW, declare, lines, load, write
from tests.pipelines.support.random_cases import agreeing_case, random_case


def plan_of(text: str, **settings: int | str | None) -> Plan:
    return declare(lines(text.replace("|", "\n")), **settings).plan()


def names(stage: Stage) -> list[str]:
    return [step.name for step in stage.steps]


def test_one_stage_for_what_tables_connect() -> None:
    plan = plan_of("A source 8 | B source 8 | T table | L lookup B T | W send A T | O sink L | C source 3 | P sink C")
    first, second = plan.stages
    assert (first.name, first.sources, first.outputs) == ("A", ("A", "B"), ("A", "B"))
    assert names(first) == ["W", "L", "O"]
    assert first.cached
    assert first.partitions is None
    assert [step.kind for step in first.front] == [StepKind.SOURCE, StepKind.SOURCE]
    assert (second.name, names(second), second.cached) == ("C", ["P"], False)


def test_a_front_that_is_read_twice_is_cached() -> None:
    for twice in (False, True):
        pipeline = Pipeline("app")
        stream = pipeline.source("A", load).filter("x > 0")
        (stream.merge(pipeline.source("B", load)) if twice else stream).sink("O", write)
        (stage,) = pipeline.plan().stages
        assert (stage.cached, len(stage.outputs)) == (twice, 1 + twice)


def test_job_names_of_steps() -> None:
    (stage,) = plan_of("A source 8 | T table | W send A T").stages
    assert stage.steps[0].job("app", "1-2-3") == "app/1-2-3/W"
    assert stage.steps[0].order == ("at",)
    assert stage.steps[0].table == "T"


def test_the_front_leads_to_state() -> None:
    plan = plan_of("A source 8 | B source 2 | I by B | J join A I | T table | W send J T | V send A T")
    (stage,) = plan.stages
    assert [step.name for step in stage.front] == ["A", "B", "I", "J"]
    assert stage.front[-1].inputs == ("A", "I")
    assert stage.front[-1].partitions == stage.partitions == 8
    assert stage.outputs == ("A", "J")
    assert names(stage) == ["W", "V"]


def test_a_send_before_state_is_a_step_that_the_front_passes() -> None:
    (stage,) = plan_of("A source 8 | B source 8 | T table | W send A T | J join W B | O sink J").stages
    assert [(step.name, step.inputs) for step in stage.front] == [("A", ()), ("B", ()), ("J", ("A", "B"))]
    assert [(step.name, step.inputs) for step in stage.steps] == [("W", ("A",)), ("O", ("J",))]


def test_a_stream_join_behind_a_table_is_a_stage_of_its_own() -> None:
    plan = plan_of("A source 8 | B source 8 | T table | L lookup A T | I by L | J join I B | O sink J")
    first, second = plan.stages
    assert names(first) == ["L", "L.intermediate.1"]
    written = first.steps[-1].node
    assert isinstance(written, Intermediate)
    assert written.ref == TableRef(STORE, "app_L")
    assert second.name == "L.feed.1"
    assert second.sources == ("B", "L.feed.1")
    feed = next(step.node for step in second.front if step.name == "L.feed.1")
    assert isinstance(feed, TableFeed)
    assert feed.between
    assert feed.ref == written.ref
    assert second.before == ("A",)
    assert second.front[-1].inputs == ("L.feed.1", "B")


def test_only_the_stream_behind_the_table_goes_between_stages() -> None:
    text = "A source 8 | B source 8 | C source 8 | T table | L lookup C T | J join A B | K join J L | O sink K"
    plan = plan_of(text)
    assert [names(stage) for stage in plan.stages] == [["L", "L.intermediate.1"], ["O"]]
    assert plan.stages[1].sources == ("A", "B", "L.feed.1")
    # A stream that the first stage needs, too, is joined there.
    plan = plan_of(text + " | P sink J", intermediate_store=STORE)
    assert [names(stage) for stage in plan.stages] == [["L", "L.intermediate.1"], ["P", "J.intermediate.1"], ["O"]]


def test_the_store_of_streams_between_stages() -> None:
    text = "A source 8 | B source 8 | T table | L lookup A T | J join L B | O sink J"
    plan = plan_of(text, intermediate_store="postgresql://db/between")
    node = plan.stages[0].steps[-1].node
    assert isinstance(node, Intermediate)
    assert node.ref == TableRef("postgresql://db/between", "app_L")
    parallel = "A source 8 | B source 16 | J join A A | K join B B | M merge J K | O sink M"
    with pytest.raises(PlanError, match="stream J goes from one stage to another, and no table upstream has a store"):
        plan_of(parallel)
    named = "A source 8 | T table | a.b lookup A T | a_b lookup A T | J join a.b a_b | O sink J"
    with pytest.raises(
        PlanError, match="stream a_b goes from one stage to another, and another such stream has its table"
    ):
        plan_of(named)
    with pytest.raises(PlanError, match="of 50 characters, and 48 are allowed; give it name="):
        plan_of(parallel.replace("J", "j" * 46), intermediate_store=STORE)
    found = plan_of(parallel, intermediate_store=STORE)
    assert {stage.name: stage.partitions for stage in found.stages} == {"A": 8, "J.feed.1": 16}


def test_two_counts_are_two_stages() -> None:
    plan = plan_of("A source 8 | J join A A | I by J 16 | K join I I | O sink K", intermediate_store=STORE)
    assert [(stage.name, stage.partitions) for stage in plan.stages] == [("A", 8), ("J.feed.1", 16)]
    # Without a stream between them, each reads the source for itself.
    plan = plan_of("A source 8 | I by A 16 | J join A A | K join I I | O sink J | P sink K | Q sink A")
    assert {(stage.name, stage.partitions, tuple(names(stage))) for stage in plan.stages} == {
        ("A", 8, ("O",)),
        ("A.1", 16, ("P", "Q")),
    }


def test_two_counts_that_a_table_connects() -> None:
    plan = plan_of(
        "A source 8 | B source 16 | J join A A | K join B B | T apart | W send J T | L lookup K T"
        " | O sink L | P sink A",
        intermediate_store=STORE,
    )
    assert {(stage.partitions, tuple(names(stage))) for stage in plan.stages} == {
        (8, ("P", "J.intermediate.1")),
        (16, ("W", "L", "O")),
    }


def test_two_counts_that_a_table_connects_ahead_of_a_join() -> None:
    plan = plan_of(
        "A source 8 | B source 8 | C source 16 | T apart | W send A T | J join W B | K join C C | L lookup K T"
        " | O sink J | P sink L"
    )
    assert {(stage.name, stage.sources, stage.partitions, tuple(names(stage))) for stage in plan.stages} == {
        ("A", ("A", "C"), 16, ("W", "L", "P", "W.intermediate.1")),
        ("W.feed.1", ("B", "W.feed.1"), 8, ("J.intermediate.1",)),
        ("J.feed.1", ("J.feed.1",), None, ("O",)),
    }


def test_side_inputs_have_stages_that_are_read_first() -> None:
    plan = plan_of("A source 8 | B source 8 | T table A | L lookup B T | O sink L | P sink A")
    side, main, other = plan.stages
    assert (other.sources, other.before) == (("A",), ())
    assert (side.name, side.side_input, names(side)) == ("T.side_input.1", True, ["T.side_input.1"])
    assert side.sources == ("A",)
    assert side.steps[0].order == ("at",)
    assert main.before == ("T.side_input.1",)
    assert main.sources == ("B",)


def test_joins_behind_tables_move_to_the_stage_that_writes_them() -> None:
    plan = plan_of(
        "A source 8 | B source 8 | T table | L lookup A T | J join L B | U table | W send J U | C source 8"
        " | K lookup C U | O sink K"
    )
    assert [names(stage) for stage in plan.stages] == [["L", "L.intermediate.1"], ["W", "K", "O"]]
    assert plan.stages[1].sources == ("B", "C", "L.feed.1")


def test_a_table_that_two_stages_must_share_is_noted() -> None:
    plan = plan_of("A source 8 | B source 8 | T table | L lookup A T | J join L B | W send J T | O sink J")
    assert [names(stage) for stage in plan.stages] == [["L", "L.intermediate.1"], ["W", "O"]]
    assert "join L reads T as far as other stages have written it: L.feed.1" in plan.notes


def test_writes_come_before_joins_unless_they_depend_on_them() -> None:
    plan = plan_of("A source 8 | B source 8 | T table | L lookup A T | O sink L | W send L T | V send B T")
    (stage,) = plan.stages
    assert names(stage) == ["V", "L", "O", "W"]
    assert plan.notes == ("join L reads T as of the micro-batch before: W depends on the join",)
    assert {step.name for step in stage.steps if step.persist} == {"L"}


def test_circles_of_tables_keep_the_first_orders() -> None:
    plan = plan_of(
        "A source 8 | B source 8 | T table | U table | L lookup A T | K lookup B U | W send L U | V send K T"
    )
    # K's write comes before the join L, which was declared first; then W cannot come before K.
    assert names(plan.stages[0]) == ["K", "V", "L", "W"]
    assert plan.notes == ("join K reads U as of the micro-batch before: W depends on the join",)


def test_foreign_key_join_is_a_step_after_its_writes() -> None:
    pipeline = Pipeline("app")
    orders, products = (pipeline.source(name, load, partitions=4, key="id", partitioner="p") for name in ("O", "P"))
    left, right = (pipeline.table(name, TableRef(STORE, name)) for name in ("orders", "products"))
    joined = pipeline.foreign_key_join(
        "J", left, right, {"product": "id"}, how="left", result=TableRef(STORE, "joined")
    )
    chained = pipeline.foreign_key_join("K", joined, right, ["product"], how="inner", result=TableRef(STORE, "chained"))
    orders.join_table(chained, "id", name="L").sink("out", write)
    orders.send_to(left, name="W")
    products.send_to(right, name="V")
    plan = pipeline.plan()
    (stage,) = plan.stages
    assert names(stage) == ["W", "V", "J", "K", "L", "out"]
    assert plan.groups == ()
    assert stage.steps[2].inputs == ()
    assert stage.steps[2].table == "J"


def test_foreign_key_join_is_in_the_stage_that_writes_its_tables() -> None:
    """Also where a feed between stages lies on a circle of tables, which keeps the stages apart."""
    pipeline = Pipeline("app", intermediate_store=STORE)
    first, second = (pipeline.source(name, load, key="id", partitions=4, order="at") for name in "AB")
    left, right, table = (pipeline.table(name, TableRef(STORE, name), copartition=False) for name in ("l", "r", "t"))
    both = first.join_table(table, "id", name="L").join(second, "id", window=WINDOW, name="J")
    both.send_to(left, name="W").send_to(table, name="V")
    pipeline.foreign_key_join("F", left, right, {"product": "id"}, result=TableRef(STORE, "f"))
    before, behind = pipeline.plan().stages
    assert (names(before), names(behind)) == (["L", "L.intermediate.1"], ["W", "V", "F"])


def test_a_side_input_reads_the_result_of_a_foreign_key_join() -> None:
    pipeline = Pipeline("app")
    source = pipeline.source("A", load, key="id", partitions=4, order="at")
    left, right = (pipeline.table(name, TableRef(STORE, name)) for name in ("l", "r"))
    source.send_to(left, name="W")
    result = pipeline.foreign_key_join("F", left, right, {"product": "id"}, result=TableRef(STORE, "f"))
    pipeline.table("t", TableRef(STORE, "t"), side_inputs=[source.join_table(result, "id", name="L")])
    assert [names(stage) for stage in pipeline.plan().stages] == [["L", "t.side_input.1"], ["W", "F"]]


def test_a_stage_joins_the_result_that_another_stage_keeps() -> None:
    pipeline = Pipeline("app", intermediate_store=STORE)
    first, second = (pipeline.source(name, load, key="id", partitions=4, order="at") for name in "AB")
    left, right = (pipeline.table(name, TableRef(STORE, name)) for name in ("l", "r"))
    result = pipeline.foreign_key_join("F", left, right, {"product": "id"}, result=TableRef(STORE, "f"))
    first.send_to(left, name="W")
    known = first.join_table(result, "id", name="L")
    known.join(second, "id", window=WINDOW, name="J").send_to(left, name="V")
    before, behind = pipeline.plan().stages
    assert (names(before), names(behind)) == (["W", "L", "L.intermediate.1"], ["V", "F"])


def test_foreign_key_join_needs_a_send() -> None:
    pipeline = Pipeline("app")
    left, right = (pipeline.table(name, TableRef(STORE, name)) for name in ("orders", "products"))
    pipeline.foreign_key_join("J", left, right, {"product": "id"}, how="left", result=TableRef(STORE, "joined"))
    with pytest.raises(PlanError, match="foreign-key join J: no stream is sent to its left or right table here"):
        pipeline.plan()


def test_only_one_join_writes_a_result() -> None:
    pipeline = Pipeline("app")
    left, right = (pipeline.table(name, TableRef(STORE, name)) for name in ("orders", "products"))
    for name in "JK":
        pipeline.foreign_key_join(name, left, right, {"product": "id"}, result=TableRef(STORE, "joined"))
    orders = pipeline.source("O", load, order="at")
    orders.send_to(left, name="W")
    orders.send_to(pipeline.table("alias", TableRef(STORE, "joined")), name="V")
    found = pipeline.plan(strict=False).problems
    assert [(problem.nodes, problem.text.partition(";")[0].partition(":")[0]) for problem in found] == [
        (("K",), "foreign-key join K"),
        (("alias",), "table alias is the result of foreign-key join J, and only the join writes to it"),
    ]


def test_a_feed_comes_after_the_stage_that_writes_its_table() -> None:
    pipeline = Pipeline("app")
    first, second = TableRef(STORE, "first"), TableRef(STORE, "second")
    feed = pipeline.changes("feed", first, partitions=2)
    feed.send_to(pipeline.table("second", second))
    pipeline.source("A", load, partitions=2).send_to(pipeline.table("first", first))
    assert [(stage.name, stage.before) for stage in pipeline.plan().stages] == [("A", ()), ("feed", ("A",))]
    # A circle of feeds leaves both free.
    pipeline.changes("back", second, partitions=2).send_to(pipeline.table("again", first), name="W")
    assert {stage.before for stage in pipeline.plan().stages if stage.name in ("feed", "back")} == {(), ("A",)}


@pytest.mark.parametrize("seed", range(150))
def test_random_graphs_can_be_run(seed: int) -> None:
    chance = random.Random(seed)
    if seed % 3:
        case = agreeing_case(chance)
    else:
        case = [[*line[:2], "8"] if line[1] == "source" else line for line in random_case(chance)]
    plan = declare(case, intermediate_store=STORE).plan(strict=False)
    if plan.problems:
        expected = ("order", "partitions", "neither fed nor joined", "more than one query")
        assert not seed % 3
        assert all(any(part in problem.text for part in expected) for problem in plan.problems), plan.problems
        return
    writes: Counter[str] = Counter()
    places = {stage.name: place for place, stage in enumerate(plan.stages)}
    assert len(places) == len(plan.stages)
    for stage in plan.stages:
        writes.update(step.name for step in stage.steps if step.writes)
        made: set[str] = set()
        for step in stage.front:
            assert not isinstance(step.node, TableJoin)
            assert made >= set(step.inputs)
            made.add(step.name)
        assert {step.partitions for step in stage.front if isinstance(step.node, StreamJoin)} <= {stage.partitions}
        made = set(stage.outputs)
        for step in stage.steps:
            assert not isinstance(step.node, StreamJoin)
            assert made >= set(step.inputs), (stage, step)
            made.add(step.name)
        assert all(places[name] < places[stage.name] for name in stage.before)
    declared = {line[0] for line in case if line[1] in ("send", "update", "sink")}
    assert {name: count for name, count in writes.items() if name in declared} == dict.fromkeys(declared, 1)
