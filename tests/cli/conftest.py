"""The command for tests, in this process or another, on a memory store or, with `every_store`, on several kinds."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import pytest
from typer.testing import CliRunner

from structable.cli.app import app
from structable.spi import Storage, connect
from tests.cli.support.samples import EVERYTHING, ROWS, RUNS, RUNS_ROWS
from tests.postgresql.support.shared import fresh_schema

every_store = pytest.mark.parametrize("url", ["memory", "leveldb", "postgresql"], indirect=True)
"""For tests of a command's effect on a store; the command line is parsed alike on all stores."""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Command(Protocol):
    def __call__(self, *args: object, stdin: str | bytes | None = None) -> Outcome: ...


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRUCTABLE_URL", "STRUCTABLE_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def structable() -> Command:
    """Run the command in this process."""

    def run(*args: object, stdin: str | bytes | None = None) -> Outcome:
        result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert "Traceback" not in result.stderr
        return Outcome(result.exit_code, result.stdout_bytes.decode(), result.stderr)

    return run


@pytest.fixture
def process() -> Command:
    """Run the command in a process of its own."""

    def run(*args: object, stdin: str | bytes | None = None) -> Outcome:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "structable.cli", *(str(arg) for arg in args)],
            input=given,
            capture_output=True,
            timeout=120,
            check=False,
            env={**os.environ, "PYTHONUTF8": "1"},
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@contextmanager
def _fresh_store(request: pytest.FixtureRequest, scheme: str) -> Iterator[str]:
    if scheme == "memory":
        yield f"memory://{uuid.uuid4().hex}"
    elif scheme == "leveldb":
        yield f"leveldb://{request.getfixturevalue('tmp_path_factory').mktemp('leveldb')}/store"
    else:
        with fresh_schema(request.getfixturevalue("postgresql_conninfo")) as schema:
            yield schema.url


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of a fresh store: in memory, or of another kind with `every_store`."""
    with _fresh_store(request, getattr(request, "param", "memory")) as url:
        yield url


@pytest.fixture
def copy_url(request: pytest.FixtureRequest, url: str) -> Iterator[str]:
    """Return the URL of a second store of the same kind."""
    with _fresh_store(request, url.partition("://")[0]) as url:
        yield url


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    """Open the store with two tables: `runs`, and `everything` with a field of each type."""
    with connect(url) as storage:
        storage.admin.create(RUNS)
        storage.admin.create(EVERYTHING)
        storage.table("runs").upsert_many(RUNS_ROWS)
        storage.table("everything").upsert_many(ROWS)
        yield storage


Fails = Callable[..., str]


@pytest.fixture
def fails(structable: Command) -> Fails:
    """Run a command that must fail with a code; return its one line on standard error."""

    def run(code: int, *args: object, stdin: str | bytes | None = None) -> str:
        outcome = structable(*args, stdin=stdin)
        assert (outcome.code, outcome.out) == (code, "")
        line, end, rest = outcome.err.partition("\n")
        assert line.startswith("structable: ")
        assert (end, rest) == ("\n", "")
        return line.removeprefix("structable: ")

    return run
