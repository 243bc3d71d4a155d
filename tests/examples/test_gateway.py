"""The HTTP service of examples/gateway, as a process over real stores."""

import asyncio
import gzip
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from examples.gateway.failures import answer_failures
from examples.gateway.load import Load, measure
from structable.spi import (
    CommitOutcomeUnknownError,
    RecordExistsError,
    RecordNotFoundError,
    StorageUnavailableError,
    TableNotFoundError,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
    Value,
    connect,
)
from tests.examples.support.gateway import Gateway, running
from tests.postgresql.support.server import Server
from tests.postgresql.support.shared import Place, fresh_schema
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("gateway")


@pytest.fixture(scope="module", params=["memory", "leveldb", "postgresql"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway for all tests of one store; each test uses keys of its own."""
    with ExitStack() as stack:
        match request.param:
            case "memory":
                url = "memory://"
            case "leveldb":
                url = f"leveldb://{tmp_path_factory.mktemp('store')}/tables"
            case _:
                place: Place = request.getfixturevalue("postgresql_place")
                url = stack.enter_context(fresh_schema(place.conninfo)).url
        gateway = stack.enter_context(running(url, "--cache-ttl", "60"))
        yield gateway
        assert gateway.end() == 0


@pytest.fixture(params=["leveldb", "postgresql"])
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "leveldb":
        return f"leveldb://{tmp_path}/tables"
    return str(request.getfixturevalue("postgresql_url"))


def stored(url: str) -> dict[Value, Value]:
    with connect(url, create=False) as storage:
        return {row["id"]: row["visits"] for row in storage.table("profiles").scan()}


def test_one_row(gateway: Gateway) -> None:
    ada = {"id": "ada", "name": "Ada", "visits": 3, "seen": "2024-01-01T00:00:00Z"}
    assert gateway.request("GET", "/rows/ada").status == 404
    assert gateway.request("PUT", "/rows/ada", json.dumps(ada)).status == 204
    assert gateway.request("GET", "/rows/ada").json == ada
    assert gateway.request("PUT", "/rows/ada", '{"visits": 4}').status == 204
    assert gateway.request("GET", "/rows/ada").json == {"id": "ada", "name": None, "visits": 4, "seen": None}
    assert gateway.request("PATCH", "/rows/ada", '{"name": "Ada"}').status == 204
    assert gateway.request("POST", "/rows/ada", '{"visits": 5}').status == 204
    assert gateway.request("GET", "/rows/ada").json == {"id": "ada", "name": "Ada", "visits": 5, "seen": None}
    assert gateway.request("DELETE", "/rows/ada").status == 204
    assert gateway.request("DELETE", "/rows/ada").status == 204
    assert gateway.request("GET", "/rows/ada").status == 404


def test_update_of_an_absent_row_needs_a_default(gateway: Gateway) -> None:
    answer = gateway.request("PATCH", "/rows/bob", '{"visits": 1}')
    assert (answer.status, answer.message) == (404, "table 'profiles' has no row with the key ('bob',)")
    default = quote('{"name": "Bob"}')
    assert gateway.request("PATCH", f"/rows/bob?default={default}", '{"visits": 1}').status == 204
    assert gateway.request("GET", "/rows/bob").json == {"id": "bob", "name": "Bob", "visits": 1, "seen": None}


@pytest.mark.parametrize("key", ["", "a/b", "100%", "?x=1#y", "Ωmega", "a b", "e\u0301", ".", "\u2028"])
def test_any_text_is_a_key(gateway: Gateway, key: str) -> None:
    path = f"/rows/{quote(key, safe='')}"
    assert gateway.request("PUT", path, '{"visits": 1}').status == 204
    assert gateway.request("GET", path).json == {"id": key, "name": None, "visits": 1, "seen": None}
    line = json.dumps({"id": key}, ensure_ascii=False)
    assert gateway.request("POST", "/bulk/delete", line).status == 204
    assert gateway.request("GET", path).status == 404


def test_many_rows(gateway: Gateway) -> None:
    rows = [{"id": f"many-{n}", "name": None, "visits": n, "seen": None} for n in range(500)]
    lines = "\n".join(map(json.dumps, rows))
    keys = "\n".join(json.dumps({"id": row["id"]}) for row in rows)
    assert gateway.request("POST", "/bulk/put", lines).status == 204
    found = gateway.request("POST", "/bulk/get", keys).text.splitlines()
    assert sorted(map(json.loads, found), key=lambda row: row["visits"]) == rows
    updates = '{"id": "many-0", "name": "first"}\n\n{"id": "absent"}\n'
    assert gateway.request("POST", "/bulk/update", updates).json == {"missing": [{"id": "absent"}]}
    assert gateway.request("POST", "/bulk/upsert", '{"id": "many-0", "visits": 7}').status == 204
    assert gateway.request("GET", "/rows/many-0").json == {**rows[0], "name": "first", "visits": 7}
    assert gateway.request("POST", "/bulk/delete", keys).status == 204
    assert gateway.request("POST", "/bulk/get", keys).text == ""


def test_health_and_metrics(gateway: Gateway) -> None:
    assert gateway.request("GET", "/health/live").status == 200
    assert gateway.request("GET", "/health").json == {"status": "ready"}
    gateway.request("PUT", "/rows/measured", "{}")
    gateway.request("GET", "/rows/measured")
    metrics = gateway.request("GET", "/metrics").text
    for name in ("table_duration_seconds", "table_batch_size", "table_cache_hits_total", "transactions_committed"):
        assert f"\nstructable_{name}" in metrics
    table = gateway.request("GET", "/table").json
    assert isinstance(table, dict)
    assert (table["name"], table["primary_key"]) == ("profiles", ["id"])


HOSTILE = {
    "no JSON": ("PUT", "/rows/evil", b"oops", 400, "not a row: Expecting value"),
    "no object": ("PUT", "/rows/evil", b"[1]", 400, "a JSON object is needed"),
    "no body": ("PUT", "/rows/evil", b"", 400, "not a row: Expecting value"),
    "no UTF-8": ("PUT", "/rows/evil", b'{"name": "\xff"}', 400, "not UTF-8"),
    "nested": ("PUT", "/rows/evil", b'{"name": ' + b"[" * 100_000, 400, "nested too deeply"),
    "many digits": ("PUT", "/rows/evil", b'{"visits": ' + b"9" * 10_000 + b"}", 400, "not a row"),
    "exponent": ("PUT", "/rows/evil", b'{"visits": 1e999999999}', 400, "not a row"),
    "unknown field": ("PUT", "/rows/evil", b'{"admin": true}', 400, "'admin' is not a field"),
    "field twice": ("PUT", "/rows/evil", b'{"visits": 1, "visits": 2}', 400, "appears twice"),
    "wrong type": ("PATCH", "/rows/evil", b'{"visits": "1"}', 400, "a long is needed"),
    "a float": ("POST", "/rows/evil", b'{"visits": 1.5}', 400, "visits"),
    "a boolean": ("PUT", "/rows/evil", b'{"visits": true}', 400, "visits"),
    "overflow": ("PUT", "/rows/evil", b'{"visits": 9223372036854775808}', 400, "out of the range of long"),
    "no time zone": ("PUT", "/rows/evil", b'{"seen": "2024-01-01T00:00:00"}', 400, "has no time zone"),
    "lone surrogate": ("PUT", "/rows/evil", b'{"name": "\\ud800"}', 400, "name"),
    "NUL": ("PUT", "/rows/evil", b'{"name": "\\u0000"}', 400, "name"),
    "NUL in the key": ("PUT", "/rows/%00", b"{}", 400, "id"),
    "another key": ("PUT", "/rows/evil", b'{"id": "good"}', 400, "id"),
    "another key in the default": ("PATCH", "/rows/evil?default=%7B%22id%22:%22good%22%7D", b"{}", 400, "id"),
    "a default that is no row": ("PATCH", "/rows/evil?default=1", b"{}", 400, "a JSON object is needed"),
    "long key": ("PUT", f"/rows/{'k' * 3_000}", b"{}", 400, "over the limit of 2,000 bytes"),
    "key of no UTF-8": ("GET", "/rows/%ff", None, 400, "key field 'id'"),
    "key of two parts": ("GET", "/rows/evil/2", None, 400, "the path has 2 parts; the key is (id)"),
    "no key in a line": ("POST", "/bulk/put", b'{"id": "evil"}\n{"visits": 1}', 400, "lacks the key field id"),
    "a bad line": ("POST", "/bulk/put", b'{"id": "evil"}\n{"id": 1}', 400, "line 2: not a row: field 'id'"),
    "a long key in a line": (
        "POST",
        "/bulk/put",
        b'{"id": "evil"}\n{"id": "' + b"k" * 3_000 + b'"}',
        400,
        "over the limit of 2,000 bytes",
    ),
    "more than a key": ("POST", "/bulk/delete", b'{"id": "good", "visits": 1}', 400, "visits is not part of the key"),
    "large body": ("PUT", "/rows/evil", b'{"name": "' + b"x" * (17 << 20) + b'"}', 413, "Maximum request body"),
    "large row": (
        "PUT",
        "/rows/evil",
        b'{"name": "' + b"x" * (9 << 20) + b'"}',
        400,
        "over the limit of 8,388,608 bytes",
    ),
    "no such route": ("GET", "/admin", None, 404, "Not Found"),
    "no such method": ("PUT", "/health", None, 405, "Method Not Allowed"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_bad_request_has_one_clear_answer_and_changes_nothing(gateway: Gateway, case: str) -> None:
    method, path, body, status, message = HOSTILE[case]
    gateway.request("PUT", "/rows/good", '{"visits": 1}')
    try:
        answer = gateway.request(method, path, body)
    except BrokenPipeError:  # the answer to a body that is too large comes before its end
        assert status == 413
    else:
        assert (answer.status, message in answer.message) == (status, True), answer
    assert gateway.request("GET", "/rows/evil").status == 404
    assert gateway.request("GET", "/rows/good").json == {"id": "good", "name": None, "visits": 1, "seen": None}


def test_compressed_body_is_limited_by_its_content(gateway: Gateway) -> None:
    bomb = gzip.compress(b'{"name": "' + b" " * (64 << 20) + b'"}')
    assert gateway.request("PUT", "/rows/evil", bomb, Content_Encoding="gzip").status == 413


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"GET /rows/" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", b"PUT /rows/evil HT"],
)
def test_what_is_no_http_ends_its_connection_only(gateway: Gateway, sent: bytes) -> None:
    with gateway.connect() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(100)
    assert answer == b"" or answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400")), answer
    assert gateway.request("GET", "/health").status == 200


def test_bad_request_in_a_batch_harms_no_other(gateway: Gateway) -> None:
    async def send() -> list[int]:
        async with aiohttp.ClientSession(gateway.url, connector=aiohttp.TCPConnector(limit=0)) as session:

            async def put(key: str) -> int:
                async with session.put(f"/rows/{key}", json={"visits": 1}) as answer:
                    return answer.status

            return await asyncio.gather(*(put("k" * 3_000 if n % 10 == 5 else f"beside-{n}") for n in range(100)))

    assert asyncio.run(send()) == [400 if n % 10 == 5 else 204 for n in range(100)]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RecordNotFoundError("t", (1,)), 404),
        (RecordExistsError("t", (1,)), 409),
        (TransactionConflictError("another won"), 409),
        (UnsupportedOperationError("no"), 501),
        (StorageUnavailableError("away"), 503),
        (TableNotFoundError("t"), 503),
        (TransactionClosedError("over"), 503),
        (CommitOutcomeUnknownError("perhaps"), 500),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_error_of_the_store_has_its_status(error: Exception, status: int) -> None:
    async def fail(request: web.Request) -> web.Response:
        raise error

    async def ask() -> tuple[int, object]:
        app = web.Application(middlewares=[answer_failures])
        app.router.add_get("/", fail)
        async with TestClient(TestServer(app)) as client, client.get("/") as answer:
            return answer.status, await answer.json()

    assert asyncio.run(ask()) == (status, {"error": type(error).__name__, "message": str(error)})


class Writers:
    """Clients that write numbered rows without end, and keep the numbers that were acknowledged."""

    def __init__(self, url: str, clients: int) -> None:
        self._url = url
        self._clients = clients
        self.acknowledged: set[int] = set()
        self.refused: list[int] = []

    async def run(self, until_acknowledged: int, reached: asyncio.Event) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(self._url, connector=connector) as session:

            async def client(number: int) -> None:
                while True:
                    try:
                        async with session.put(f"/rows/{number}", json={"visits": number}) as answer:
                            if answer.status != 204:
                                self.refused.append(answer.status)
                                return
                    except aiohttp.ClientError:
                        return  # the connection was closed, or none is accepted any more
                    self.acknowledged.add(number)
                    if len(self.acknowledged) >= until_acknowledged:
                        reached.set()
                    number += self._clients

            await asyncio.gather(*map(client, range(self._clients)))


def write_until_it_ends(gateway: Gateway, *signals: int) -> set[int]:
    """Write, send the signals in the middle, and return the numbers that were acknowledged."""

    async def main() -> set[int]:
        writers, reached = Writers(gateway.url, 32), asyncio.Event()
        writing = asyncio.create_task(writers.run(300, reached))
        await reached.wait()
        for number in signals:
            gateway.process.send_signal(number)
        await writing
        assert writers.refused == []
        return writers.acknowledged

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("durable_url", "signals"),
    [("postgresql", (signal.SIGTERM,)), ("leveldb", (signal.SIGINT, signal.SIGTERM, signal.SIGINT))],
    indirect=["durable_url"],
    ids=["postgresql", "leveldb-three-signals"],
)
def test_signal_under_load_loses_nothing_that_was_acknowledged(durable_url: str, signals: tuple[int, ...]) -> None:
    with running(durable_url) as gateway:
        acknowledged = write_until_it_ends(gateway, *signals)
        assert gateway.process.wait(60) == 0
    assert len(acknowledged) >= 300
    rows = stored(durable_url)
    assert [number for number in acknowledged if rows.get(str(number)) != number] == []


def test_killed_gateway_loses_nothing_that_was_acknowledged(durable_url: str) -> None:
    with running(durable_url) as gateway:
        acknowledged = write_until_it_ends(gateway, signal.SIGKILL)
        gateway.process.wait(60)
    assert len(acknowledged) >= 300
    rows = stored(durable_url)
    assert [number for number in acknowledged if rows.get(str(number)) != number] == []


def test_request_under_way_is_finished(tmp_path: Path) -> None:
    """A write that waits in an open batch when the signal comes is sent, and answered; idle clients delay nothing."""
    url = f"leveldb://{tmp_path}/tables"
    with running(url, "--batch-delay", "1") as gateway, ExitStack() as idle:
        for sent in (b"", b"PUT /rows/half HTTP/1.1\r\nHost: half\r\n"):
            idle.enter_context(gateway.connect()).sendall(sent)

        async def main() -> int:
            async with aiohttp.ClientSession(gateway.url) as session:
                put = asyncio.create_task(session.put("/rows/late", json={"visits": 1}))
                while (await (await session.get("/health/live")).json())["pending"] == 0:
                    assert not put.done()
                gateway.process.send_signal(signal.SIGTERM)
                return (await put).status

        assert asyncio.run(main()) == 204
        assert gateway.process.wait(60) == 0
    assert stored(url) == {"late": 1}


def test_readiness_follows_the_store(postgresql_server: Server) -> None:
    with running(postgresql_server.url("ready"), "--probe-timeout", "0.5", "--timeout", "0.5") as gateway:
        assert gateway.request("GET", "/health/ready").status == 200
        postgresql_server.stop()
        assert gateway.request("GET", "/health/ready").status == 503
        assert gateway.request("GET", "/health/live").status == 200
        assert gateway.request("GET", "/rows/ada").status in (503, 504)
        postgresql_server.start()
        until(lambda: gateway.request("GET", "/health/ready").status == 200)
        assert gateway.request("GET", "/rows/ada").status == 404


def test_compact_batches_take_no_update() -> None:
    with running("memory://", "--batching", "compact", "--cache-rows", "0") as gateway:
        assert gateway.request("PUT", "/rows/ada", '{"visits": 1}').status == 204
        assert gateway.request("PATCH", "/rows/ada", '{"visits": 2}').status == 501
        assert gateway.request("POST", "/bulk/update", '{"id": "ada", "visits": 2}').status == 501
        assert gateway.request("GET", "/rows/ada").json == {"id": "ada", "name": None, "visits": 1, "seen": None}


def test_wrong_start_has_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="gateway: BackendNotFoundError"), running("nosuch://x"):
        raise AssertionError("it started")


def test_batches_form_as_concurrency_rises(tmp_path: Path) -> None:
    with running(f"leveldb://{tmp_path}/tables") as gateway:
        alone, together = (
            asyncio.run(measure(Load(gateway.url, seconds=0.5, rows=200), clients)) for clients in (1, 64)
        )
    assert alone.failed == together.failed == 0
    assert alone.batch == 1
    assert together.batch > 2
    assert 0 < together.hits <= 1  # one client may make too few requests to meet a row again
    assert len(together.line().split()) == 8
