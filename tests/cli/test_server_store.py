"""The command on a store behind a password and a network: what goes wrong on the way is one line without a secret."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from structable.spi import connect
from tests.cli.conftest import Command, Fails
from tests.cli.support.samples import RUNS
from tests.postgresql.support.server import Server

WRONG = "ge%2Fheim:%40x"  # differs from both its typed and its sent form

COMMANDS: list[tuple[str, ...]] = [
    ("tables",),
    ("describe", "runs"),
    ("create", "runs.toml"),
    ("drop", "runs", "--yes"),
    ("get", "runs", "a", "1", "1"),
    ("put", "runs", "app=a", "started=1", "attempt=1"),
    ("delete", "runs", "--all"),
    ("scan", "runs"),
    ("count", "runs"),
    ("explain", "runs"),
    ("import", "runs", "runs.csv"),
    ("export", "runs", "out.csv"),
    ("conformance",),
    ("compact",),
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs.toml").write_text('name = "runs"\nprimary_key = ["a"]\n[fields]\na = "int"\n')
    Path("runs.csv").write_text("app,started,attempt\na,1,1\n")


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}:{password}@{parts.hostname}:{parts.port}").geturl()


@pytest.fixture
def dead_server() -> Iterator[str]:
    """Return a URL whose port has no listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"postgresql://app:{WRONG}@127.0.0.1:{taken.getsockname()[1]}/app"


def check_all(structable: Command, fails: Fails, url: str, reason: str) -> None:
    """Let every command fail to connect, with the URL as argument and in the environment."""
    for command, *rest in COMMANDS:
        place = f"{url}?schema={{fresh}}" if command == "conformance" else f"{url}?schema=s"
        message = fails(4, command, place, *rest)
        assert reason in message
        assert "heim" not in message
        assert "app:***@" in message
    outcome = structable("doctor", url)
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out.splitlines()[-1].startswith("problem  connection: cannot connect to postgresql://app:***@")
    assert reason in outcome.out
    assert "heim" not in outcome.out
    assert not Path("out.csv").exists()


def test_a_server_that_is_down(structable: Command, fails: Fails, dead_server: str) -> None:
    check_all(structable, fails, dead_server, "Connection refused")


def test_a_server_that_refuses(
    structable: Command, fails: Fails, postgresql_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql_server.url("runs").partition("?")[0]
    with connect(f"{url}?schema=runs") as storage:
        storage.admin.create(RUNS)
    check_all(structable, fails, with_password(url, WRONG), "password authentication failed")
    missing = fails(4, "tables", f"{url}_not_there")
    assert 'database "app_not_there" does not exist' in missing
    assert postgresql_server.password not in missing
    option = with_password(url, "").replace(":@", "@") + "?password=geheim"
    assert "app@127.0.0.1" in fails(4, "tables", option)
    assert "geheim" not in fails(4, "tables", option)
    monkeypatch.setenv("STRUCTABLE_URL", with_password(url, WRONG))
    assert "heim" not in fails(4, "scan", "runs")
    monkeypatch.setenv("STRUCTABLE_URL", f"{with_password(url, '').replace(':@', '@')}?schema=runs")
    monkeypatch.setenv("PGPASSWORD", postgresql_server.password)
    assert structable("tables") == (0, "runs\n", "")
    postgresql_server.stop()
    assert "Connection refused" in fails(4, "count", "runs")


def test_the_suite_on_a_server(process: Command, postgresql_server: Server) -> None:
    url = postgresql_server.url("{fresh}")
    rules = "test_upsert_many or test_splits_are_picklable or test_modes"
    outcome = process("conformance", url, "-k", f"test_at_most_sixteen_key_fields or {rules}", "-x")
    assert outcome.code == 0, outcome.out
    assert " passed" in outcome.out
    with psycopg.connect(postgresql_server.conninfo) as connection:
        schemas = connection.execute("select count(*) from pg_namespace where nspname ~ '^c[0-9a-f]{15}$'").fetchone()
    assert schemas is not None
    assert schemas[0] > 3
    assert postgresql_server.password not in outcome.out + outcome.err
