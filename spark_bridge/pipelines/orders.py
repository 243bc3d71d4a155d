"""The order of the rows of one key: how far it survives shuffles, and which order each write uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structable.spi import FEED_COLUMNS

from .graph import LoadedStream, Merge, Node, PartitionBy, Send, SideInput, StreamJoin, TableFeed
from .reach import Reach, bit_places

_COMMIT_VERSION = FEED_COLUMNS[1]


@dataclass(frozen=True, slots=True)
class OrderFault:
    """A write of rows without an order: lost at `shuffle`, absent in `sources`, or else different in its inputs."""

    write: int
    shuffle: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _StreamOrder:
    columns: tuple[str, ...] | None
    shuffle: int | None
    unordered: int
    """The sources without an order, a bit for the number of each."""


def find_orders(reach: Reach) -> tuple[dict[int, tuple[str, ...] | None], list[OrderFault]]:
    """Return the columns by which each write to a table orders the rows of a key, and the writes without an order."""

    def carry(node: Node, inputs: Sequence[tuple[Node, _StreamOrder]]) -> _StreamOrder:
        orders = [order for _, order in inputs]
        match node:
            case LoadedStream():
                return _StreamOrder(node.order, None, 1 << node.number if node.order is None else 0)
            case TableFeed():
                return _StreamOrder((_COMMIT_VERSION,), None, 0)
            case PartitionBy() | Merge() | StreamJoin():
                unordered = 0
                for order in orders:
                    unordered |= order.unordered
                return _StreamOrder(_combined(node, orders), node.number, unordered)
            case _:
                return orders[0] if orders else _StreamOrder(None, None, 0)

    found = reach.down(carry)
    chosen: dict[int, tuple[str, ...] | None] = {}
    faults: list[OrderFault] = []
    for number, node in reach.graph.nodes.items():
        if not isinstance(node, Send | SideInput):
            continue
        order = found[node.inputs[0]]
        if isinstance(node, Send) and (node.options.unordered or node.options.order_by is not None):
            chosen[number] = node.options.order_by
            continue
        chosen[number] = order.columns
        if order.columns is None and order.shuffle is not None:
            faults.append(OrderFault(number, order.shuffle, tuple(bit_places(order.unordered))))
    return chosen, faults


def _combined(node: Node, orders: Sequence[_StreamOrder]) -> tuple[str, ...] | None:
    """Return the columns that order the rows of all inputs, None if there are none."""
    columns = [order.columns for order in orders]
    if isinstance(node, StreamJoin) and None not in columns:
        return tuple(dict.fromkeys(name for each in columns for name in each or ()))
    return columns[0] if len(set(columns)) == 1 else None
