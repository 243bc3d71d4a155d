"""Transactions of another process, driven from a test step by step as if they were this one's."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import pytest

from structable.spi import Isolation, Storage, Transaction, connect

from .internals import hold_finaliser


class OtherProcess:
    """A process with a storage of its own, one after the other, and with the transactions of a `Storage`."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        self._lock = threading.Lock()
        other.close()

    def connect(self, url: str) -> None:
        """Connect the process to a store."""
        self.ask("connect", url)

    def disconnect(self) -> None:
        """Close the process's storage."""
        self.ask("disconnect")

    def ask(self, *order: object) -> Any:  # noqa: ANN401 - any result of the other process
        """Have a call made there, and return its result or raise its error."""
        with self._lock:
            self._pipe.send(order)
            good, result = self._pipe.recv()
        if not good:
            raise result
        return result

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> _RemoteTransaction:
        """Begin a transaction there."""
        return _RemoteTransaction(self, self.ask("begin", isolation, read_only))

    def close(self) -> None:
        self._pipe.close()
        self._process.join(10)
        self._process.kill()


class _RemoteTransaction:
    def __init__(self, process: OtherProcess, number: int) -> None:
        self._process = process
        self._number = number

    def table(self, name: str) -> _RemoteTable:
        return _RemoteTable(self._process, self._number, name)

    def commit(self) -> None:
        self._process.ask("commit", self._number)

    def rollback(self) -> None:
        self._process.ask("rollback", self._number)

    def __enter__(self) -> _RemoteTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
        else:
            self.rollback()


class _RemoteTable:
    def __init__(self, process: OtherProcess, number: int, name: str) -> None:
        self._process = process
        self._number = number
        self._name = name

    def _call(self, method: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - the method's result
        return self._process.ask("call", self._number, self._name, method, arguments, named)

    def upsert(self, row: object) -> None:
        self._call("upsert", row)

    def read(self, key: object) -> Any:  # noqa: ANN401 - a row
        return self._call("read", key)

    def scan(self, **arguments: object) -> Iterator[Any]:
        return iter(self._call("scan", **arguments))

    def delete_all(self, *arguments: object) -> Any:  # noqa: ANN401 - a number
        return self._call("delete_all", *arguments)


def _serve(pipe: Connection) -> None:
    hold_finaliser(pytest.MonkeyPatch())
    with ExitStack() as stack:
        storage: Storage | None = None
        opened: dict[int, Transaction] = {}
        while True:
            try:
                order = pipe.recv()
            except EOFError:
                return
            try:
                match order:
                    case ("connect", url):
                        storage = stack.enter_context(connect(url))
                        pipe.send((True, None))
                    case ("disconnect",):
                        opened.clear()
                        stack.close()
                        pipe.send((True, None))
                    case _:
                        assert storage is not None
                        pipe.send((True, _done(storage, opened, order)))
            except Exception as error:  # every error is the test's to see
                pipe.send((False, error))


def _done(storage: Storage, opened: dict[int, Transaction], order: Any) -> object:  # noqa: ANN401 - as sent
    match order:
        case ("begin", isolation, read_only):
            opened[len(opened)] = storage.transaction(isolation, read_only)
            return len(opened) - 1
        case ("call", number, table, method, arguments, named):
            result = getattr(opened[number].table(table), method)(*arguments, **named)
            return list(result) if method == "scan" else result
        case (("commit" | "rollback") as end, number):
            getattr(opened[number], end)()
            return None
    raise ValueError(order)
