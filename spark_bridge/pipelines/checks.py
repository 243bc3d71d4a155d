"""Every problem of a pipeline that can be found without Spark and without a store, each with its cure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .counts import PartitionCounts, find_counts
from .graph import (
    ForeignKeyTable,
    LoadedStream,
    Node,
    Pairs,
    PartitionBy,
    RemoteTable,
    Send,
    SideInput,
    Sink,
    StoreTable,
    TableFeed,
)
from .groups import Linked, find_groups, member_reasons, shown_group
from .keys import KeyFault, find_keys
from .orders import find_orders
from .partitioners import STRUCTABLE
from .planned import Group, Problem
from .reach import Reach


@dataclass(frozen=True, slots=True)
class Checked:
    """The results of the checks; keys are the numbers of nodes.

    Parameters
    ----------
    reach : Reach
        The graph.
    linked : list of Linked
        Its groups; `groups` has them as users see them.
    counts : PartitionCounts
        The partition counts.
    labels : dict of int to str
        The partitioner of each intermediate.
    orders : dict of int to tuple of str or None
        The columns by which each write orders the rows of a key.
    wanted : dict of int to tuple
        The pairs of columns by which both sides of each join of a group should be partitioned.
    key_faults : list of KeyFault
        Joins of streams with different keys.
    computable : set of str
        The partitioners that `partition_by` can follow.
    label_faults : dict of Linked to set of str
        Groups with several partitioners.
    problems, notes : list
        Problems keep the pipeline from running; notes do not.
    """

    reach: Reach
    linked: list[Linked]
    groups: tuple[Group, ...]
    counts: PartitionCounts
    labels: dict[int, str]
    orders: dict[int, tuple[str, ...] | None]
    wanted: dict[int, Pairs]
    key_faults: list[KeyFault]
    computable: set[str]
    label_faults: dict[Linked, set[str]]
    problems: list[Problem]
    notes: list[str]


def check(reach: Reach, default: int | None, cap: int | None, registered: Iterable[str]) -> Checked:
    """Check a graph; `default` and `cap` are the pipeline's counts, `registered` its partitioners."""
    names = reach.graph.names
    linked = find_groups(reach)
    counts = find_counts(reach, linked, default, cap)
    wanted, key_faults = find_keys(reach)
    orders, order_faults = find_orders(reach)
    computable = {STRUCTABLE, *registered}
    labels, label_faults = _labels(reach, linked, computable)
    reasons = member_reasons(reach, linked)
    shown = {group: shown_group(reach, group, counts.partitions, reasons) for group in linked}
    of_join = {join: group for group in linked for join in group.joins}

    problems: list[Problem] = []
    for count_fault in counts.faults:
        if count_fault.group is None:
            problems.append(Problem((), (), count_fault.text, (names[count_fault.stream],)))
        else:
            problems.append(_of_group(shown[count_fault.group], count_fault.text))
    for key_fault in key_faults:
        group = shown[of_join[key_fault.join]]
        text = f"join {names[key_fault.join]}: {key_fault.text}. {_members(group)}"
        problems.append(Problem((names[key_fault.join],), group.members, text))
    for linked_group, found in label_faults.items():
        text = (
            f"the streams are partitioned by different rules, {', '.join(sorted(found))}; declare one partitioner=, "
            "register a Partitioner for it, or put a partition_by behind the inputs"
        )
        problems.append(_of_group(shown[linked_group], text))
    for order_fault in order_faults:
        cause = f"{names[order_fault.shuffle]} loses the order of its rows"
        missing = sorted(names[source] for source in order_fault.sources)
        reason = "its inputs have different order="
        if missing:
            reason = f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} no order="
        text = (
            f"write {names[order_fault.write]}: {cause}, and {reason}; declare the same order= of all its sources, "
            "or give the write order_by= or unordered=True"
        )
        problems.append(Problem((), (), text, (names[order_fault.write],)))
    faults = (*_graph_faults(reach, computable), *_result_faults(reach))
    problems += (Problem((), (), text, (names[number],)) for number, text in faults)
    notes = list(_notes(reach, linked))
    return Checked(
        reach,
        linked,
        tuple(shown[group] for group in linked),
        counts,
        labels,
        orders,
        wanted,
        key_faults,
        computable,
        label_faults,
        sorted(problems, key=lambda problem: (problem.joins, problem.text)),
        notes,
    )


def _of_group(group: Group, text: str) -> Problem:
    joins = f"join {group.joins[0]}" if len(group.joins) == 1 else f"joins {', '.join(group.joins)}"
    return Problem(group.joins, group.members, f"{joins}: {text}. {_members(group)}")


def _members(group: Group) -> str:
    return f"Members: {', '.join(group.members)}"


def _labels(
    reach: Reach, groups: Iterable[Linked], computable: set[str]
) -> tuple[dict[int, str], dict[Linked, set[str]]]:
    """Return the partitioner of each intermediate, and the groups with several partitioners."""
    labels = {
        number: node.partitioner or STRUCTABLE
        for number, node in reach.graph.nodes.items()
        if isinstance(node, PartitionBy)
    }
    faults: dict[Linked, set[str]] = {}
    for group in groups:
        members = [
            node
            for number in group.members
            if isinstance(node := reach.graph.nodes[number], LoadedStream | PartitionBy)
        ]
        declared = {node.partitioner for node in members if node.partitioner is not None}
        free = [node.number for node in members if isinstance(node, PartitionBy) and node.partitioner is None]
        if free and len(declared) == 1 and declared <= computable:
            labels |= dict.fromkeys(free, *declared)
        elif free:
            declared.add(STRUCTABLE)
        if len(declared) > 1:
            faults[group] = declared
    return labels, faults


def _graph_faults(reach: Reach, computable: set[str]) -> Iterator[tuple[int, str]]:
    def ends(node: Node, readers: Sequence[tuple[Node, bool]]) -> bool:
        return isinstance(node, Send | SideInput | Sink) or any(found for _, found in readers)

    ending = reach.up(ends)
    fed = _fed_tables(reach)
    for number, node in reach.graph.nodes.items():
        name = reach.graph.names[number]
        match node:
            case LoadedStream() | TableFeed() if not ending[number]:
                yield number, f"source {name} reaches no send, side input or sink; use it, or take it out"
            case PartitionBy() if not ending[number]:
                yield number, f"intermediate {name} reaches no send, side input or sink; use it, or take it out"
            case StoreTable() | RemoteTable() if not any(
                number in users for users in (reach.writers, reach.joins, reach.keyed_joins)
            ):
                yield number, f"table {name} is neither fed nor joined; use it, or take it out"
            case ForeignKeyTable() if number not in fed:
                yield (
                    number,
                    f"foreign-key join {name}: no stream is sent to its left or right table here; send one, "
                    "or run the join by itself, with start_join",
                )
            case _:
                pass
        if isinstance(node, PartitionBy) and node.partitioner is not None and node.partitioner not in computable:
            yield (
                number,
                f"intermediate {name}: the partitioner {node.partitioner!r} is not registered; give partitioner="
                f"Partitioner({node.partitioner!r}, expression)",
            )


def _result_faults(reach: Reach) -> Iterator[tuple[int, str]]:
    nodes, names = reach.graph.nodes, reach.graph.names
    joins: dict[tuple[str, str], int] = {}
    for number in sorted(nodes, key=names.__getitem__):
        node = nodes[number]
        if not isinstance(node, ForeignKeyTable):
            continue
        first = joins.setdefault((node.ref.url, node.ref.name), number)
        if first != number:
            yield (
                number,
                f"foreign-key join {names[number]}: its result, table {node.ref.name!r}, is also that of "
                f"{names[first]}; give it one of its own",
            )
    for number in reach.writers:
        table = nodes[number]
        if isinstance(table, StoreTable) and (join := joins.get((table.ref.url, table.ref.name))) is not None:
            yield (
                number,
                f"table {names[number]} is the result of foreign-key join {names[join]}, and only the join writes to "
                "it; send to another table",
            )


def _fed_tables(reach: Reach) -> set[int]:
    """Return the tables to which a stage sends a stream, and the results of foreign-key joins of these tables."""
    nodes = reach.graph.nodes
    fed = {table for table, writers in reach.writers.items() if any(isinstance(nodes[one], Send) for one in writers)}
    for number, node in nodes.items():
        if isinstance(node, ForeignKeyTable) and not fed.isdisjoint((node.left, node.right)):
            fed.add(number)
    return fed


def _notes(reach: Reach, groups: Iterable[Linked]) -> Iterator[str]:
    names = reach.graph.names
    for group in groups:
        for number in group.members:
            node = reach.graph.nodes[number]
            if isinstance(node, LoadedStream) and (node.key is None or node.partitioner is None):
                lacking = [
                    argument
                    for argument, value in (("key", node.key), ("partitioner", node.partitioner))
                    if value is None
                ]
                yield (
                    f"input {names[number]}: its {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not "
                    f"declared, and taken to fit its joins; declare {' and '.join(f'{one}=' for one in lacking)}"
                )
            elif isinstance(node, TableFeed):
                yield f"input {names[number]}: its key and partitioner are not known, and taken to fit its joins"
        for number in group.rekeyed:
            yield f"map {names[number]}: the key behind it is not known, and taken to fit the joins of the stream"
    same: dict[tuple[str, str], list[int]] = {}
    for number, node in reach.graph.nodes.items():
        if isinstance(node, StoreTable):
            same.setdefault((node.ref.url, node.ref.name), []).append(number)
    for found in same.values():
        if len(found) > 1 and not (reach.writers.keys().isdisjoint(found) or reach.joins.keys().isdisjoint(found)):
            yield (
                f"tables {', '.join(sorted(names[number] for number in found))} are one table of a store: what is "
                "written to one is not ordered before joins with another"
            )


def partition_counts(counts: PartitionCounts, names: Mapping[int, str]) -> dict[str, int | None]:
    """Return the counts by the names of streams, in order."""
    return dict(sorted((names[number], count) for number, count in counts.partitions.items()))
