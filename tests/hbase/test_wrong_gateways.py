"""A server that is not HBase's gateway, or is set up wrongly, is reported in one line within the time-out."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from structable.backends.hbase.thrift.errors import (
    AccessDeniedError,
    ConnectionLostError,
    RequestTooLargeError,
    ServerError,
    WrongServiceError,
    unavailable,
)
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import get_row, list_tables, put_rows
from structable.spi import StorageUnavailableError
from tests.hbase.support.fake_gateway import FakeGateway
from tests.hbase.support.gateway_calls import COLUMN, ROW, connect, counting
from tests.waiting import PROMPT


class Listener:
    """Answers every client with the same bytes, and ends the connection or keeps it."""

    def __init__(self, answer: bytes, *, ends: bool) -> None:
        self._answer = answer
        self._ends = ends
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._kept: list[socket.socket] = []
        self.address: tuple[str, int] = self._socket.getsockname()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                peer, _address = self._socket.accept()
            except OSError:
                return
            self._kept.append(peer)
            peer.recv(4096)
            peer.sendall(self._answer)
            if self._ends:
                peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for peer in self._kept:
            peer.close()


def message(act: Callable[[], object]) -> str:
    """Return structable's one-line message for a failure."""
    started = time.monotonic()
    with pytest.raises((ConnectionLostError, ServerError, RequestTooLargeError)) as caught:
        act()
    assert time.monotonic() - started < PROMPT
    error = unavailable(caught.value, "connecting to HBase")
    assert isinstance(error, StorageUnavailableError)
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("transport", ["buffered", "framed"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
@pytest.mark.parametrize(
    ("answer", "ends", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", True, "it speaks HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "it speaks HTTP|no answer"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", False, "not a Thrift gateway"),
        (b"\x15\x03\x03\x00\x02\x02\x32", True, "TLS"),
        (b"\x04\x00\x00\x00\x13Invalid status -128", True, "Kerberos is not supported"),
        (b"", True, "closed the connection"),
        (b"", False, "no answer within 1 s"),
        (b"\xff" * 100_000, False, "not a Thrift gateway"),
    ],
)
def test_a_server_that_is_no_gateway_is_reported(
    transport: str, protocol: str, answer: bytes, ends: bool, expected: str
) -> None:
    with (
        closing(Listener(answer, ends=ends)) as listener,
        closing(connect_at(listener.address, transport=transport, protocol=protocol)) as gateway,
    ):
        text = message(lambda: gateway.call(list_tables()))
    host, port = listener.address
    assert text.startswith(f"connecting to HBase: the HBase gateway {host}:{port}: ")
    assert re.search(expected, text), text


def connect_at(address: tuple[str, int], **settings: object) -> Gateway:
    return Gateway([address], timeout=1, pool_size=2, pool_timeout=1, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("transport", ["buffered", "framed"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_the_wrong_transport_or_protocol_is_reported(
    framed: bool, compact: bool, transport: str, protocol: str
) -> None:
    if (framed, compact) == (transport == "framed", protocol == "compact"):
        return
    with (
        FakeGateway(framed=framed, compact=compact) as fake,
        closing(connect_at(fake.address, transport=transport, protocol=protocol)) as gateway,
    ):
        text = message(lambda: gateway.call(list_tables()))
    assert "transport=" in text
    assert "try" in text or "needs transport=" in text


def test_a_gateway_of_another_api_is_reported(fake: FakeGateway, gateway: Gateway) -> None:
    fake.knows = frozenset()
    with pytest.raises(WrongServiceError):
        gateway.call(list_tables())
    assert "perhaps Thrift2" in message(lambda: gateway.call(list_tables()))


@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        ("org.apache.hadoop.hbase.security.AccessDeniedException: no", AccessDeniedError, "lacks a permission"),
        (
            "org.apache.hadoop.hbase.PleaseHoldException: Master starts",
            ServerError,
            "starting or in safe mode",
        ),
        ("java.io.IOException: SomethingElseException\n\tat a.b.C(D.java)", ServerError, "HBase answered: java"),
    ],
)
def test_an_error_of_hbase_is_reported(fake: FakeGateway, answer: str, kind: type[ServerError], expected: str) -> None:
    fake.fault = lambda _api, _number: answer
    with closing(connect(fake, timeout=0.3)) as gateway:
        with pytest.raises(kind):
            gateway.call(list_tables())
        assert expected in message(lambda: gateway.call(list_tables()))


def test_a_request_beyond_the_frame_names_the_setting() -> None:
    large = put_rows("t", {ROW: {COLUMN: bytes(3_000_000)}}, 1)
    with FakeGateway(framed=True) as fake, closing(connect(fake, transport="framed")) as gateway:
        fake.tables.tables[b"t"] = {}
        gateway.call(list_tables())
        with pytest.raises(RequestTooLargeError):
            gateway.flight([counting(), large])
        assert "hbase.regionserver.thrift.framed.max_frame_size_in_mb" in message(lambda: gateway.call(large))
        assert gateway.call(list_tables()) == ["t"]


def test_a_buffered_request_may_be_of_any_size(gateway: Gateway) -> None:
    gateway.call(put_rows("t", {ROW: {COLUMN: bytes(9_000_000)}}, 1))
    assert len(gateway.call(get_row("t", ROW, [COLUMN]))[COLUMN][0]) == 9_000_000
