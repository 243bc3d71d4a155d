"""The columns by which streams are partitioned, and whether those that a join brings together are the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .graph import Changes, Map, Merge, Node, Pairs, PartitionBy, Source, StreamJoin, TableJoin, paired
from .reach import Reach

__all__ = ["KeyFault", "Keying", "find_keys"]


@dataclass(frozen=True, slots=True)
class Keying:
    """How a stream is partitioned.

    `key` has the columns in their order, each with those that an inner join made equal to it; None if it is unknown.
    `origin` is the input, the intermediate, the map or the join that it comes from.
    """

    key: tuple[frozenset[str], ...] | None
    origin: int


@dataclass(frozen=True, slots=True)
class KeyFault:
    """A join of streams that are partitioned by different columns.

    Parameters
    ----------
    join : int
        The join.
    text : str
        What each side is partitioned by.
    origins : tuple of int
        Inputs, intermediates or joins whose key is not the one to follow.
    """

    join: int
    text: str
    origins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Side:
    """A key at a join: for each of its columns, the pairs of the join that compare it."""

    keying: Keying
    columns: tuple[str, ...]
    pairs: tuple[frozenset[int], ...]

    @property
    def compared(self) -> bool:
        return all(self.pairs)

    def equals(self, other: Sequence[frozenset[int]]) -> bool:
        return len(self.pairs) == len(other) and all(mine & its for mine, its in zip(self.pairs, other, strict=True))


def find_keys(reach: Reach) -> tuple[dict[int, Pairs], list[KeyFault]]:
    """Return the pairs by which both sides of each join of a group should be partitioned, and the joins that differ."""

    def carry(node: Node, inputs: Sequence[tuple[Node, tuple[Keying, ...]]]) -> tuple[Keying, ...]:
        match node:
            case Source() | PartitionBy():
                key = None if node.key is None else tuple(frozenset((column,)) for column in node.key)
                return (Keying(key, node.number),)
            case Changes():
                return (Keying(None, node.number),)
            case Map(rekeys=True):
                return (Keying(None, node.number),)
            case StreamJoin():
                return (Keying(_joined_key(node, inputs[0][1], inputs[1][1]), node.number),)
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
    return tuple({keying.key: keying for keying in keyings}.values())


def _joined_key(join: StreamJoin, left: Sequence[Keying], right: Sequence[Keying]) -> tuple[frozenset[str], ...] | None:
    """Return the key of a join's rows, in its left columns where both have it."""
    first, pairs = left[0].key, join.on
    if join.how == "right":
        return right[0].key
    if join.how == "full" and not join.same_names:
        return None  # of an unmatched right row, the left columns are null
    if join.how == "inner":
        known, place = (first, 0) if first is not None else (right[0].key, 1)
        equal = {pair[place]: frozenset(pair) for pair in pairs}
        if known is not None:
            return tuple(column.union(*(equal.get(name, frozenset()) for name in column)) for column in known)
    return first


def _compare(reach: Reach, join: int, on: Pairs, keyings: Sequence[Sequence[Keying]]) -> tuple[Pairs, KeyFault | None]:
    nodes, names = reach.graph.nodes, reach.graph.names
    sides = [
        side
        for right, side_keyings in enumerate(keyings)
        for keying in side_keyings
        if (side := _side(keying, [pair[right] for pair in on])) is not None
    ]
    # Inputs are followed last: an `.auto` behind an input can follow any other stream.
    fixed = [side for side in sides if side.compared and not isinstance(nodes[side.keying.origin], Source)]
    free = [side for side in sides if side.compared and isinstance(nodes[side.keying.origin], Source)]
    free.sort(key=lambda side: (-_count(nodes[side.keying.origin]), side.columns))
    every = tuple(frozenset((place,)) for place in range(len(on)))
    followed = (fixed or free)[0].pairs if fixed or free else every
    wanted = tuple(on[min(places)] for places in followed)
    wrong = [side for side in sides if not side.equals(followed)]
    if not wrong:
        return wanted, None
    shown = ", ".join(f"{names[side.keying.origin]} by ({', '.join(side.columns)})" for side in sides)
    text = (
        f"it compares ({paired(on)}), and its streams are not partitioned alike by these columns: {shown}; partition "
        f"all by ({paired(wanted)}), with partition_by or outside"
    )
    return wanted, KeyFault(join, text, tuple(side.keying.origin for side in wrong))


def _count(node: Node) -> int:
    return (node.partitions or 0) if isinstance(node, Source) else 0


def _side(keying: Keying, compared: Sequence[str]) -> _Side | None:
    if keying.key is None:
        return None
    pairs = tuple(frozenset(place for place, name in enumerate(compared) if name in column) for column in keying.key)
    return _Side(keying, tuple(_shown(column) for column in keying.key), pairs)


def _shown(column: frozenset[str]) -> str:
    return " = ".join(sorted(column))
