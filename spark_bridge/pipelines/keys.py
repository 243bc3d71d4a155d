"""The columns by which streams are partitioned, and whether the two sides of each join agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .graph import LoadedStream, Map, Merge, Node, Pairs, PartitionBy, StreamJoin, TableFeed, TableJoin, paired
from .reach import Reach, bit_places


@dataclass(frozen=True, slots=True)
class Keying:
    """The partitioning of a stream.

    `key` has the columns in their order, each with the columns that an inner join made equal to it; None if it is
    unknown. `origins` are the inputs, intermediates, maps and joins that it comes from, a bit for the number of each.
    """

    key: tuple[frozenset[str], ...] | None
    origins: int


@dataclass(frozen=True, slots=True)
class KeyFault:
    """A join of streams that are partitioned by different columns.

    Parameters
    ----------
    join : int
        The join.
    text : str
        The columns by which each side is partitioned.
    origins : tuple of int
        Inputs, intermediates or joins whose key differs from the wanted one.
    """

    join: int
    text: str
    origins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _JoinKey:
    """A key at a join: for each of its columns, the pairs of the join that compare it."""

    origins: int
    columns: tuple[str, ...]
    pairs: tuple[frozenset[int], ...]

    @property
    def compared(self) -> bool:
        return all(self.pairs)

    def equals(self, other: Sequence[frozenset[int]]) -> bool:
        return len(self.pairs) == len(other) and all(mine & its for mine, its in zip(self.pairs, other, strict=True))


def find_keys(reach: Reach) -> tuple[dict[int, Pairs], list[KeyFault]]:
    """Return the pairs by which both sides of each join of a group should be partitioned, and the faulty joins."""

    def carry(node: Node, inputs: Sequence[tuple[Node, tuple[Keying, ...]]]) -> tuple[Keying, ...]:
        match node:
            case LoadedStream() | PartitionBy():
                key = None if node.key is None else tuple(frozenset((column,)) for column in node.key)
                return (Keying(key, 1 << node.number),)
            case TableFeed():
                return (Keying(None, 1 << node.number),)
            case Map(rekeys=True):
                return (Keying(None, 1 << node.number),)
            case StreamJoin():
                return (Keying(_joined_key(node, inputs[0][1], inputs[1][1]), 1 << node.number),)
            case Merge():
                return _distinct(keying for _, keyings in inputs for keying in keyings)
            case _:
                return inputs[0][1] if inputs else ()

    keyings = reach.down(carry)
    fed = {
        table: _distinct(keying for writer in writers for keying in keyings[reach.graph.nodes[writer].inputs[0]])
        for table, writers in reach.writers.items()
    }
    wanted: dict[int, Pairs] = {}
    faults: list[KeyFault] = []
    for number, node in reach.graph.nodes.items():
        if isinstance(node, StreamJoin):
            sides = [keyings[stream] for stream in node.inputs]
        elif isinstance(node, TableJoin) and node.table in reach.constrained:
            sides = [keyings[node.inputs[0]], fed[node.table]]
        else:
            continue
        wanted[number], fault = _compare(reach, number, node.on, sides)
        if fault is not None:
            faults.append(fault)
    return wanted, faults


def _distinct(keyings: Iterable[Keying]) -> tuple[Keying, ...]:
    """Return one keying of each key."""
    origins: dict[tuple[frozenset[str], ...] | None, int] = {}
    for keying in keyings:
        origins[keying.key] = origins.get(keying.key, 0) | keying.origins
    return tuple(Keying(key, bits) for key, bits in origins.items())


def _joined_key(join: StreamJoin, left: Sequence[Keying], right: Sequence[Keying]) -> tuple[frozenset[str], ...] | None:
    """Return the key of a join's rows, in its left columns where both have it."""
    first, other = (next((one.key for one in side if one.key is not None), None) for side in (left, right))
    if join.how == "right":
        return other
    if join.how == "full" and not join.same_names:
        return None  # the left columns of an unmatched right row are null
    if join.how == "inner":
        known, place = (first, 0) if first is not None else (other, 1)
        equal = {pair[place]: frozenset(pair) for pair in join.on}
        if known is not None:
            return tuple(column.union(*(equal.get(name, frozenset()) for name in column)) for column in known)
    return first


def _compare(reach: Reach, join: int, on: Pairs, keyings: Sequence[Sequence[Keying]]) -> tuple[Pairs, KeyFault | None]:
    nodes, names = reach.graph.nodes, reach.graph.names
    by_side = [
        [side for keying in found if (side := _side(keying, [pair[right] for pair in on])) is not None]
        for right, found in enumerate(keyings)
    ]
    sides = [side for found in by_side for side in found]
    compared = [side for side in sides if side.compared]
    followed = compared[0].pairs if compared else tuple(frozenset((place,)) for place in range(len(on)))
    wrong = [side for side in sides if not side.equals(followed)]
    if wrong and compared:
        followed = min(compared, key=lambda side: _preference(nodes, side)).pairs
        wrong = [side for side in sides if not side.equals(followed)]
    wanted = tuple(on[min(places)] for places in followed)
    if not wrong:
        return wanted, None
    shown = ", ".join(
        f"{name} by ({columns})"
        for found in by_side
        for name, columns in sorted(
            (names[origin], ", ".join(side.columns)) for side in found for origin in bit_places(side.origins)
        )
    )
    text = (
        f"it compares ({paired(on)}), and its streams are not partitioned alike by these columns: {shown}; partition "
        f"all by ({paired(wanted)}), with partition_by or outside"
    )
    return wanted, KeyFault(join, text, tuple(origin for side in wrong for origin in bit_places(side.origins)))


def _preference(nodes: Mapping[int, Node], side: _JoinKey) -> tuple[bool, int, tuple[str, ...]]:
    """Return the sort key of keys: inputs are followed last, since an `.auto` behind an input can follow any stream."""
    inputs = [node for origin in bit_places(side.origins) if isinstance(node := nodes[origin], LoadedStream)]
    if len(inputs) < side.origins.bit_count():
        return False, 0, side.columns
    return True, -max(node.partitions or 0 for node in inputs), side.columns


def _side(keying: Keying, compared: Sequence[str]) -> _JoinKey | None:
    if keying.key is None:
        return None
    pairs = tuple(frozenset(place for place, name in enumerate(compared) if name in column) for column in keying.key)
    return _JoinKey(keying.origins, tuple(_shown(column) for column in keying.key), pairs)


def _shown(column: frozenset[str]) -> str:
    return " = ".join(sorted(column))
