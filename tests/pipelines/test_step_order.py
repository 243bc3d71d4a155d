"""The order of steps, against the rule taken literally: order by order, each left out if it closes a circle."""

from __future__ import annotations

import random

import networkx
import pytest

from structable.spark_bridge.pipelines.step_order import ReadFirst, TableUse, order_steps


def by_the_rule(inputs: dict[int, list[int]], tables: list[TableUse]) -> tuple[networkx.DiGraph[int], list[ReadFirst]]:
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(inputs)
    graph.add_edges_from((source, step) for step, sources in inputs.items() for source in sources)
    left_out = []
    uses = sorted((join, use.table, use) for use in tables for join in use.joins)
    for join, _, use in uses:
        refused = [writer for writer in use.writers if not _added(graph, writer, join)]
        if refused:
            left_out.append(ReadFirst(join, use.table, tuple(refused)))
    return graph, left_out


def _added(graph: networkx.DiGraph[int], first: int, then: int) -> bool:
    if first == then or networkx.has_path(graph, then, first):
        return False
    graph.add_edge(first, then)
    return True


@pytest.mark.parametrize("seed", range(200))
def test_orders_are_those_of_the_rule(seed: int) -> None:
    chance = random.Random(seed)
    steps = range(10, 10 + chance.randint(2, 14))  # tables are declared before the steps that use them
    inputs = {step: [source for source in steps[: step - 10] if chance.random() < 1.2 / len(steps)] for step in steps}
    tables: list[TableUse] = []
    free = list(steps)
    chance.shuffle(free)
    for table in range(chance.randint(1, 4)):
        used, free = free[:3], free[3:]
        writers = sorted(step for step in used if chance.random() < 0.5)
        joins = sorted({*used} - {*writers})
        if writers and joins:
            tables.append(TableUse(table, joins, writers))
    order, left_out = order_steps(inputs, tables)
    graph, wanted = by_the_rule(inputs, tables)
    assert left_out == wanted
    assert order == list(networkx.lexicographical_topological_sort(graph))
