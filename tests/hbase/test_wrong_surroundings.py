"""A faulty gateway, prefix or HBase: one clear error within the time-out, nothing written."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

from structable.backends.hbase.layout import Layout
from structable.spi import (
    DataCorruptionError,
    Field,
    StorageUnavailableError,
    StructableError,
    TableSpecification,
    connect,
)
from tests.hbase.support.fake_gateway import FakeGateway
from tests.hbase.support.server import Gateway, Server
from tests.hbase.support.shared import Place, with_options
from tests.hbase.test_wrong_gateways import Listener
from tests.servers.processes import free_port
from tests.waiting import PROMPT

BLOBS = TableSpecification("blobs", [Field.long("id"), Field.bytes("data")], ["id"], [])
TIMEOUT = 2.0
LARGEST = (8 << 20) - 8  # bytes of a row beside its key


def refusal(url: str, kind: type[StructableError] = StorageUnavailableError, timeout: float = TIMEOUT) -> str:
    """Return the one-line error that connecting raises soon after the time-out at the latest."""
    started = time.monotonic()
    with pytest.raises(StructableError) as caught:
        connect(url, timeout=timeout)
    assert time.monotonic() - started < timeout + PROMPT
    assert type(caught.value).__mro__.count(kind) == 1, repr(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def tables_of(server: Place, prefix: str) -> list[str]:
    with closing(server.connection()) as connection:
        return [name.decode() for name in connection.tables() if name.decode().startswith(prefix)]


@pytest.fixture(scope="module")
def framed(hbase_server: Place) -> Iterator[Gateway]:
    """Return a gateway with framed transport and compact protocol, and HBase's own limit of 2 MB a frame."""
    with ExitStack() as stack:
        server = hbase_server.server
        if server is None:
            server = stack.enter_context(Server.create())
        gateway = server.start_gateway(free_port(), framed=True, compact=True)
        stack.callback(gateway.stop)
        yield gateway


def test_closed_port() -> None:
    assert "cannot be reached: Connection refused" in refusal(f"hbase://127.0.0.1:{free_port()}/p")
    assert "no-such-host.invalid:9090: cannot be reached" in refusal("hbase://no-such-host.invalid/p")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"),
        (b"\x04\x00\x00\x00\x13Invalid status -128", "Kerberos is not supported"),
        (b"\x15\x03\x03\x00\x02\x02\x32", "it speaks TLS, which is not supported"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", "not a Thrift gateway"),
    ],
)
def test_something_else_listens(answer: bytes, expected: str) -> None:
    with closing(Listener(answer, ends=True)) as listener:
        assert expected in refusal(f"hbase://127.0.0.1:{listener.address[1]}/p")


def test_a_silent_gateway_is_given_up_at_the_time_out() -> None:
    with closing(Listener(b"", ends=False)) as listener:
        assert "no answer within 2 s" in refusal(f"hbase://127.0.0.1:{listener.address[1]}/p")


def test_a_gateway_of_another_api() -> None:
    with FakeGateway() as fake:
        fake.knows = frozenset()
        assert "it serves another API, perhaps Thrift2" in refusal(f"hbase://127.0.0.1:{fake.port}/p")
        assert fake.tables.tables == {}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("org.apache.hadoop.hbase.security.AccessDeniedException: no", "user lacks a permission in HBase"),
        ("org.apache.hadoop.hbase.PleaseHoldException: Master is initializing", "HBase is starting or in safe mode"),
        ("org.apache.hadoop.hbase.ipc.ServerNotRunningYetException: not yet", "HBase is starting or in safe mode"),
        ("java.lang.IllegalStateException: Unknown exception", "HBase answered: java.lang.IllegalState"),
    ],
)
@pytest.mark.parametrize("refused", ["getRowsWithColumns", "createTable", "checkAndPut", "atomicIncrement"])
def test_hbase_refuses_while_connecting(answer: str, expected: str, refused: str) -> None:
    with FakeGateway() as fake:
        fake.fault = lambda api, _number: answer if api == refused else None
        text = refusal(f"hbase://127.0.0.1:{fake.port}/p")
        assert expected in text
        assert not any(name != b"p_tx" for name in fake.tables.tables)
        assert b"clock" not in fake.tables.tables.get(b"p_tx", {}) or refused == "atomicIncrement"


@pytest.mark.parametrize("refused", ["createTable", "mutateRowsTs", "checkAndPut"])
def test_a_right_that_is_taken_away_later(refused: str) -> None:
    with FakeGateway() as fake, connect(f"hbase://127.0.0.1:{fake.port}/p", timeout=TIMEOUT) as storage:
        storage.admin.create(BLOBS)
        storage.table("blobs").upsert({"id": 1, "data": b"1"})
        fake.fault = lambda api, _number: (
            "org.apache.hadoop.hbase.security.AccessDeniedException: no" if api == refused else None
        )
        for attempt in (
            lambda: storage.admin.create(TableSpecification("other", BLOBS.fields, ["id"])),
            *((lambda: storage.table("blobs").upsert({"id": 2}),) if refused != "createTable" else ()),
        ):
            started = time.monotonic()
            with pytest.raises(StorageUnavailableError, match="lacks a permission"):
                attempt()
            assert time.monotonic() - started < 30 + PROMPT
        fake.fault = lambda _api, _number: None
        assert storage.admin.list() == ["blobs"]
        assert storage.table("blobs").count() == 1


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("a%20b", "cannot begin the name of an HBase table"),
        ("-a", "cannot begin"),
        (".a", "cannot begin"),
        ("a/b", "cannot begin"),
        ("ä", "cannot begin"),
        ("a:b:c", "cannot begin"),
        ("my-space:a", "cannot begin"),
        (":a", "cannot begin"),
        ("hbase:a", "namespace of HBase's own tables"),
        ("a" * 151, "has 151 characters; at most 150"),
    ],
)
def test_a_prefix_that_hbase_would_refuse(prefix: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        connect(f"hbase://127.0.0.1:{free_port()}/{prefix}")


def test_the_longest_and_the_oddest_prefix(hbase_server: Place, hbase_prefix: str) -> None:
    prefix = f"default:{hbase_prefix}_-.9_".ljust(150, "x")
    with connect(hbase_server.url(prefix)) as storage:
        storage.admin.create(BLOBS)
        storage.table("blobs").upsert({"id": 1, "data": b"1"})
        assert [finding.text for finding in storage.diagnose() if finding.subject == "HBase tables"] == ["1 data table"]
    name = prefix.removeprefix("default:")
    assert Layout(prefix).prefix == name
    assert sorted(tables_of(hbase_server, hbase_prefix)) == [f"{name}_00000001", f"{name}_tx"]


def test_a_namespace_that_is_not_there(hbase_server: Place) -> None:
    text = refusal(hbase_server.url("nowhere:p"))
    assert "HBase has no namespace nowhere; create it in its shell" in text


@pytest.mark.parametrize(("version", "origin"), [(b"1", "by an older one"), (b"5", "by a newer one, or is not")])
def test_a_prefix_of_another_version(
    hbase_server: Place, hbase_prefix: str, hbase_url: str, version: bytes, origin: str
) -> None:
    with connect(hbase_url) as storage:
        storage.admin.create(BLOBS)
    table = f"{hbase_prefix}_tx"
    with closing(hbase_server.connection()) as connection:
        connection.table(table).put(b"format", {b"c:s": version})
        before = list(connection.table(table).scan())
    text = refusal(hbase_url, DataCorruptionError)
    expected = (
        f"the HBase table {table} has the format {version!r}; this version of structable reads 2 to 4: it was made "
        + origin
    )
    assert expected in text
    with closing(hbase_server.connection()) as connection:
        assert list(connection.table(table).scan()) == before


@pytest.mark.parametrize("families", [{"f": {}}, {"c": {}, "x": {}}])
def test_a_foreign_table_under_our_name(
    hbase_server: Place, hbase_prefix: str, hbase_url: str, families: dict[str, dict[str, object]]
) -> None:
    table = f"{hbase_prefix}_tx"
    with closing(hbase_server.connection()) as connection:
        connection.create_table(table, families)
        connection.table(table).put(b"row", {f"{next(iter(families))}:q".encode(): b"value"})
        before = list(connection.table(table).scan())
        text = refusal(hbase_url, DataCorruptionError)
        assert f"the HBase table {table} is not structable's" in text
        assert list(connection.table(table).scan()) == before
    assert tables_of(hbase_server, hbase_prefix) == [table]


def test_a_table_left_empty_by_a_killed_process(hbase_server: Place, hbase_prefix: str, hbase_url: str) -> None:
    """A process killed in between leaves it so; the next one continues."""
    with closing(hbase_server.connection()) as connection:
        connection.create_table(f"{hbase_prefix}_tx", {"c": {"max_versions": 1}, "x": {"max_versions": 2**31 - 1}})
    with connect(hbase_url) as storage:
        assert storage.admin.list() == []


@pytest.mark.parametrize("transport", ["buffered", "framed"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_the_wrong_transport_or_protocol(framed: Gateway, hbase_server: Place, transport: str, protocol: str) -> None:
    for place, right in ((f"127.0.0.1:{framed.port}", "framed"), (urlsplit(hbase_server.address).netloc, "buffered")):
        if (transport, protocol) == ((right, "compact") if right == "framed" else (right, "binary")):
            continue
        text = refusal(f"hbase://{place}/p?transport={transport}&protocol={protocol}")
        assert "transport=" in text
    assert tables_of(hbase_server, "p_") == []


def test_a_gateway_with_frames(framed: Gateway, hbase_prefix: str) -> None:
    """Batches are split to fit its frames; a row that does not fit one is refused with the name of the setting."""
    with connect(framed.url(hbase_prefix)) as storage:
        storage.admin.create(BLOBS)
        table = storage.table("blobs")
        data = bytes(range(250)) * 400
        table.upsert_many({"id": n, "data": data} for n in range(60))  # 6 MB
        assert {row.data for row in table.scan()} == {data}
        assert table.multi_read([(n,) for n in range(60)])[59].data == data
        table.upsert({"id": 100, "data": bytes(1_900_000)})
        tx = storage.transaction()
        tx.table("blobs").upsert({"id": 1, "data": b"lost"})
        tx.table("blobs").upsert({"id": 101, "data": bytes(2_000_000)})
        with pytest.raises(StorageUnavailableError, match=r"hbase\.regionserver\.thrift\.framed\.max_frame_size_in_mb"):
            tx.commit()
        assert table.count() == 61
        row = table.read((1,))
        assert row is not None
        assert row.data == data
        table.upsert({"id": 1, "data": b"new"})  # at once: nothing of the refused commit blocks it


def test_large_rows_without_frames(hbase_url: str) -> None:
    with connect(hbase_url) as storage:
        storage.admin.create(BLOBS)
        table = storage.table("blobs")
        with storage.transaction() as tx:
            for n in range(3):
                tx.table("blobs").upsert({"id": n, "data": bytes([n]) * LARGEST})
        assert [row.data for row in table.scan()] == [bytes([n]) * LARGEST for n in range(3)]
        row = table.read((2,))
        assert row is not None
        assert row.data == bytes([2]) * LARGEST


def test_one_of_several_gateways_is_dead(hbase_server: Place, hbase_prefix: str) -> None:
    parts = urlsplit(hbase_server.url(hbase_prefix))
    for hosts in (f"127.0.0.1:{free_port()},{parts.netloc}", f"{parts.netloc},127.0.0.1:{free_port()}"):
        with connect(parts._replace(netloc=hosts).geturl()) as storage:
            storage.admin.create_or_update(BLOBS)
            storage.table("blobs").upsert({"id": 1})
            assert storage.table("blobs").count() == 1
    text = refusal(parts._replace(netloc=f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}").geturl())
    assert text.count("cannot be reached") == 2
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        hosts = f"127.0.0.1:{silent.getsockname()[1]},{parts.netloc}"
        with connect(with_options(parts._replace(netloc=hosts).geturl(), "timeout=2")) as storage:
            assert storage.table("blobs").count() == 1
