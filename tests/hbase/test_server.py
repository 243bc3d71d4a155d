"""The HBase that tests run on: shared, split, stopped, killed, and gone afterwards in every case."""

import os
import signal
import socket
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from tests.hbase.support import jars
from tests.hbase.support.fixtures import StartHBase
from tests.hbase.support.server import Gateway
from tests.hbase.support.shared import URL_VARIABLE, Place, Sweeper, fresh_prefix, shared_server
from tests.servers.availability import NoServerError
from tests.servers.processes import ServerFailedError, free_port, wait_for_end
from tests.servers.revival import ServerDiedError, require_alive

ROOT = Path(__file__).parent.parent.parent
SHARED = "tests.hbase.support.shared"


@pytest.fixture
def only_local_jars(start_hbase: StartHBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.setattr(f"{SHARED}.containers_run", lambda: False)


def refused(port: int) -> bool:
    with pytest.raises(Exception, match="Could not connect"):
        Gateway(Path("/nowhere"), port).connection()
    return True


def put(gateway: Gateway, number: int) -> None:
    with closing(gateway.connection()) as connection:
        connection.table("kept").put(b"%d" % number, {b"f:c": b"value"})


def kept(gateway: Gateway) -> int:
    with closing(gateway.connection()) as connection:
        return sum(1 for _row in connection.table("kept").scan())


@pytest.mark.long
def test_server_survives_stops_and_kills_without_losing_a_put(start_hbase: StartHBase) -> None:
    server = start_hbase()
    with closing(server.gateway.connection()) as connection:
        connection.create_table("kept", {"f": {}})
    put(server.gateway, 0)
    with closing(server.gateway.connection()) as connection:
        table = connection.table("kept")
        for number in range(1, 1000):
            table.put(b"%d" % number, {b"f:c": b"value"})
        server.kill()
    assert server.pid is None
    server.kill()  # again: nothing happens
    server.start()
    assert kept(server.gateway) == 1000

    server.kill_gateway()
    assert refused(server.port)
    server.start()
    put(server.gateway, 1000)

    port = server.port
    server.stop()
    server.stop()
    assert server.pid is None
    assert refused(port)
    server.start()
    assert server.port == port
    assert kept(server.gateway) == 1001


@pytest.mark.long
def test_gateways_have_their_own_port_and_settings(start_hbase: StartHBase) -> None:
    server = start_hbase(**{"hbase.rpc.timeout": "5000"})
    second = server.start_gateway(framed=True, compact=True, settings={"hbase.client.pause": "7"})
    assert second.port != server.port
    assert second.url("p") == f"hbase://127.0.0.1:{second.port}/p?transport=framed&protocol=compact"
    assert server.url("p") == f"hbase://127.0.0.1:{server.port}/p"
    with closing(second.connection()) as connection:
        connection.create_table("kept", {"f": {}})
    put(second, 1)
    assert kept(server.gateway) == 1

    server.kill_gateway()
    assert refused(server.port)
    put(second, 2)
    assert server.start_gateway(framed=True) is server.gateway
    assert kept(server.gateway) == 2

    settings = (server.folder / f"gateway-{second.port}" / "hbase-site.xml").read_text()
    assert "<name>hbase.rpc.timeout</name><value>5000</value>" in settings
    assert "<name>hbase.client.pause</name><value>7</value>" in settings


def test_splits_are_seen_through_the_gateway(hbase_server: Place, hbase_prefix: str) -> None:
    if hbase_server.server is None:
        pytest.skip("the gateway itself cannot split")
    name = f"{hbase_prefix}_split"
    with closing(hbase_server.connection()) as connection:
        connection.create_table(name, {"f": {}})
        table = connection.table(name)
        for number in range(100):
            table.put(b"%02d" % number, {b"f:c": b"value"})
        assert table.regions()[0]["start_key"] == b""
        hbase_server.server.split(name)
        hbase_server.server.split(name, b"25")
        assert [region["start_key"] for region in table.regions()] == [b"", b"25", b"50"]
        hbase_server.server.flush(name)
        hbase_server.server.compact(name)
        assert sum(1 for _row in table.scan()) == 100


@pytest.mark.usefixtures("only_local_jars")
def test_all_that_name_one_folder_share_a_server_until_the_last_leaves(tmp_path: Path) -> None:
    with shared_server(tmp_path) as place:
        with shared_server(tmp_path) as same:
            assert same.address == place.address
        with closing(place.connection()) as connection:
            connection.tables()
        assert place.server is not None
        port = place.server.port
    assert refused(port)


@pytest.mark.usefixtures("only_local_jars")
def test_killed_test_run_leaves_no_server(tmp_path: Path) -> None:
    program = f"""
import signal
from pathlib import Path
from tests.hbase.support.server import Server
from tests.servers.held import joined_or_created
server = joined_or_created(Path({str(tmp_path)!r}), "hbase", Server, Server.create)
second = server.start_gateway()
print(server.pid, server.gateway.pid, second.pid, flush=True)
signal.pause()
"""
    run = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    pids = [int(pid) for pid in run.stdout.readline().split()]
    assert len(pids) == 3
    run.send_signal(signal.SIGKILL)
    for pid in pids:
        wait_for_end(pid)
    run.communicate()


@pytest.mark.usefixtures("only_local_jars")
@pytest.mark.long
def test_dead_server_is_named_once_and_started_again(tmp_path: Path) -> None:
    """After any kind of death, the current test fails with the log, and later ones find the server with its data."""
    with shared_server(tmp_path) as place, shared_server(tmp_path) as same:
        server = place.server
        assert server is not None
        with closing(place.connection()) as connection:
            connection.create_table("kept", {"f": {}})
        put(server.gateway, 1)
        place.require_alive()
        server.kill()
        with pytest.raises(ServerDiedError, match="HBase's process has ended"):
            place.require_alive()
        same.require_alive()
        assert kept(server.gateway) == 1

        with (server.folder / "hbase" / "log").open("a") as log:
            log.write("2026-11-23 ERROR ***** ABORTING master localhost: session expired *****\nthe last line\n")
        assert "ABORTING master localhost: session expired" in str(server.trouble())
        assert "the last line" in server.last_words()


def test_server_that_does_not_start_again_ends_the_run_soon(tmp_path: Path) -> None:
    class Lost:
        folder = tmp_path
        attempts = 0

        def trouble(self) -> str:
            return "its end"

        def revive(self) -> None:
            self.attempts += 1
            raise ServerFailedError("no room\nand more")

        def last_words(self) -> str:
            return "line 999"

    lost = Lost()
    with pytest.raises(ServerDiedError, match=r"(?s)the server died, for its end.*no room\. All.*line 999"):
        require_alive(lost, "the server")
    for _ in range(3):
        with pytest.raises(ServerDiedError, match=r"died before and did not start again: no room\Z"):
            require_alive(lost, "the server")
    assert lost.attempts == 1


def test_given_server_that_is_gone_fails_tests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    port = free_port()
    place = Place(f"hbase://127.0.0.1:{port}")
    for expected in (4, 0, 0):
        pauses.clear()
        with pytest.raises(ServerDiedError, match=str(port)):
            place.require_alive()
        assert len(pauses) == expected
    with socket.create_server(("127.0.0.1", port)):
        place.require_alive()


def test_given_url_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "hbase://example:1?transport=framed")
    with shared_server(tmp_path) as place:
        assert place.url("prefix") == "hbase://example:1/prefix?transport=framed"
    for wrong in ("hbase://example:1/prefix", "example:1"):
        monkeypatch.setenv(URL_VARIABLE, wrong)
        with pytest.raises(NoServerError, match="without a prefix"), shared_server(tmp_path):
            pass


def test_no_server_is_an_error_that_names_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.setattr(f"{SHARED}.containers_run", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    for has, lacks in ((set[str](), "openjdk-17"), ({"java"}, "Debian: maven")):
        monkeypatch.setattr("shutil.which", lambda name, has=has: name if name in has else None)
        message = f"set {URL_VARIABLE}=.*{lacks}.*pip install testcontainers"
        with pytest.raises(NoServerError, match=message), shared_server(tmp_path):
            pass


def test_jars_are_fetched_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{maven.parent}:{os.environ['PATH']}")

    def write(ending: str) -> None:
        maven.write_text(
            "#!/bin/sh\n"
            'for word in "$@"; do case $word in -DoutputDirectory=*) folder=${word#*=};; esac; done\n'
            f'mkdir -p "$folder"; touch "$folder/$$.jar"; {ending}\n'
        )
        maven.chmod(0o755)

    write("echo no route to the registry; exit 1")
    with pytest.raises(ServerFailedError, match="no route to the registry"):
        jars.resolve()
    write("exit 0")
    program = "from tests.hbase.support import jars; print(jars.resolve())"
    runs = [
        subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    folders = {run.communicate(timeout=60)[0].strip() for run in runs}
    assert folders == {str(jars.resolve())}
    assert len(list(jars.resolve().iterdir())) == 1  # the interrupted one's is gone, and only one process fetched


def test_tables_of_a_prefix_are_dropped_and_no_others(hbase_server: Place) -> None:
    other = f"other{uuid.uuid4().hex}"
    with closing(hbase_server.connection()) as connection:
        with Sweeper(Place(hbase_server.address)) as sweeper, fresh_prefix(sweeper) as prefix:
            names = [prefix, f"{prefix}_a", f"{prefix}_b", f"{prefix}longer_a", other]
            for name in names:
                connection.create_table(name, {"f": {}})
            connection.disable_table(f"{prefix}_b")
        left = {table.decode() for table in connection.tables()} & set(names)
        assert left == {f"{prefix}longer_a", other}
        for name in left:
            connection.delete_table(name, disable=True)


@pytest.mark.usefixtures("start_hbase")
def test_command_runs_a_server_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "tests.hbase.support.server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        place = Place(url.removesuffix("/structable"))
        assert place.url("structable") == url
        with closing(place.connection()) as connection:
            connection.tables()
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 0
    with pytest.raises(Exception, match="Could not connect"):
        place.connection()
