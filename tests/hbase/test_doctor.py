"""The findings of `structable doctor` on a prefix, and the effects of `--repair`."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest
from typer.testing import CliRunner

from structable.backends.hbase.tables import PrefixTables
from structable.backends.ordered.storage import OrderedStorage
from structable.cli.app import app
from structable.spi import Field, Finding, FindingLevel, Storage, TableSpecification, col, connect
from tests.hbase.support.other_process import killed_at
from tests.hbase.support.shared import Place, with_options
from tests.waiting import PROMPT

QUICK = "lease=0.5&session_timeout=2&late_writes=0&housekeeping=0.3"
SLOW = "lease=1&session_timeout=3&late_writes=600&housekeeping=600"
"""Only the doctor cleans up."""

RUNS = TableSpecification("runs", [Field.long("id"), Field.long("amount")], ["id"])
WRITE = """
with storage.transaction() as tx:
    tx.table("runs").upsert({"id": 1, "amount": 2})
"""


@pytest.fixture
def url(hbase_url: str) -> str:
    return with_options(hbase_url, SLOW)


def doctor(url: str, *options: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit code, and the level and text of each finding by its subject."""
    result = CliRunner().invoke(app, ["doctor", url, *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    found = {}
    for line in result.output.splitlines():
        level, rest = line.split(maxsplit=1)
        subject, _, text = rest.partition(": ")
        found[subject] = level, text
    return result.exit_code, found


def findings(storage: Storage) -> dict[str, Finding]:
    return {finding.subject: finding for finding in storage.diagnose()}


def test_a_sound_prefix(url: str) -> None:
    with connect(url) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert({"id": 1, "amount": 1})
    code, found = doctor(url)
    assert code == 0
    assert {level for level, _ in found.values()} == {"ok"}, found
    assert found["format"][1].startswith("2, in the HBase tables ")
    assert found["transactions"][1] == "0 pending, 0 aborted, 0 committed and not yet finalised, 2 finalised"
    assert found["processes"][1] == "0 beside this one, 0 pinned plans of distributed scans"
    assert "records are kept for 600 s (late_writes)" in found["garbage collection"][1] or (
        found["garbage collection"][1] == "the clock stands at 2 commits; no safe point has been published yet"
    )
    assert found["HBase tables"][1] == "1 data table"
    assert found["table runs"][1] == "1 rows are readable"


def test_others_and_their_plans_are_counted(url: str) -> None:
    with connect(url) as storage, connect(url) as other:
        storage.admin.create(RUNS)
        with other.plan_scan("runs"):
            assert findings(storage)["processes"].text == "1 beside this one, 1 pinned plans of distributed scans"


@pytest.mark.parametrize(
    ("point", "shown", "amount"),
    [
        ("after_readback", "1 pending, 0 aborted, 0 committed and not yet finalised", 1),
        ("before_commit", "1 pending, 0 aborted, 0 committed and not yet finalised", 1),
        ("after_commit", "0 pending, 0 aborted, 1 committed and not yet finalised", 2),
        ("before_finalise", "0 pending, 0 aborted, 1 committed and not yet finalised", 2),
    ],
)
def test_remains_of_a_killed_process_are_shown_and_ended(url: str, point: str, shown: str, amount: int) -> None:
    with connect(url) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert({"id": 1, "amount": 1})
    killed_at(url, f"die_at({point!r})\n{WRITE}\nimport time; time.sleep(60)")
    code, found = doctor(url)
    assert code == 0
    assert found["transactions"][0] == ("ok" if amount == 2 else "note")
    assert found["transactions"][1].startswith(shown)
    assert "lease" in found["transactions"][1]
    assert found["processes"][1].startswith("1 beside this one")

    code, found = doctor(url, "--repair")
    assert code == 0, found
    assert found["repair"] == (
        "ok",
        "1 transactions of ended processes were finished, 1 dead processes ended, 0 records removed with the "
        "versions they replaced",
    )
    assert found["transactions"][0] == "ok"
    assert found["transactions"][1].startswith("0 pending")
    assert ", 0 committed and not yet finalised, " in found["transactions"][1]
    assert found["processes"][1].startswith("0 beside this one")
    with connect(url) as storage:
        assert [row.amount for row in storage.table("runs").scan()] == [amount]


def test_tables_that_come_and_go_meanwhile(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table created since the catalog was read is not reported as a stray, nor a dropped one as an error."""
    with connect(url) as storage:
        storage.admin.create(RUNS)
        assert isinstance(storage, OrderedStorage)
        before = storage.spaces()
        storage.admin.create(TableSpecification("new", RUNS.fields, ["id"]))
        storage.table("new").upsert({"id": 1})
        reads = [before, before, storage.spaces()]
        found = PrefixTables.spaces
        monkeypatch.setattr(PrefixTables, "spaces", lambda tables: [*found(tables), bytes([0, 0, 3, 231])])
        levels = {finding.level for finding in storage.engine.diagnose(lambda: reads.pop(0))}
        assert not reads
        assert levels == {FindingLevel.OK}


def test_a_repair_ends_nothing_of_a_live_process(url: str) -> None:
    """Neither a transaction that has just begun to commit, nor the snapshot of a process with a heartbeat."""
    with connect(url) as storage, connect(url) as other:
        storage.admin.create(RUNS)
        storage.table("runs").upsert({"id": 1, "amount": 1})
        with storage.transaction() as reader, storage.transaction() as writer:
            assert reader.table("runs").count() == 1
            writer.table("runs").upsert({"id": 2, "amount": 2})
            started = time.monotonic()
            found = list(other.repair())
            assert time.monotonic() - started < PROMPT
            assert [finding.level for finding in found] == [FindingLevel.OK]
            assert found[0].text.startswith("0 transactions of ended processes were finished, 0 dead processes")
            assert reader.table("runs").count() == 1
        assert storage.table("runs").count() == 2


def test_unused_tables(url: str, hbase_server: Place, hbase_prefix: str) -> None:
    """A table is made after its number was given away: an empty one may be dropped, one with rows never."""
    with connect(url) as storage:
        for number in range(4):
            storage.admin.create(TableSpecification(f"t{number}", RUNS.fields, RUNS.primary_key))
        empty, full, foreign = (f"{hbase_prefix}_{name}" for name in ("00000002", "00000003", "3"))
        storage.admin.drop("t1")
        storage.admin.drop("t2")
    quick = url.replace(SLOW, QUICK)
    with connect(quick) as storage:
        deadline = time.monotonic() + 60
        while findings(storage)["HBase tables"].text != "2 data tables":
            assert time.monotonic() < deadline, findings(storage)
            time.sleep(0.2)
    with closing(hbase_server.connection()) as connection:
        for name in (empty, full, foreign):
            connection.create_table(name, {"x": {}})
        connection.table(full).put(b"\x01row", {b"x:v": b"Pvalue"})
    code, found = doctor(url)
    assert code == 1
    assert found[f"HBase table {empty}"][0] == "note"
    assert found[f"HBase table {full}"] == (
        "problem",
        "has rows and is not in the catalog; check whether it is still needed, and drop it by hand",
    )
    assert f"HBase table {foreign}" not in found

    with connect(url) as storage:
        repaired = {finding.subject: finding.text for finding in storage.repair()}
    assert repaired[f"HBase table {empty}"] == "dropped: it was empty and not in the catalog"
    with closing(hbase_server.connection()) as connection:
        assert {name.encode() for name in (full, foreign)} <= set(connection.tables())
        assert empty.encode() not in connection.tables()


def test_tables_that_an_operator_touched(url: str, hbase_server: Place, hbase_prefix: str) -> None:
    with connect(url) as storage:
        for number in range(2):
            storage.admin.create(TableSpecification(f"t{number}", RUNS.fields, RUNS.primary_key))
        dropped, disabled = (f"{hbase_prefix}_0000000{number}" for number in (1, 2))
        with closing(hbase_server.connection()) as connection:
            connection.delete_table(dropped, disable=True)
            connection.disable_table(disabled)
        found = findings(storage)
        assert found[f"HBase table {dropped}"].level is FindingLevel.PROBLEM
        assert found[f"HBase table {dropped}"].text.startswith("is missing")
        assert found[f"HBase table {disabled}"] == Finding(
            FindingLevel.PROBLEM, f"HBase table {disabled}", "is disabled; enable it"
        )


def test_readers_do_not_keep_a_dead_transaction_alive(hbase_url: str) -> None:
    """They push its commit timestamp again and again, which changes its record; the lease ends all the same."""
    url = with_options(hbase_url, SLOW)
    with connect(url) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert({"id": 1, "amount": 1})
    killed_at(url, f"die_at('before_commit')\n{WRITE}")
    with connect(url) as storage, connect(url) as other:
        stopped = threading.Event()

        def read() -> None:
            while not stopped.is_set():
                other.run(lambda tx: tx.table("runs").upsert({"id": 9}))  # so that each snapshot is a later one
                other.run(lambda tx: tx.table("runs").count(where=col("amount") == 1))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            storage.run(lambda tx: tx.table("runs").increment((1,), "amount"), max_attempts=1_000)
        finally:
            stopped.set()
            reader.join()
        assert storage.table("runs").count(where=col("amount") == 2) == 1
