"""Cuts a pipeline into stages: some streams become tables, whose feeds the next stage reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from structable.spark_bridge.base.table_ref import TableRef

from .graph import (
    ForeignKeyTable,
    Graph,
    Intermediate,
    LoadedStream,
    Map,
    Merge,
    Node,
    PartitionBy,
    RowFilter,
    Send,
    StoreTable,
    StreamJoin,
    Table,
    TableFeed,
    TableJoin,
    free_name,
)
from .reach import Reach

_STATELESS = LoadedStream | TableFeed | Map | RowFilter | Merge | PartitionBy
_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}\Z")


@dataclass(frozen=True, slots=True)
class Cut:
    """The nodes that stages are made of.

    Parameters
    ----------
    graph : Graph
        The declared nodes, with an Intermediate and a feed for each stream between two stages.
    levels : dict of int to int
        The nodes that belong to one stage, and the most streams between stages before each. All others are sources, and
        their maps, filters, merges and partitions: every stage has its own copy of the sources that it reads.
    feeds : dict of int to int
        The Intermediate that writes the table of each feed.
    problems : list of (int, str)
        Streams between stages without a store, with the reason.
    """

    graph: Graph
    levels: dict[int, int]
    feeds: dict[int, int]
    problems: list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class _StreamLevel:
    level: int
    partitions: int | None
    """The count of the stream-stream joins upstream in this level."""
    after_table: bool
    """Whether the stream comes from a join with a table, in this level."""
    movable: bool
    """Whether only stream-stream joins and stateless nodes precede it: it can move to a later level."""


def cut(
    reach: Reach,
    pipeline: str,
    store: str | None,
    partitions: Mapping[int, int | None],
    apart: Collection[int] = (),
    alone: Collection[int] = (),
) -> Cut:
    """Cut streams where a stream-stream join follows a join with a table, and where two joins need different counts.

    Parameters
    ----------
    reach : Reach
        The graph.
    pipeline : str
        Its name, the prefix of the tables' names.
    store : str or None
        The store of these tables; by default the store of the nearest table upstream.
    partitions : mapping of int to int or None
        The count of each stream-stream join.
    apart : collection of int
        Stream-stream joins whose rows go to another stage in any case.
    alone : collection of int
        Stream-stream joins whose inputs also come from another stage.
    """
    names = reach.graph.names
    levels = {
        number: place.level for number, place in _places(reach, partitions, apart, alone).items() if place is not None
    }
    stores = _nearest_stores(reach)
    found = _Streams(pipeline, store, stores, dict(names), set(names.values()), max(names, default=0) + 1)
    nodes: dict[int, Node] = {}
    for number, node in reach.graph.nodes.items():
        inputs = []
        for stream in node.inputs:
            if levels.get(stream, levels.get(number)) != levels.get(number):
                while isinstance(node, StreamJoin) and isinstance(reach.graph.nodes[stream], PartitionBy):
                    stream = reach.graph.nodes[stream].inputs[0]  # the join partitions its state itself
                stream = found.feed_of(stream)
            inputs.append(stream)
        nodes[number] = replace(node, inputs=tuple(inputs))
    if not found.writes:
        return Cut(reach.graph, levels, {}, found.problems)
    levels |= {write.number: levels[stream] for stream, write in found.writes.items()}
    feeds = {feed.number: found.writes[stream].number for stream, feed in found.feeds.items()}
    every = {feed.number: feed for feed in found.feeds.values()} | nodes
    every |= {write.number: write for write in found.writes.values()}
    return Cut(Graph(every, found.names), levels, feeds, found.problems)


@dataclass(slots=True)
class _Streams:
    """The streams between stages: for each the write of its table, and its feed."""

    pipeline: str
    store: str | None
    stores: Mapping[int, TableRef | None]
    names: dict[int, str]
    taken: set[str]
    fresh: int
    writes: dict[int, Intermediate] = field(default_factory=dict)
    feeds: dict[int, TableFeed] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def feed_of(self, stream: int) -> int:
        """Return the feed of a stream, or the stream itself if there is no store for its table."""
        if stream not in self.feeds:
            ref = self._table(stream)
            if ref is None:
                return stream
            name = self.names[stream]
            self.writes[stream] = Intermediate(
                number=self.fresh, name=self._name(f"{name}.intermediate"), inputs=(stream,), ref=ref
            )
            self.feeds[stream] = TableFeed(
                number=self.fresh + 1, name=self._name(f"{name}.feed"), ref=ref, between=True
            )
            for node in (self.writes[stream], self.feeds[stream]):
                self.names[node.number] = str(node.name)
            self.fresh += 2
        return self.feeds[stream].number

    def _name(self, stem: str) -> str:
        name = free_name(stem, self.taken)
        self.taken.add(name)
        return name

    def _table(self, stream: int) -> TableRef | None:
        name = f"{self.pipeline}_{self.names[stream]}".replace(".", "_")
        near = self.stores[stream]
        problem = None
        if not _TABLE_NAME.match(name):
            problem = (
                f"its table {name!r} would have a name of {len(name)} characters, and 48 are allowed; give it name="
            )
        elif name in {write.ref.name for write in self.writes.values()}:
            problem = f"another such stream has its table {name!r}; give it another name="
        elif self.store is None and near is None:
            problem = "no table upstream has a store for it; give the pipeline intermediate_store="
        if problem is not None:
            found = stream, f"stream {self.names[stream]} goes from one stage to another, and {problem}"
            if found not in self.problems:
                self.problems.append(found)
            return None
        if self.store is not None or near is None:
            return TableRef(self.store or "", name)
        return TableRef(near.url, name, **dict(near.options))


def _places(
    reach: Reach, partitions: Mapping[int, int | None], apart: Collection[int], alone: Collection[int]
) -> dict[int, _StreamLevel | None]:
    """Return the place of each node that belongs to one stage; None for nodes that every stage copies."""

    def carry(node: Node, inputs: Sequence[tuple[Node, _StreamLevel | None]]) -> _StreamLevel | None:
        placed = [(stream, place) for stream, place in inputs if place is not None]
        if isinstance(node, Table):
            return None
        if not placed:
            if isinstance(node, _STATELESS):
                return None
            own = partitions.get(node.number) if isinstance(node, StreamJoin) else None
            return _StreamLevel(0, own, isinstance(node, TableJoin), movable=isinstance(node, StreamJoin))
        joins = isinstance(node, StreamJoin)
        movable = isinstance(node, _STATELESS | StreamJoin) and all(place.movable for _, place in placed)
        level = max(place.level + (stream.number in apart or (joins and place.after_table)) for stream, place in placed)
        own = partitions.get(node.number) if joins else None
        counts = {place.partitions for stream, place in placed if place.level == level and stream.number not in apart}
        if node.number in alone or len({*counts, own} - {None}) > 1:
            level, counts = level + 1, set()
        known = {count for count in (*counts, own) if count is not None}
        after = any(place.after_table for _, place in placed if place.level == level)
        return _StreamLevel(
            level, min(known, default=None), isinstance(node, TableJoin) or (after and not joins), movable
        )

    places = reach.down(carry)

    def late(node: Node, readers: Sequence[tuple[Node, _StreamLevel | None]]) -> _StreamLevel | None:
        """Move a stream to the level of its readers, so that it need not pass between stages."""
        place = places[node.number]
        if place is None or not place.movable or node.number in apart:
            return place
        levels = [
            reader.level - (None not in (reader.partitions, place.partitions) and reader.partitions != place.partitions)
            for _, reader in readers
            if reader is not None
        ]
        return replace(place, level=max(place.level, min(levels, default=0)))

    return reach.up(late)


def _nearest_stores(reach: Reach) -> dict[int, TableRef | None]:
    """Return, for each stream, the nearest table of a store upstream."""
    tables = reach.graph.nodes

    def carry(node: Node, inputs: Sequence[tuple[Node, tuple[int, TableRef] | None]]) -> tuple[int, TableRef] | None:
        if isinstance(node, Send | TableJoin) and isinstance(table := tables[node.table], StoreTable | ForeignKeyTable):
            return 0, table.ref
        if isinstance(node, TableFeed):
            return 0, node.ref
        near = [(found[0] + 1, found[1]) for _, found in inputs if found is not None]
        return min(near, key=lambda found: found[0], default=None)

    return {number: found[1] if found is not None else None for number, found in reach.down(carry).items()}
