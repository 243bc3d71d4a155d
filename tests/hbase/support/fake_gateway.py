"""A gateway in this process, with the part of HBase's semantics that the store needs, and faults on demand.

Tables are kept apart from the gateways that serve them, so that one can be lost while another goes on.
"""

from __future__ import annotations

import socket
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import happybase  # noqa: F401  (it loads Hbase_thrift)
from Hbase_thrift import AlreadyExists, Hbase, IllegalArgument, TCell, TRegionInfo, TRowResult
from Hbase_thrift import IOError as GatewayIOError
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TApplicationException, TProcessor
from thriftpy2.transport import TBufferedTransport, TFramedTransport, TSocket, TTransportException

Struct = Any
"""The definitions of the IDL."""


@dataclass
class FakeTables:
    """Every version of every cell; unlike HBase's, a delete removes at once and masks no later put."""

    tables: dict[bytes, dict[bytes, dict[bytes, dict[int, bytes]]]] = field(default_factory=dict)
    disabled: set[bytes] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def of(self, name: bytes) -> dict[bytes, dict[bytes, dict[int, bytes]]]:
        if name not in self.tables:
            raise GatewayIOError(b"org.apache.hadoop.hbase.TableNotFoundException: " + name)
        return self.tables[name]

    def cells(self, table: bytes, row: bytes, columns: list[bytes] | None, before: int | None) -> dict[bytes, Struct]:
        found = {}
        for column, versions in self.of(table).get(row, {}).items():
            if columns and column not in columns and column.partition(b":")[0] not in columns:
                continue
            times = [time for time in versions if before is None or time < before]
            if times:
                found[column] = TCell(versions[max(times)], max(times))
        return found

    def put(self, table: bytes, row: bytes, column: bytes, value: bytes, time: int) -> None:
        self.of(table).setdefault(row, {}).setdefault(column, {})[time] = value

    def delete(self, table: bytes, row: bytes, column: bytes | None, upto: int) -> None:
        for name, versions in self.of(table).get(row, {}).items():
            if column in (None, name):
                for time in [time for time in versions if time <= upto]:
                    del versions[time]


def _now() -> int:
    return time.time_ns() // 1_000_000


class _Handler:
    """The calls of the IDL."""

    def __init__(self, tables: FakeTables) -> None:
        self._tables = tables
        self._scanners: dict[int, tuple[list[Struct], list[int]]] = {}
        self._ids = count()

    def getTableNames(self) -> list[bytes]:
        return sorted(self._tables.tables)

    def createTable(self, table: bytes, _families: list[Struct]) -> None:
        if table in self._tables.tables:
            raise AlreadyExists(b"table name already in use")
        self._tables.tables[table] = {}

    def isTableEnabled(self, table: bytes) -> bool:
        self._tables.of(table)
        return table not in self._tables.disabled

    def disableTable(self, table: bytes) -> None:
        self._tables.of(table)
        self._tables.disabled.add(table)

    def deleteTable(self, table: bytes) -> None:
        self._tables.of(table)
        if table not in self._tables.disabled:
            raise GatewayIOError(b"org.apache.hadoop.hbase.TableNotDisabledException: " + table)
        del self._tables.tables[table]
        self._tables.disabled.discard(table)

    def getTableRegions(self, table: bytes) -> list[Struct]:
        self._tables.of(table)
        return [TRegionInfo(b"", b"", 1, table, 1, b"localhost", 1)]

    def getRowWithColumns(self, table: bytes, row: bytes, columns: list[bytes], _attributes: object) -> list[Struct]:
        return self.getRowsWithColumnsTs(table, [row], columns, None, None)

    def getRowsWithColumns(self, table: bytes, rows: list[bytes], columns: list[bytes], _attributes: object) -> Struct:
        return self.getRowsWithColumnsTs(table, rows, columns, None, None)

    def getRowsWithColumnsTs(
        self, table: bytes, rows: list[bytes], columns: list[bytes], before: int | None, _attributes: object
    ) -> list[Struct]:
        found = [(row, self._tables.cells(table, row, columns, before)) for row in rows]
        return [TRowResult(row, cells) for row, cells in found if cells]

    def mutateRowsTs(self, table: bytes, batches: list[Struct], time: int, _attributes: object) -> None:
        mutations = [(batch.row, mutation) for batch in batches for mutation in batch.mutations]
        for row, mutation in mutations:
            if not mutation.isDelete:
                self._tables.put(table, row, mutation.column, mutation.value or b"", time)
        for row, mutation in mutations:
            if mutation.isDelete:
                self._tables.delete(table, row, mutation.column, time)

    def mutateRows(self, table: bytes, batches: list[Struct], attributes: object) -> None:
        self.mutateRowsTs(table, batches, _now(), attributes)

    def checkAndPut(
        self, table: bytes, row: bytes, column: bytes, expected: bytes | None, put: Struct, _attributes: object
    ) -> bool:
        cell = self._tables.cells(table, row, [column], None).get(column)
        if (cell.value if cell else b"") != (expected or b""):
            return False
        self._tables.put(table, row, put.column, put.value or b"", max(_now(), cell.timestamp if cell else 0))
        return True

    def atomicIncrement(self, table: bytes, row: bytes, column: bytes, amount: int) -> int:
        cell = self._tables.cells(table, row, [column], None).get(column)
        value = amount + (int.from_bytes(cell.value, "big", signed=True) if cell else 0)
        self._tables.put(table, row, column, value.to_bytes(8, "big", signed=True), _now())
        return value

    def deleteAllRow(self, table: bytes, row: bytes, _attributes: object) -> None:
        self._tables.delete(table, row, None, _now())

    def scannerOpenWithScan(self, table: bytes, scan: Struct, _attributes: object) -> int:
        keys = sorted(self._tables.of(table))
        begin, end = scan.startRow or b"", scan.stopRow or b""
        if scan.reversed:
            keys = [key for key in reversed(keys) if (not begin or key <= begin) and (not end or key > end)]
        else:
            keys = [key for key in keys[bisect_left(keys, begin) :] if not end or key < end]
        found = [(key, self._tables.cells(table, key, scan.columns, scan.timestamp)) for key in keys]
        number = next(self._ids)
        self._scanners[number] = ([TRowResult(key, cells) for key, cells in found if cells], [0])
        return number

    def scannerGetList(self, number: int, rows: int) -> list[Struct]:
        if number not in self._scanners:
            raise IllegalArgument(b"scanner ID is invalid")
        found, position = self._scanners[number]
        page = found[position[0] : position[0] + rows]
        position[0] += rows
        return page

    def scannerClose(self, number: int) -> None:
        if self._scanners.pop(number, None) is None:
            raise IllegalArgument(b"scanner ID is invalid")


Fault = Callable[[str, int], str | None]
"""Maps a call's name and the number of calls before it, on all connections, to a fault: "before", the connection ends
and nothing is done; "after", it ends when the call is done; "hang", the call is done and never answered; "mixed", the
answer has another number; "renamed", another name; "garbage", the answer is no Thrift; "late:SECONDS"; or an
IOError's text. None is no fault."""


class FakeGateway:
    """A gateway on 127.0.0.1, on a free port by default, until it is closed.

    `fault` decides what goes wrong at each call, `knows` names the calls that it implements (None: all), `calls` lists
    those it received, and `accepted` counts its connections so far.
    """

    def __init__(
        self,
        tables: FakeTables | None = None,
        *,
        framed: bool = False,
        compact: bool = False,
        port: int = 0,
    ) -> None:
        self.tables = tables or FakeTables()
        self.fault: Fault = lambda _api, _number: None
        self.knows: frozenset[str] | None = None
        self.calls: list[str] = []
        self.accepted = 0
        self._framed = framed
        self._compact = compact
        self._handler = _Handler(self.tables)
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name="fake gateway", daemon=True)
        self._accepting.start()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def open_scanners(self) -> int:
        return len(self._handler._scanners)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self.refuse()
        self.cut_all()
        for thread in self._threads:
            thread.join()

    def refuse(self) -> None:
        """Accept no further connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    def forget_scanners(self) -> None:
        """Close all scanners without notifying the clients."""
        self._handler._scanners.clear()

    def cut_all(self) -> None:
        for connection in self._sockets.copy():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _peer = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepted += 1
            self._sockets.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        transport = (TFramedTransport if self._framed else TBufferedTransport)(TSocket(sock=connection))
        protocol = TCompactProtocol(transport) if self._compact else TBinaryProtocol(transport, decode_response=False)
        processor = _Processor(self)
        try:
            while True:
                processor.process(protocol, protocol)
        except (TTransportException, OSError):
            pass
        except Exception:  # the bytes were not Thrift: a gateway ends the connection
            pass
        finally:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            self._sockets.discard(connection)
            connection.close()


class _EndedError(OSError):
    """Ends the connection."""


class _Processor(TProcessor):  # type: ignore[misc]
    def __init__(self, gateway: FakeGateway) -> None:
        super().__init__(Hbase, gateway._handler)
        self._gateway = gateway

    def process(self, iprot: Struct, oprot: Struct) -> None:
        api, number, result, call = self.process_in(iprot)
        gateway = self._gateway
        fault = gateway.fault(api, len(gateway.calls)) or ""
        gateway.calls.append(api)
        if fault == "before":
            raise _EndedError
        if gateway.knows is not None and api not in gateway.knows:
            result = TApplicationException(TApplicationException.UNKNOWN_METHOD, f"Invalid method name: '{api}'")
        if isinstance(result, TApplicationException):
            self.send_exception(oprot, api, result, number)
            return
        if fault.startswith("late:"):
            time.sleep(float(fault[5:]))
        try:
            with gateway.tables.lock:
                if "Exception" in fault:
                    raise GatewayIOError(fault.encode())
                result.success = call()
        except (GatewayIOError, IllegalArgument, AlreadyExists) as error:
            self.handle_exception(error, result)
        if fault == "after":
            raise _EndedError
        if fault == "hang":
            gateway._closed.wait(60)
            raise _EndedError
        if fault == "garbage":
            oprot.trans.write(b"\0\0\0\0\0\0")
            oprot.trans.flush()
            return
        name = "getRow" if fault == "renamed" else api
        self.send_result(oprot, name, result, number + 1 if fault == "mixed" else number)
