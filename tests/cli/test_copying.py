"""copy: whole tables between stores of any kind, each as a whole or not at all, safe to run again."""

import itertools
from pathlib import Path

import pytest

from structable.cli.commands import copying
from structable.spi import CommitOutcomeUnknownError, Field, Storage, TableSpecification, connect
from tests.cli.conftest import Command, Fails, every_store
from tests.cli.support.samples import EVERYTHING, ROWS, RUNS, RUNS_ROWS
from tests.cli.test_transfer import content


@every_store
def test_copy_of_a_store(structable: Command, url: str, copy_url: str, storage: Storage) -> None:
    outcome = structable("copy", url, copy_url)
    lines = [f"table everything: {len(ROWS)} rows are copied", "table runs: 4 rows are copied"]
    assert outcome == (0, "", "".join(f"{line}\n" for line in lines))
    with connect(copy_url) as copy:
        assert copy.admin.list() == storage.admin.list()
        for table in copy.admin.list():
            assert copy.admin.get_specification(table) == storage.admin.get_specification(table)
            assert content(copy, table) == content(storage, table)
        with copy.table("runs").scan_index("status", "RUNNING") as rows:
            assert len(list(rows)) == 2


def test_copy_around_all_stores(
    structable: Command, storage: Storage, url: str, tmp_path: Path, postgresql_url: str, hbase_url: str
) -> None:
    places = [f"leveldb://{tmp_path}/one", postgresql_url, hbase_url, f"leveldb://{tmp_path}/two"]
    for origin, target in itertools.pairwise([url, *places]):
        assert structable("copy", origin, target).code == 0
    with connect(places[-1]) as copy:
        for table in ("runs", "everything"):
            assert copy.admin.get_specification(table) == storage.admin.get_specification(table)
            assert content(copy, table) == content(storage, table)


def test_named_tables_only(structable: Command, fails: Fails, url: str, copy_url: str, storage: Storage) -> None:
    with connect(copy_url) as copy:
        assert structable("copy", url, copy_url, "runs", "runs").err == "table runs: 4 rows are copied\n"
        assert copy.admin.list() == ["runs"]
        assert fails(3, "copy", url, copy_url, "everything", "nope") == "table 'nope' does not exist"
        assert copy.admin.list() == ["runs"]


@every_store
def test_rows_that_are_there_are_kept_unless_a_mode_is_given(
    structable: Command, fails: Fails, url: str, copy_url: str, storage: Storage
) -> None:
    with connect(copy_url) as copy:
        copy.admin.create(RUNS)
        copy.table("runs").upsert_many([{"app": "own", "started": 1, "attempt": 1}, {**RUNS_ROWS[0], "status": "old"}])
        before = content(copy, "runs")
        assert "has rows in" in fails(2, "copy", url, copy_url)
        assert not copy.admin.exists("everything")  # all is checked before the first table is copied
        assert "already has a row" in fails(1, "copy", url, copy_url, "runs", "--mode", "insert")
        assert "give --yes" in fails(2, "copy", url, copy_url, "runs", "--mode", "overwrite")
        assert content(copy, "runs") == before
        assert structable("copy", url, copy_url, "runs", "--mode", "upsert").code == 0
        assert copy.table("runs").count() == 5
        assert structable("copy", url, copy_url, "runs", "--mode", "overwrite", "--yes").code == 0
        assert content(copy, "runs") == content(storage, "runs")


def test_tables_that_differ_are_refused_with_every_difference(
    fails: Fails, url: str, copy_url: str, storage: Storage
) -> None:
    fields = [Field.string("app"), Field.long("started"), Field.int("attempt"), Field.int("status")]
    with connect(copy_url) as copy:
        copy.admin.create(TableSpecification("runs", fields=fields, primary_key=["started", "app"]))
        message = fails(1, "copy", url, copy_url, "--mode", "upsert")
        for difference in (
            "field 'cost' is missing there",
            "field 'status' is int there, not string",
            "the primary key is (started, app) there",
        ):
            assert difference in message
        assert not copy.admin.exists("everything")


@every_store
def test_copy_into_a_table_that_has_more(structable: Command, url: str, copy_url: str, storage: Storage) -> None:
    """Fields and indexes beyond those of the source, and wider numbers, are no difference."""
    few = TableSpecification("few", [Field.int("k"), Field.byte("n"), Field.float("f")], ["k"])
    storage.admin.create(few)
    storage.table("few").upsert_many([{"k": 1, "n": -128, "f": 0.1}, {"k": 2, "n": 127}])
    with connect(copy_url) as copy:
        fields = [Field.int("k"), Field.string("s"), Field.double("f"), Field.long("n")]
        copy.admin.create(TableSpecification("few", fields, ["k"], ["n"]))
        copy.table("few").upsert({"k": 2, "s": "kept"})
        assert structable("copy", url, copy_url, "few", "--mode", "upsert").code == 0
        assert [dict(row) for row in copy.table("few").scan()] == [
            {"k": 1, "s": None, "f": 0.10000000149011612, "n": -128},
            {"k": 2, "s": "kept", "f": None, "n": 127},
        ]


@pytest.mark.parametrize("exists", [True, False])
def test_tables_with_a_feed_are_not_overwritten(
    fails: Fails, url: str, copy_url: str, storage: Storage, exists: bool
) -> None:
    """The command fails before it copies the first table."""
    fed = RUNS.evolve(name="runs_fed", options={"changelog-producer": "lookup"})
    storage.admin.create(fed)
    with connect(copy_url) as copy:
        copy.admin.create(RUNS)
        copy.table("runs").upsert({"app": "own", "started": 1, "attempt": 1})
        if exists:
            copy.admin.create(fed)
        before = content(copy, "runs"), copy.admin.list()
        message = fails(1, "copy", url, copy_url, "--mode", "overwrite", "--yes")
        assert message.startswith("table 'runs_fed' has a change feed and cannot be overwritten")
        assert (content(copy, "runs"), copy.admin.list()) == before


@every_store
def test_a_named_copy_goes_on_where_it_was_left(
    structable: Command, url: str, copy_url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> bool:
        raise KeyboardInterrupt

    with connect(copy_url) as copy:
        assert structable("copy", url, copy_url, "everything", "--job-id", "night").code == 0
        with monkeypatch.context() as patch:
            patch.setattr(copying, "commit", interrupted)
            assert structable("copy", url, copy_url, "--job-id", "night").code == 130
        assert content(copy, "runs") == []
        copy.table("everything").upsert({"k": "later"})
        outcome = structable("copy", url, copy_url, "--job-id", "night")
        assert outcome.err.splitlines() == [
            "table everything: already copied by job night-everything; nothing was done",
            "table runs: 4 rows are copied",
        ]
        assert copy.table("everything").count() == len(ROWS) + 1


def test_an_unknown_outcome_is_reported_and_the_copy_can_be_repeated(
    structable: Command, fails: Fails, url: str, copy_url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*args: object) -> bool:
        raise CommitOutcomeUnknownError("the store is gone")

    with connect(copy_url) as copy:
        with monkeypatch.context() as patch:
            patch.setattr(copying, "commit", unknown)
            message = fails(1, "copy", url, copy_url, "runs")
        assert message.startswith("table 'runs': the store is gone; check whether its rows are in")
        assert structable("copy", url, copy_url).code == 0
        assert content(copy, "runs") == content(storage, "runs")


def test_copy_dry_run(structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    target = f"leveldb://{tmp_path}/copy"
    outcome = structable("copy", url, target, "runs", "--dry-run")
    assert outcome == (0, "", "table runs: 4 rows would be copied; it would be created, and so would its store\n")
    assert not (tmp_path / "copy").exists()
    with connect(target) as copy:
        copy.admin.create(EVERYTHING)
        shown = structable("copy", url, target, "--dry-run").err
        assert shown.splitlines() == [
            f"table everything: {len(ROWS)} rows would be copied; it exists",
            "table runs: 4 rows would be copied; it would be created",
        ]
        assert copy.admin.list() == ["everything"]
        assert copy.table("everything").count() == 0


def test_places(
    structable: Command, fails: Fails, url: str, copy_url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "the same store" in fails(2, "copy", url, url)
    assert "missing argument 'URL2'" in fails(2, "copy", url)
    assert "URL2 is 'runs', which is not a storage URL" in fails(2, "copy", url, "runs")
    assert "STRUCTABLE_URL, which is not set" in fails(2, "copy", "-", url)
    assert fails(3, "copy", f"{url}nope", copy_url).endswith("'structable create' creates it")
    assert "'delete' is not one of" in fails(2, "copy", url, copy_url, "--mode", "delete")
    monkeypatch.setenv("STRUCTABLE_URL", url)
    assert structable("copy", "-", copy_url, "runs").code == 0
