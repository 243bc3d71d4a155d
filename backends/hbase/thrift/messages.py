"""The typed boundary to happybase and thriftpy2: requests as bytes, and replies from a stream of bytes.

The service is the `Hbase.thrift` that happybase ships, which HBase calls Thrift1. For structures that occur in large
numbers, this module has its own classes with the same fields: they have slots and no constructor in Python, and omit
fields for which the gateway has a default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Protocol

from Hbase_thrift import AlreadyExists, ColumnDescriptor, Hbase, IllegalArgument, TRowResult, TScan
from Hbase_thrift import IOError as GatewayIOError
from thriftpy2.protocol import TCompactProtocol
from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType, TType
from thriftpy2.transport.buffered import TCyBufferedTransport
from thriftpy2.transport.memory import TCyMemoryBuffer

from .errors import MixedUpError, server_error

_READ_AHEAD = 1 << 16  # bytes
_UNKNOWN_METHOD = 1
_NAMES = {"io": "IOError", "ia": "IllegalArgument", "exist": "AlreadyExists"}

PROTOCOLS: Mapping[str, Callable[[object], Any]] = {
    "binary": lambda transport: TCyBinaryProtocol(transport, decode_response=False),
    "compact": lambda transport: TCompactProtocol(transport, decode_response=False),
}


class ByteSource(Protocol):
    """A source of bytes."""

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most `size`; raise at the end."""


class _Put:
    __slots__ = ("column", "value")
    column: bytes
    value: bytes
    thrift_spec: ClassVar = {2: (TType.BINARY, "column", False), 3: (TType.BINARY, "value", False)}


class _Delete:
    __slots__ = ("column", "isDelete")
    column: bytes
    isDelete: bool
    thrift_spec: ClassVar = {1: (TType.BOOL, "isDelete", False), 2: (TType.BINARY, "column", False)}


class _Puts:
    __slots__ = ("mutations", "row")
    row: bytes
    mutations: list[_Put]
    thrift_spec: ClassVar = {
        1: (TType.BINARY, "row", False),
        2: (TType.LIST, "mutations", (TType.STRUCT, _Put), False),
    }


class _Deletes:
    __slots__ = ("mutations", "row")
    row: bytes
    mutations: list[_Delete]
    thrift_spec: ClassVar = {
        1: (TType.BINARY, "row", False),
        2: (TType.LIST, "mutations", (TType.STRUCT, _Delete), False),
    }


class _CellStruct:
    __slots__ = ("timestamp", "value")
    thrift_spec: ClassVar = {1: (TType.BINARY, "value", False), 2: (TType.I64, "timestamp", False)}


class _RowStruct:
    __slots__ = ("columns", "row")
    thrift_spec: ClassVar = {
        1: (TType.BINARY, "row", False),
        2: (TType.MAP, "columns", (TType.BINARY, (TType.STRUCT, _CellStruct)), False),
    }


class _Failure:
    # HBase 2 adds canRetry to IOError, which happybase's IDL lacks.
    __slots__ = ("canRetry", "message")
    thrift_spec: ClassVar = {1: (TType.BINARY, "message", False), 2: (TType.BOOL, "canRetry", False)}


def putting(row: bytes, cells: Mapping[bytes, bytes]) -> object:
    """Return a put of cells of a row."""
    mutations = []
    for column, value in cells.items():
        mutation = _Put()
        mutation.column = column
        mutation.value = value
        mutations.append(mutation)
    batch = _Puts()
    batch.row = row
    batch.mutations = mutations
    return batch


def putting_column(column: bytes, rows: Mapping[bytes, bytes]) -> list[object]:
    """Return puts of one cell for each row, in the same column."""
    batches: list[object] = []
    for row, value in rows.items():
        mutation = _Put()
        mutation.column = column
        mutation.value = value
        batch = _Puts()
        batch.row = row
        batch.mutations = [mutation]
        batches.append(batch)
    return batches


def deleting(row: bytes, columns: Sequence[bytes]) -> object:
    """Return a delete of all versions of a row's columns up to the request's timestamp."""
    mutations = []
    for column in columns:
        mutation = _Delete()
        mutation.column = column
        mutation.isDelete = True
        mutations.append(mutation)
    batch = _Deletes()
    batch.row = row
    batch.mutations = mutations
    return batch


def one_put(column: bytes, value: bytes) -> object:
    """Return a put of one cell."""
    mutation = _Put()
    mutation.column = column
    mutation.value = value
    return mutation


def scan_of(**settings: object) -> object:
    """Return a description of a scan; None is left out."""
    return TScan(**settings)


def descriptor(**settings: object) -> object:
    """Return a description of a column family."""
    return ColumnDescriptor(**settings)


def found_rows(reply: Any) -> list[tuple[bytes, dict[bytes, tuple[bytes, int]]]]:  # noqa: ANN401
    """Return the rows of a reply: key and cells of each."""
    return [(row.row, {column: (cell.value, cell.timestamp) for column, cell in row.columns.items()}) for row in reply]


def cells(reply: Any) -> dict[bytes, tuple[bytes, int]]:  # noqa: ANN401
    """Return the cells of the only row of a reply; empty if there is no row."""
    return {column: (cell.value, cell.timestamp) for row in reply for column, cell in row.columns.items()}


def encode(protocol: str, api: str, arguments: Mapping[str, object], number: int) -> bytes:
    """Return the bytes of a request, without a frame's header; the reply repeats `number`."""
    given = _arguments_class(api)()
    for name, value in arguments.items():
        setattr(given, name, value)
    buffer = TCyMemoryBuffer()
    writer = PROTOCOLS[protocol](buffer)
    writer.write_message_begin(api, TMessageType.CALL, number)
    writer.write_struct(given)
    writer.write_message_end()
    found: bytes = buffer.getvalue()
    return found


class Replies:
    """The replies in a stream."""

    def __init__(self, protocol: str, stream: ByteSource) -> None:
        self._reader = PROTOCOLS[protocol](TCyBufferedTransport(stream, _READ_AHEAD))

    def receive(self, api: str, number: int) -> object:
        """Return the result of the next reply, or a `ServerError`, which is not raised.

        Raises `MixedUpError` if it belongs to another request, or is not a reply, and any exception if it cannot be
        read.
        """
        name, kind, found = self._reader.read_message_begin()
        if isinstance(name, bytes):
            name = name.decode("utf-8", "replace")
        if name != api or found != number:
            raise MixedUpError(f"the reply {found} to {name!r} came in place of {number} to {api!r}")
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            self._reader.read_struct(failure)
            self._reader.read_message_end()
            text = _text(failure.message)
            return server_error("TApplicationException", text, unknown_call=failure.type == _UNKNOWN_METHOD)
        if kind != TMessageType.REPLY:
            raise MixedUpError(f"a message of kind {kind} came in place of the reply to {api!r}")
        result = _result_class(api)()
        self._reader.read_struct(result)
        self._reader.read_message_end()
        return _outcome(api, result)


def _outcome(api: str, result: Any) -> object:  # noqa: ANN401
    void = True
    for _kind, name, *_rest in result.thrift_spec.values():
        value = getattr(result, name, None)
        if name == "success":
            if value is not None:
                return value
            void = False
        elif value is not None:
            return server_error(
                _NAMES[name], _text(getattr(value, "message", None)), final=getattr(value, "canRetry", None) is False
            )
    if not void:
        raise MixedUpError(f"the reply to {api!r} has neither a result nor an error")
    return None


def _text(message: object) -> str:
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message or "")


@cache
def _arguments_class(api: str) -> type:
    """Return the class of a request: the IDL's, whose fields are None by default, without a constructor in Python."""
    spec = getattr(Hbase, f"{api}_args").thrift_spec
    return type("Request", (), {**dict.fromkeys(field[1] for field in spec.values()), "thrift_spec": spec})


@cache
def _result_class(api: str) -> type:
    """Return the class of a reply: the IDL's fields, the result first, with our classes for rows and errors."""
    spec = dict(getattr(Hbase, f"{api}_result").thrift_spec)
    ours = {TRowResult: _RowStruct, GatewayIOError: _Failure, IllegalArgument: _Failure, AlreadyExists: _Failure}
    fields: dict[int, Any] = {}
    for number, (kind, name, *rest) in sorted(spec.items()):
        if kind == TType.LIST and isinstance(rest[0], tuple):
            inner, struct = rest[0]
            rest[0] = (inner, ours.get(struct, struct))
        elif kind == TType.STRUCT:
            rest[0] = ours.get(rest[0], rest[0])
        fields[number] = (kind, name, *rest)
    return type("Reply", (), {"__slots__": [field[1] for field in fields.values()], "thrift_spec": fields})
