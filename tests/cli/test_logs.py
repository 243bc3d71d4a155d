"""Logs on the command line: rows come by put and import, and are seen in changes, copies and dumps."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.backends.base.feed_marks import FeedRequest
from structable.backends.ordered.feeds.feed import OrderedFeed
from structable.spi import Change, connect
from tests.cli.conftest import Command, Fails, every_store

LOG = 'name = "log"\nfields = { at = "long", text = "string" }\n[options]\nwrite-mode = "log"\n'


def seen(structable: Command, url: str, *args: str) -> list[tuple[int, str]]:
    outcome = structable("changes", url, "log", "--format", "json", *args)
    assert outcome.code == 0, outcome.err
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert all(row["_change_type"] == "insert" for row in rows)
    return [(row["at"], row["text"]) for row in rows]


@every_store
def test_a_log(structable: Command, fails: Fails, url: str, copy_url: str, tmp_path: Path) -> None:
    with connect(url), connect(copy_url) as copy:  # a store in memory ends with its last connection
        assert structable("create", url, "-", stdin=LOG).code == 0
        assert structable("put", url, "log", "at=1", "text=a").code == 0
        file = tmp_path / "log.csv"
        file.write_text("at,text\n3,c\n2,b\n3,c\n")
        assert structable("import", url, "log", file).err.startswith("3 rows of")
        rows = [(1, "a"), (3, "c"), (2, "b"), (3, "c")]
        assert seen(structable, url) == rows
        described = structable("describe", url, "log").out.splitlines()
        assert "type: log without a primary key: rows are kept in the change feed only" in described
        assert any(
            line.startswith("change feed: input: the rows as given to the calls, kept for 7 d") for line in described
        )
        outcome = structable("doctor", url)
        assert outcome.code == 0, outcome.out
        assert "table log: 4 changes of a log are readable" in outcome.out

        assert structable("copy", url, copy_url, "--dry-run").err.startswith("table log: 4 rows would be copied")
        assert structable("copy", url, copy_url).err == "table log: 4 rows are copied\n"
        assert seen(structable, copy_url) == rows
        assert copy.admin.get_specification("log").table_options.log
        assert "has rows in" in fails(2, "copy", url, copy_url)
        assert structable("copy", url, copy_url, "--mode", "insert").code == 0
        assert seen(structable, copy_url) == rows * 2

        folder = tmp_path / "dump"
        assert structable("export", url, "--all", folder).code == 0
        assert structable("drop", copy_url, "log", "--yes").code == 0
        assert structable("import", copy_url, "--all", folder).code == 0
        assert seen(structable, copy_url) == rows


@pytest.mark.parametrize("command", ["scan", "count", "export", "delete"])
def test_what_a_log_refuses(structable: Command, fails: Fails, url: str, tmp_path: Path, command: str) -> None:
    with connect(url):
        assert structable("create", url, "-", stdin=LOG).code == 0
        structable("put", url, "log", "at=1")
        args = {"export": [str(tmp_path / "x.csv")], "delete": ["--all", "--yes"]}.get(command, [])
        assert "a log keeps no rows: read its changes" in fails(1, command, url, "log", *args)
        assert "table log with 1 row in" in fails(2, "drop", url, "log")
        changed = LOG.replace('"log"\n', '"append-only"\n').replace('name = "append-only"', 'name = "log"')
        assert "cannot become" in fails(1, "create", url, "-", "--update", stdin=changed)


def test_doctor_of_a_log_that_expires_as_it_is_read(
    structable: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That other processes drop what is too old is no problem of the store."""
    made = OrderedFeed._changes

    with connect(url) as other:

        def expiring(feed: OrderedFeed, request: FeedRequest) -> Iterator[Change]:
            monkeypatch.setattr(OrderedFeed, "_changes", made)
            other.changes("log").expire(other.changes("log").latest())
            other.table("log").insert({"at": 2})
            return made(feed, request)

        assert structable("create", url, "-", stdin=LOG).code == 0
        assert structable("put", url, "log", "at=1").code == 0
        monkeypatch.setattr(OrderedFeed, "_changes", expiring)
        outcome = structable("doctor", url)
        assert outcome.code == 0, outcome.out
        assert "table log: 1 changes of a log are readable" in outcome.out
