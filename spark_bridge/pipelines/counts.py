"""The partition count of each stream: known counts spread over groups; other streams take the default."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .graph import LoadedStream, Node, PartitionBy, Send, SideInput, Sink, TableFeed
from .groups import Linked
from .reach import Reach


@dataclass(frozen=True, slots=True)
class CountFault:
    """The reason why the streams of a group, or one stream without a group, have no count."""

    group: Linked | None
    text: str
    stream: int = -1


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The count of each input and intermediate; None where it is unknown, or undecided because of a fault."""

    partitions: dict[int, int | None]
    faults: tuple[CountFault, ...]


def find_counts(reach: Reach, groups: Iterable[Linked], default: int | None, cap: int | None) -> PartitionCounts:
    """Return the counts, and a fault for each group or stream that has none.

    Parameters
    ----------
    reach : Reach
        The graph.
    groups : iterable of Linked
        Its groups.
    default : int or None
        The count of streams that nothing else decides.
    cap : int or None
        The limit of the count that replaces an absent default: the largest count of all inputs and outputs.
    """
    nodes, names = reach.graph.nodes, reach.graph.names
    partitions = {
        number: node.partitions
        for number, node in nodes.items()
        if isinstance(node, LoadedStream | TableFeed | PartitionBy)
    }
    ends = _ends(reach)
    if default is None:
        largest = max(_outer_counts(reach, ends), default=None)
        default = largest if largest is None or cap is None else min(largest, cap)
    faults: list[CountFault] = []
    undecided = {
        number for number, count in partitions.items() if count is None and isinstance(nodes[number], PartitionBy)
    }
    for group in groups:
        known = sorted({count for number in group.members if (count := partitions[number]) is not None})
        unknown = [names[number] for number in group.members if partitions[number] is None and number not in undecided]
        if unknown:
            faults.append(CountFault(group, _unknown_inputs(unknown)))
        if len(known) > 1:
            faults.append(CountFault(group, _different(known)))
        if len(known) == 1 or (not known and not unknown and default is not None):
            partitions |= dict.fromkeys(undecided.intersection(group.members), known[0] if known else default)
        if known or unknown:
            undecided.difference_update(group.members)
    for number in undecided:
        if partitions[number] is None:
            partitions[number] = default
        if partitions[number] is None and ends[number] is not _End.NOWHERE:
            faults.append(
                CountFault(
                    None,
                    f"intermediate {names[number]} has no partition count, and no input or output has one; give it "
                    "partitions=, or the pipeline default_partitions=",
                    number,
                )
            )
    faults.sort(key=lambda fault: fault.text)
    return PartitionCounts(partitions, tuple(faults))


class _End(enum.IntEnum):
    """The possible destination of a stream's rows."""

    NOWHERE = 0
    SIDE_INPUT = 1
    OUTSIDE = 2


def _ends(reach: Reach) -> dict[int, _End]:
    def carry(node: Node, readers: Sequence[tuple[Node, _End]]) -> _End:
        if isinstance(node, Send | Sink):
            return _End.OUTSIDE
        own = _End.SIDE_INPUT if isinstance(node, SideInput) else _End.NOWHERE
        return max((end for _, end in readers), default=own)

    return reach.up(carry)


def _outer_counts(reach: Reach, ends: Mapping[int, _End]) -> Iterable[int]:
    for number, node in reach.graph.nodes.items():
        if (
            isinstance(node, LoadedStream | TableFeed | Sink)
            and ends[number] is _End.OUTSIDE
            and node.partitions is not None
        ):
            yield node.partitions


def _different(counts: Sequence[int]) -> str:
    return (
        f"the streams have {_listed(counts)} partitions, and need one count; give the outer streams equal counts, or "
        "put a partition_by behind those that differ"
    )


def _unknown_inputs(names: Sequence[str]) -> str:
    if len(names) == 1:
        return (
            f"the partition count of input {names[0]} is not known; declare its partitions=, or put a partition_by "
            "behind it"
        )
    return (
        f"the partition counts of inputs {_listed(names)} are not known; declare their partitions=, or put a "
        "partition_by behind each"
    )


def _listed(items: Sequence[object]) -> str:
    return f"{', '.join(map(str, items[:-1]))} and {items[-1]}"
