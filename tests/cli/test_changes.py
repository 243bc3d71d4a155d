"""changes: the change feed of a table on the command line."""

import csv
import datetime as dt
import io
import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from structable.spi import ChangeFeed, FeedPosition, Storage, Value
from tests.cli.conftest import Command, every_store
from tests.cli.support.samples import RUNS
from tests.cli.support.signals import inherited

FED = RUNS.evolve(name="fed", options={"changelog-producer": "lookup"})
ETL: dict[str, Value]
WEB: dict[str, Value]
ETL, WEB = {"app": "etl", "started": 1, "attempt": 1}, {"app": "web", "started": 1, "attempt": 1}
POSITION = re.compile(r"structable: position ([0-9a-f]{16}:\d+)\n")


@pytest.fixture
def changed(storage: Storage) -> list[str]:
    """Make changes, and return the positions after each commit, and the one before all."""
    storage.admin.create(FED)
    feed, table = storage.changes("fed"), storage.table("fed")
    positions = [str(feed.latest())]
    for rows in ([{**ETL, "status": "NEW"}, {**WEB, "status": "NEW"}], [{**ETL, "status": "DONE"}]):
        table.upsert_many(rows)
        positions.append(str(feed.latest()))
    table.delete(("web", 1, 1))
    return [*positions, str(feed.latest())]


def lines(structable: Command, url: str, *args: object) -> list[tuple[object, ...]]:
    outcome = structable("changes", url, "fed", "--format", "json", *args)
    assert outcome.code == 0, outcome.err
    assert POSITION.fullmatch(outcome.err)
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert all(list(row)[:3] == ["_change_type", "_commit_version", "_commit_timestamp"] for row in rows)
    return [(row["_change_type"], row["app"], row["status"]) for row in rows]


NEW = [("insert", "etl", "NEW"), ("insert", "web", "NEW")]
DONE = [("update_preimage", "etl", "NEW"), ("update_postimage", "etl", "DONE")]
GONE = [("delete", "web", "NEW")]


@every_store
def test_ranges(structable: Command, url: str, storage: Storage, changed: list[str]) -> None:
    assert lines(structable, url)[2:] == [*DONE, *GONE]
    assert sorted(lines(structable, url), key=str) == sorted([*NEW, *DONE, *GONE], key=str)
    assert lines(structable, url, "--since", changed[1]) == [*DONE, *GONE]
    assert lines(structable, url, "--since", changed[1], "--until", changed[2]) == DONE
    assert lines(structable, url, "--since", "latest") == []
    assert lines(structable, url, "--since", "2001-01-01T00:00:00Z") == lines(structable, url)
    assert lines(structable, url, "--since", "9999-01-01T00:00:00Z") == []
    assert lines(structable, url, "--since", changed[2], "--until", changed[1]) == []
    assert lines(structable, url, "--since", changed[0], "--net") == [("insert", "etl", "DONE")]


def test_the_position_is_where_the_next_call_goes_on(
    structable: Command, url: str, storage: Storage, changed: list[str]
) -> None:
    outcome = structable("changes", url, "fed", "--limit", 1)
    found = POSITION.fullmatch(outcome.err)
    assert found
    assert FeedPosition.parse(found[1]) == FeedPosition.parse(changed[1])
    assert len(outcome.out.splitlines()) == 2 + 2
    assert lines(structable, url, "--since", found[1]) == [*DONE, *GONE]
    assert lines(structable, url, "--since", found[1], "--limit", 2) == DONE


def test_a_table_is_cut_after_about_a_hundred_changes(structable: Command, url: str, storage: Storage) -> None:
    storage.admin.create(FED)
    for number in range(3):
        storage.table("fed").upsert_many({**ETL, "attempt": 60 * number + i} for i in range(60))
    outcome = structable("changes", url, "fed")
    assert len(outcome.out.splitlines()) == 2 + 60
    assert outcome.err.startswith("structable: only the first changes are shown, about 100; --limit shows more\n")
    assert len(structable("changes", url, "fed", "--limit", 1000).out.splitlines()) == 2 + 180


def test_commits_to_another_table_are_no_further_changes(
    structable: Command, url: str, storage: Storage, changed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.admin.create(FED.evolve(name="other"))
    feed = type(storage.changes("fed"))
    advance = feed.advance

    def overtaken(own: ChangeFeed, since: FeedPosition, rows: int) -> FeedPosition:
        reached = advance(own, since, rows)
        storage.table("other").upsert(ETL)
        return reached

    monkeypatch.setattr(feed, "advance", overtaken)
    assert POSITION.fullmatch(structable("changes", url, "fed").err)


def test_formats_and_columns(
    structable: Command, url: str, storage: Storage, changed: list[str], tmp_path: Path
) -> None:
    chosen = ("--columns", "status,app", "--since", changed[2])
    rows = list(csv.DictReader(io.StringIO(structable("changes", url, "fed", *chosen, "--format", "csv").out)))
    assert list(rows[0])[3:] == ["status", "app"]
    assert (rows[0]["_change_type"], rows[0]["app"]) == ("delete", "web")
    file = tmp_path / "changes.arrows"
    assert structable("changes", url, "fed", *chosen, "-o", file).code == 0
    table = pa.ipc.open_stream(file.read_bytes()).read_all()
    assert table.column_names == ["_change_type", "_commit_version", "_commit_timestamp", "status", "app"]
    assert table.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")


def test_changes_of_another_store_are_imported_as_they_are(
    structable: Command, url: str, storage: Storage, changed: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "changes.jsonl"
    assert structable("changes", url, "fed", "-o", file).code == 0
    storage.admin.create(RUNS.evolve(name="copy"))
    outcome = structable("import", url, "copy", file, "--mode", "changes")
    assert outcome.code == 0, outcome.err
    assert list(storage.table("copy").scan()) == list(storage.table("fed").scan())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--since", "yesterday"], "--since is 'yesterday'; it must be FEED:VERSION"),
        (["--until", "12"], "--until is '12'; it must be FEED:VERSION"),
        (["--follow", "--net"], "--follow runs for ever"),
        (["--follow", "--output", "x.json"], "--follow runs for ever"),
        (["--follow", "--format", "arrow"], "--follow writes json, csv or a table"),
        (["--columns", "nope"], "'nope' is not a field"),
    ],
)
def test_usage(
    structable: Command, url: str, storage: Storage, changed: list[str], args: list[str], message: str
) -> None:
    outcome = structable("changes", url, "fed", *args)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_lost_changes_and_tables_without_a_feed(
    structable: Command, url: str, storage: Storage, changed: list[str]
) -> None:
    storage.changes("fed").expire(FeedPosition.parse(changed[2]))
    outcome = structable("changes", url, "fed", "--since", changed[0])
    assert (outcome.code, outcome.out) == (1, "")
    assert "has expired" in outcome.err
    assert "snapshot" in outcome.err
    outcome = structable("changes", url, "runs")
    assert outcome.code == 1
    assert "has no change feed" in outcome.err
    assert structable("changes", url, "nope").code == 3


def test_describe_names_the_feed(structable: Command, url: str, storage: Storage, changed: list[str]) -> None:
    assert "change feed: lookup: the rows before and after each commit, kept for 7 d" in (
        structable("describe", url, "fed").out
    )


def _follow(url: str, since: str, *ignored: signal.Signals) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "structable.cli", "changes", url, "fed", "--follow", "--interval", "0.05"]
    with inherited(*ignored):
        return subprocess.Popen([*command, "--since", since], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")],
)
@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_follow_shows_what_a_service_commits_until_a_signal(
    url: str, storage: Storage, changed: list[str], number: signal.Signals, code: int, reason: str
) -> None:
    with _follow(url, changed[1]) as process:
        assert process.stdout
        assert process.stderr
        try:
            shown = [json.loads(process.stdout.readline())["_change_type"] for _ in range(3)]
            assert shown == ["update_preimage", "update_postimage", "delete"]
            storage.table("fed").upsert({**WEB, "status": "AGAIN"})
            assert json.loads(process.stdout.readline())["status"] == "AGAIN"
            end = storage.changes("fed").latest()
            process.send_signal(number)
            assert process.stdout.read() == ""
            rest = process.stderr.read()
            assert process.wait() == code
        finally:
            process.kill()
    position, ended = rest.splitlines(keepends=True)
    found = POSITION.fullmatch(position)
    assert found
    # The lines are there before the position counts: an interrupt in between repeats them, and loses none.
    assert FeedPosition.parse(found[1]) in (FeedPosition.parse(changed[3]), end)
    assert ended == f"structable: {reason}\n"


@pytest.mark.parametrize("url", ["leveldb"], indirect=True)
def test_follow_reports_once_whatever_signals_come(url: str, storage: Storage, changed: list[str]) -> None:
    with _follow(url, changed[1]) as process:
        assert process.stdout
        assert process.stderr
        try:
            process.stdout.readline()
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
                process.send_signal(number)
            rest = process.stderr.read()
        finally:
            process.kill()
    assert len(POSITION.findall(rest)) == 1
    assert rest.count("\n") == 2
    assert rest.endswith(("structable: terminated\n", "structable: hung up\n"))


@pytest.mark.parametrize("url", ["leveldb"], indirect=True)
def test_nohup_is_respected(url: str, storage: Storage, changed: list[str]) -> None:
    with _follow(url, changed[1], signal.SIGHUP) as process:
        assert process.stdout
        try:
            for _ in range(3):
                process.stdout.readline()
            process.send_signal(signal.SIGHUP)
            storage.table("fed").upsert({**WEB, "status": "AGAIN"})
            assert json.loads(process.stdout.readline())["status"] == "AGAIN"
        finally:
            process.kill()


def test_follow_ends_at_a_time_to_come(structable: Command, url: str, storage: Storage, changed: list[str]) -> None:
    began = dt.datetime.now(dt.UTC)
    moment = began + dt.timedelta(seconds=1)
    with ThreadPoolExecutor() as threads:
        shown = threads.submit(
            lines, structable, url, "--since", "latest", "--until", moment.isoformat(), "--follow", "--interval", 0.05
        )
        while not shown.done():
            storage.table("fed").upsert({**WEB, "status": "AGAIN"})
            storage.table("fed").delete(("web", 1, 1))
        assert dt.datetime.now(dt.UTC) >= moment
        assert shown.result()


def test_positions_of_two_feeds(structable: Command, url: str, storage: Storage, changed: list[str]) -> None:
    storage.admin.drop("fed")
    storage.admin.create(FED)
    for place in (["--until", changed[0]], ["--since", changed[0]], ["--since", "latest", "--until", changed[0]]):
        for further in ([], ["--follow"], ["--limit", 1], ["--format", "json"]):
            outcome = structable("changes", url, "fed", *place, *further)
            assert outcome.code == 1
            assert f"table 'fed', position {changed[0]}: belongs to a feed that is gone" in outcome.err


def test_follow_ends_with_its_feed(structable: Command, url: str, storage: Storage, changed: list[str]) -> None:
    with ThreadPoolExecutor() as threads:
        followed = threads.submit(
            structable, "changes", url, "fed", "--follow", "--interval", 0.05, "--until", "9999-01-01T00:00:00Z"
        )
        while not followed.done():
            for producer in ("input", "lookup"):
                storage.admin.create_or_update(FED.evolve(options={"changelog-producer": producer}))
    outcome = followed.result()
    assert outcome.code == 1
    assert "belongs to a feed that is gone" in outcome.err


def test_follow_ends_at_until(structable: Command, url: str, storage: Storage, changed: list[str]) -> None:
    assert lines(structable, url, "--since", changed[1], "--until", changed[2], "--follow") == DONE
