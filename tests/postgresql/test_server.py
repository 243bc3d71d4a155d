"""The servers that tests run on: shared, stopped, killed, and gone afterwards in every case."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.postgresql.support.fixtures import StartServer
from tests.postgresql.support.server import ROLE, Server
from tests.postgresql.support.shared import (
    URL_VARIABLE,
    LeakedTransactionError,
    Place,
    Schema,
    fresh_schema,
    shared_server,
)
from tests.servers.availability import NoServerError, unavailable
from tests.servers.processes import ServerFailedError, wait_for_end
from tests.servers.revival import ServerDiedError

ROOT = Path(__file__).parent.parent.parent
SHARED = "tests.postgresql.support.shared"


def fetch(conninfo: str, query: str) -> object:
    with psycopg.connect(conninfo, connect_timeout=10) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.usefixtures("start_postgresql")  # asks for the binaries
class TestSharing:
    @pytest.fixture(autouse=True)
    def only_local_binaries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(URL_VARIABLE, raising=False)
        monkeypatch.setattr(f"{SHARED}.containers_run", lambda: False)

    def test_all_that_name_one_folder_share_a_server_until_the_last_leaves(self, tmp_path: Path) -> None:
        with shared_server(tmp_path) as place:
            conninfo = place.conninfo
            pid = int(str(fetch(conninfo, "SELECT pg_backend_pid()")))
            with shared_server(tmp_path) as same:
                assert same.conninfo == conninfo
            assert int(str(fetch(conninfo, "SELECT pg_backend_pid()"))) != pid
        with pytest.raises(psycopg.OperationalError, match="refused"):
            fetch(conninfo, "SELECT 1")
        with shared_server(tmp_path) as another:
            assert fetch(another.conninfo, "SELECT 1") == 1

    def test_killed_test_run_leaves_no_server(self, tmp_path: Path) -> None:
        program = f"""
import os, signal
from pathlib import Path
from tests.postgresql.support.server import Server
from tests.servers.held import joined_or_created
server = joined_or_created(Path({str(tmp_path)!r}), "postgresql", Server, Server.create)
print(server.pid, server.folder, flush=True)
signal.pause()
"""
        run = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        pid, folder = run.stdout.readline().split()
        run.send_signal(signal.SIGKILL)
        wait_for_end(int(pid))
        run.communicate()
        # The folder goes after the server; joining it meanwhile starts another.
        with shared_server(tmp_path) as place:
            assert fetch(place.conninfo, "SELECT 1") == 1
        assert folder not in (tmp_path / "postgresql.place").read_text()

    def test_dead_server_is_named_once_and_started_again(self, tmp_path: Path) -> None:
        with shared_server(tmp_path) as place, shared_server(tmp_path) as same:
            place.require_alive()
            assert place.server is not None
            place.server.kill()
            with pytest.raises(ServerDiedError, match=r"(?s)its process has ended.*runs again.*ready to accept"):
                same.require_alive()
            place.require_alive()
            assert fetch(place.conninfo, "SELECT 1") == 1
            place.server.kill()
            version = place.server.folder / "data" / "PG_VERSION"
            version.rename(version.with_name("hidden"))
            with pytest.raises(ServerDiedError, match="does not start again"):
                place.require_alive()
            with pytest.raises(ServerDiedError, match="died before"):
                same.require_alive()
            version.with_name("hidden").rename(version)

    def test_given_url_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(URL_VARIABLE, "postgresql://me@example/test")
        with shared_server(tmp_path) as place:
            assert place == Place("postgresql://me@example/test")

    def test_no_server_is_an_error_that_names_the_packages(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{SHARED}.find_binaries", lambda: None)
        message = f"set {URL_VARIABLE}=.*Debian: postgresql.*pip install testcontainers"
        with pytest.raises(NoServerError, match=message), shared_server(tmp_path):
            pass


def test_missing_server_skips_the_test_unless_all_stores_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRUCTABLE_REQUIRE_ALL_BACKENDS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no server"):
        unavailable("no server")
    monkeypatch.setenv("STRUCTABLE_REQUIRE_ALL_BACKENDS", "1")
    with pytest.raises(pytest.fail.Exception, match="no server"):
        unavailable("no server")


def test_url_of_a_schema_keeps_the_parameters_of_the_database() -> None:
    assert Schema("postgresql://h/d", "s").url == "postgresql://h/d?schema=s"
    assert Schema("postgresql://h/d?sslmode=require", "s").url == "postgresql://h/d?sslmode=require&schema=s"


def test_schema_is_fresh_and_dropped_afterwards(postgresql_conninfo: str) -> None:
    found = "SELECT count(*) FROM pg_namespace WHERE nspname = '{}'"
    with fresh_schema(postgresql_conninfo) as schema:
        assert fetch(postgresql_conninfo, found.format(schema.name)) == 0
        with psycopg.connect(postgresql_conninfo) as connection:
            connection.execute(f"CREATE SCHEMA {schema.name} CREATE TABLE t (k int)".encode())
    assert fetch(postgresql_conninfo, found.format(schema.name)) == 0


def test_leaked_transaction_is_an_error_that_shows_it(
    postgresql_conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SHARED}.DROP_TIMEOUT", 0.1)
    with psycopg.connect(postgresql_conninfo, application_name="leaky") as connection:
        place = fresh_schema(postgresql_conninfo)
        schema = place.__enter__()
        connection.execute(f"CREATE SCHEMA {schema.name} CREATE TABLE t (k int)".encode())
        connection.commit()
        connection.execute(f"SELECT * FROM {schema.name}.t".encode())
        with pytest.raises(LeakedTransactionError, match=r"leaky, idle in transaction: SELECT \* FROM .*\.t"):
            place.__exit__(None, None, None)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_role_is_no_superuser_and_text_sorts_by_a_language(postgresql_server: Server) -> None:
    assert fetch(postgresql_server.conninfo, "SELECT current_user") == ROLE
    assert fetch(postgresql_server.conninfo, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    if fetch(postgresql_server.conninfo, "SELECT current_setting('server_version_num')::int >= 150000"):
        assert fetch(postgresql_server.conninfo, "SELECT 'a' < 'B'") is True
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        fetch(postgresql_server.conninfo.replace(postgresql_server.password, "wrong"), "SELECT 1")


def test_server_keeps_port_and_commits_through_restart_stop_and_kill(postgresql_server: Server) -> None:
    conninfo = postgresql_server.conninfo
    with psycopg.connect(conninfo) as connection:
        connection.execute("CREATE TABLE t (k int)")

    def insert_then(fault: str) -> None:
        connection = psycopg.connect(conninfo, autocommit=True)
        connection.execute("INSERT INTO t VALUES (1)")
        getattr(postgresql_server, fault)()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        connection.close()

    insert_then("restart")
    for number, fault in enumerate(("stop", "kill"), start=2):
        insert_then(fault)
        assert postgresql_server.pid is None
        with pytest.raises(psycopg.OperationalError, match="refused"):
            fetch(conninfo, "SELECT 1")
        getattr(postgresql_server, fault)()  # again: nothing happens
        postgresql_server.start()
        assert fetch(conninfo, "SELECT count(*) FROM t") == number
    assert "database system was not properly shut down" in postgresql_server.log()


def test_settings_reach_the_server(start_postgresql: StartServer) -> None:
    server = start_postgresql(fsync=False, max_connections="17")
    assert fetch(server.conninfo, "SHOW max_connections") == "17"
    assert fetch(server.conninfo, "SHOW fsync") == "off"


def test_server_that_cannot_start_shows_its_log_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, start_postgresql: StartServer
) -> None:
    made: list[str] = []

    def make_folder(prefix: str, mkdtemp: Callable[..., str] = tempfile.mkdtemp) -> str:
        made.append(mkdtemp(prefix=prefix))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_folder)
    with pytest.raises(ServerFailedError, match='unrecognized configuration parameter "no_such"'):
        start_postgresql(no_such="1")
    assert [Path(folder).exists() for folder in made] == [False]


def test_command_runs_a_server_until_it_is_interrupted(start_postgresql: StartServer) -> None:
    command = [sys.executable, "-m", "tests.postgresql.support.server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        assert url.endswith("?schema=structable")
        conninfo = url.partition("?")[0]
        assert fetch(conninfo, "SHOW fsync") == "on"
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 0
    with pytest.raises(psycopg.OperationalError, match="refused"):
        fetch(conninfo, "SELECT 1")
