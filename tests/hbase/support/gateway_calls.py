"""Calls and connections that tests of the gateway share."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import ThriftCall, increment
from tests.hbase.support.fake_gateway import FakeGateway, Fault
from tests.hbase.support.shared import Place

ROW = b"\x01row"
COLUMN = b"x:v"


def connect(*fakes: FakeGateway, timeout: float = 30.0, **settings: object) -> Gateway:
    defaults = {"transport": "buffered", "protocol": "binary", "pool_size": 4, "pool_timeout": 0.2}
    return Gateway(
        [fake.address for fake in fakes],
        timeout=timeout,
        **{**defaults, **settings},  # type: ignore[arg-type]
    )


def once(fault: str, api: str, number: int = 1) -> Fault:
    """Inject a fault at the `number`th call of this name."""
    seen = 0

    def decide(name: str, _before: int) -> str | None:
        nonlocal seen
        seen += name == api
        return fault if name == api and seen == number else None

    return decide


def counting(amount: int = 1) -> ThriftCall[int]:
    return increment("t", b"counter", b"x:n", amount)


def fill(fake: FakeGateway, count: int) -> list[bytes]:
    keys = [b"%06d" % number for number in range(count)]
    for key in keys:
        fake.tables.put(b"t", key, COLUMN, b"value of " + key, 10)
    return keys


def keys_of(pages: Iterator[list[tuple[bytes, dict[bytes, tuple[bytes, int]]]]]) -> list[bytes]:
    return [key for page in pages for key, _cells in page]


def connect_to(server: Place) -> Gateway:
    parts = urlsplit(server.address)
    options = parse_qs(parts.query)
    return Gateway(
        [(parts.hostname or "", parts.port or 9090)],
        transport=options.get("transport", ["buffered"])[0],
        protocol=options.get("protocol", ["binary"])[0],
        timeout=30,
        pool_size=4,
        pool_timeout=1,
    )
