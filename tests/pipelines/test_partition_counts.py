"""The counts of streams: the design's cases in every order of declaration, and random graphs against all solutions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping

import pytest

from structable.spark_bridge.pipelines import Plan, PlanError
from tests.pipelines.support.declared import declare, inputs_of, lines, orders
from tests.pipelines.support.random_cases import random_case

# What each stream must have; or, after `=`, parts of the problem's text.
CASES: dict[str, tuple[str, dict[str, int | None] | list[str]]] = {
    "joined inputs that agree": ("S1 source 16 | S2 source 16 | J join S1 S2 | O sink J", {"S1": 16, "S2": 16}),
    "joined inputs that differ": (
        "S1 source 16 | S2 source 8 | J join S1 S2 | O sink J",
        ["join J: the streams have 8 and 16 partitions", "S1: 16 (input), S2: 8 (input)"],
    ),
    "an intermediate takes the count of the input that it meets": (
        "S1 source 16 | S2 source 8 | I by S2 | J join S1 I | O sink J",
        {"S1": 16, "S2": 8, "I": 16},
    ),
    "an intermediate between two inputs that differ": (
        "S1 source 16 | S2 source 8 | S4 source 32 | I by S2 | J join S1 I | K join I S4 | M merge J K"
        " | O sink J | P sink K",
        ["joins J, K", "16 and 32", "I: unknown (intermediate)", "S1: 16 (input)", "S4: 32 (input)"],
    ),
    "an intermediate without a join takes the largest count": (
        "S1 source 8 | S2 source 64 | I by S1 | O sink I | P sink S2 32",
        {"S1": 8, "S2": 64, "I": 64},
    ),
    "outputs count in it": ("S1 source 8 | I by S1 | O sink I 128", {"S1": 8, "I": 128}),
    "at most the cap": ("S1 source 8 | I by S1 | O sink I 1000", {"S1": 8, "I": 256}),
    "known counts are not capped": ("S1 source 300 | I by S1 | J join I S1 | O sink J", {"S1": 300, "I": 300}),
    "given counts hold": ("S1 source 8 | I by S1 4 | O sink I", {"S1": 8, "I": 4}),
    "given counts spread": ("S1 source 8 | A by S1 4 | B by S1 | J join A B | O sink J", {"S1": 8, "A": 4, "B": 4}),
    # Streams and tables: the table of four cases.
    "1: input feeds, input joins": (
        "S1 source 8 | S2 source 8 | T table | W send S1 T | L lookup S2 T | O sink L",
        {"S1": 8, "S2": 8},
    ),
    "1: input feeds, input joins, and they differ": (
        "S1 source 8 | S2 source 16 | T table | W send S1 T | L lookup S2 T | O sink L",
        ["join L", "8 and 16", "S1: 8 (input; feeds table T (send_to))", "S2: 16 (input)"],
    ),
    "2: input feeds, intermediate joins": (
        "S1 source 8 | S2 source 16 | I by S2 | T table | W send S1 T | L lookup I T | O sink L",
        {"S1": 8, "S2": 16, "I": 8},
    ),
    "3: intermediate feeds, input joins": (
        "S1 source 8 | S2 source 16 | I by S1 | T table | W send I T | L lookup S2 T | O sink L",
        {"S1": 8, "S2": 16, "I": 16},
    ),
    "4: intermediates, joined with a third input": (
        "S1 source 4 | S2 source 8 | S3 source 32 | A by S1 | B by S2 | T table | W send A T | L lookup B T"
        " | J join L S3 | O sink J",
        {"S1": 4, "S2": 8, "S3": 32, "A": 32, "B": 32},
    ),
    "send_update_to is an edge, too": (
        "S1 source 8 | S2 source 16 | T table | W update S1 T | L lookup S2 T | O sink L",
        ["8 and 16", "S1: 8 (input; feeds table T (send_update_to))"],
    ),
    "side input 1": ("S1 source 8 | S2 source 8 | T table S1 | L lookup S2 T | O sink L", {"S1": 8, "S2": 8}),
    "side input 1, differing": (
        "S1 source 8 | S2 source 16 | T table S1 | L lookup S2 T | O sink L",
        ["8 and 16", "S1: 8 (input; side input of T)"],
    ),
    "side input 2": (
        "S1 source 8 | S2 source 16 | I by S2 | T table S1 | L lookup I T | O sink L",
        {"S1": 8, "S2": 16, "I": 8},
    ),
    "two joins with one table": (
        "S1 source 8 | S2 source 16 | S3 source 8 | I by S2 | T table | W send I T | L lookup S1 T | K lookup S3 T"
        " | O sink L | P sink K",
        {"S1": 8, "S2": 16, "S3": 8, "I": 8},
    ),
    "two joins with one table, differing": (
        "S1 source 8 | S2 source 16 | S3 source 4 | I by S2 | T table | W send I T | L lookup S1 T | K lookup S3 T"
        " | O sink L | P sink K",
        ["joins K, L", "4 and 8", "I: unknown (intermediate; feeds table T (send_to))"],
    ),
    "a broadcast table is not constrained": (
        "S1 source 8 | S2 source 16 | T broadcast | W send S1 T | L lookup S2 T | O sink L",
        {"S1": 8, "S2": 16},
    ),
    "copartition=False": (
        "S1 source 8 | S2 source 16 | T apart | W send S1 T | L lookup S2 T | O sink L",
        {"S1": 8, "S2": 16},
    ),
    "a table that is not fed": (
        "S1 source 8 | S2 source 16 | T table | L lookup S1 T | W sink L | O sink S2",
        {"S1": 8, "S2": 16},
    ),
    "a circle": (
        "S1 source 8 | T table | L lookup S1 T | I by L | W send I T | O sink L",
        {"S1": 8, "I": 8},
    ),
    "an input without a count": (
        "S1 source 8 | S2 source | J join S1 S2 | O sink J",
        ["input S2 is not known; declare its partitions=", "S2: unknown (input)"],
    ),
    "an input without a count, without a join": ("S1 source | O sink S1", {"S1": None}),
    "an intermediate without any count": (
        "S1 source | I by S1 | O sink I",
        ["intermediate I has no partition count", "default_partitions"],
    ),
    "side inputs do not count in the largest": (
        "S1 source 64 | S2 source 8 | T table S1 | I by S2 | O sink I | L lookup S1 T",
        {"S1": 64, "S2": 8, "I": 8},
    ),
}


def planned(case: list[list[str]], **settings: int | str | None) -> Plan:
    return declare(case, **settings).plan(strict=False)


@pytest.mark.parametrize("name", CASES)
def test_case_in_every_order_of_declaration(name: str) -> None:
    text, wanted = CASES[name]
    case = lines(text.replace("|", "\n"))
    seen = set()
    for order in orders(case):
        plan = planned(order)
        if isinstance(wanted, dict):
            assert (dict(plan.partitions), plan.problems) == (wanted, ()), order
            seen.add(tuple(map(str, plan.groups)))
        else:
            (problem,) = [problem for problem in plan.problems if wanted[0] in problem.text]
            assert all(part in problem.text for part in wanted)
            seen.add(tuple(problem.text for problem in plan.problems))
    assert len(seen) == 1


def test_defaults() -> None:
    case = lines("S1 source 8 \n I by S1 \n O sink I 1000")
    assert planned(case, default_partitions=500).partitions["I"] == 500
    assert planned(case, partition_cap=None).partitions["I"] == 1000
    assert planned(case, partition_cap=10).partitions["I"] == 10
    joined = lines("S1 source 8 \n I by S1 \n J join S1 I \n O sink J")
    assert planned(joined, default_partitions=500).partitions["I"] == 8


def groups_by_hand(case: list[list[str]]) -> Iterator[set[str]]:
    """Yield the members of each join, found by following its own inputs upward."""
    by_name = {line[0]: line for line in case}
    constrained = {line[0] for line in case if line[1] == "table"}
    feeders: dict[str, list[str]] = {table: [] for table in constrained}
    for name, verb, *words in case:
        if verb in ("send", "update") and words[1] in constrained:
            feeders[words[1]].append(words[0])
        if verb == "table":
            feeders[name] += words
    for _, verb, *words in case:
        if verb == "join":
            waiting = words[:2]
        elif verb == "lookup" and feeders.get(words[1]):
            waiting = [words[0], *feeders[words[1]]]
        else:
            continue
        members: set[str] = set()
        seen: set[str] = set()
        while waiting:
            stream = waiting.pop()
            if stream in seen:
                continue
            seen.add(stream)
            if by_name[stream][1] in ("source", "by"):
                members.add(stream)
            else:
                waiting += [
                    above
                    for above in inputs_of(by_name[stream])
                    if by_name[above][1] not in ("table", "apart", "broadcast")
                ]
        yield members


def all_solutions(case: list[list[str]]) -> tuple[list[Mapping[str, int | None]], bool]:
    """Return every assignment of counts under which all joins agree, and whether each of their inputs has a count."""
    known = {line[0]: int(line[-1]) for line in case if line[1] in ("source", "by") and line[-1].isdigit()}
    inputs = {line[0] for line in case if line[1] == "source"}
    free = sorted(line[0] for line in case if line[1] == "by" and line[0] not in known)
    groups = list(groups_by_hand(case))
    declared = all(name in known for members in groups for name in members & inputs)
    choices = (4, 8, 1001, 1002) if len(free) < 6 else (4, 8, 1001)
    solutions: list[Mapping[str, int | None]] = []
    for counts in itertools.product(choices, repeat=len(free)):
        assigned = {**known, **dict(zip(free, counts, strict=True))}
        if all(len({assigned.get(name) for name in members}) == 1 for members in groups):
            solutions.append(assigned)
    return solutions, declared


@pytest.mark.parametrize("seed", range(100))
def test_random_graph_has_the_counts_of_all_solutions(seed: int) -> None:
    case = random_case(random.Random(seed))
    plan = planned(case, default_partitions=77)
    solutions, declared = all_solutions(case)
    disagreeing = [problem for problem in plan.problems if problem.members and "partition" in problem.text]
    if not declared or not solutions:
        assert disagreeing
        members = {frozenset(member.name for member in group.members) for group in plan.groups}
        assert all(any(hand <= group for group in members) for hand in groups_by_hand(case))
        return
    assert not disagreeing
    for line in case:
        if line[1] == "by":
            values = {solution[line[0]] for solution in solutions}
            assert plan.partitions[line[0]] == (values.pop() if len(values) == 1 else 77), (line, case)


def test_every_problem_at_once() -> None:
    case = lines(
        "A source 4\nB source 8\nC source\nD source 2\nJ join A B\nK join C D\nT table\nI by D\nO sink J\nP sink K"
    )
    with pytest.raises(PlanError) as error:
        declare(case).plan()
    texts = [problem.text for problem in error.value.problems]
    assert len(texts) == 4
    assert all(text in str(error.value) for text in texts)
    assert [(problem.joins, [str(member) for member in problem.members]) for problem in error.value.problems] == [
        ((), []),
        ((), []),
        (("J",), ["A: 4 (input)", "B: 8 (input)"]),
        (("K",), ["C: unknown (input)", "D: 2 (input)"]),
    ]
