"""get, put and delete."""

import json

import pytest

from structable.spi import Range, Storage
from tests.cli.conftest import Command, Fails, every_store


def test_get_shows_each_field(structable: Command, url: str, storage: Storage) -> None:
    lines = [line.split() for line in structable("get", url, "runs", "etl", 10, 1).out.splitlines()]
    assert ["status", "FAILED"] in lines
    assert ["payload", "0x00ff"] in lines


@every_store
def test_get_as_json(structable: Command, url: str, storage: Storage) -> None:
    outcome = structable("get", url, "runs", "etl", 10, 2, "--format", "json", "--columns", "status,cost,app")
    assert json.loads(outcome.out) == {"status": "RUNNING", "cost": None, "app": "etl"}


def test_get_with_a_negative_number(structable: Command, url: str, storage: Storage) -> None:
    assert structable("get", url, "runs", "--", "etl", -3, 1).code == 0


@every_store
def test_get_of_an_absent_row(fails: Fails, url: str, storage: Storage) -> None:
    assert fails(3, "get", url, "runs", "etl", 10, 9) == "table 'runs' has no row with the key ('etl', 10, 9)"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (["etl", "10"], "the key of table 'runs' is APP STARTED ATTEMPT; 2 given"),
        (["etl", "10", "1", "2"], "4 given"),
        (["etl", "ten", "1"], "field 'started': 'ten' is not a whole number"),
        (["etl", "10", "3000000000"], "field 'attempt': 3000000000 is out of the range of int"),
        (["etl", "-3", "1"], "put -- before values that begin with a dash"),
    ],
)
def test_wrong_keys(fails: Fails, url: str, storage: Storage, key: list[str], message: str) -> None:
    assert message in fails(2, "get", url, "runs", *key)


@every_store
def test_put_keeps_the_fields_that_are_not_named(structable: Command, url: str, storage: Storage) -> None:
    assert structable("put", url, "runs", "app=etl", "started=10", "attempt=1", "status=a=b") == (0, "", "")
    row = storage.table("runs").read(("etl", 10, 1))
    assert row is not None
    assert (row.status, row.cost) == ("a=b", 1.5)


def test_put_writes_null_and_the_empty_string(structable: Command, url: str, storage: Storage) -> None:
    key = ["app=etl", "started=10", "attempt=1"]
    assert structable("put", url, "runs", *key, "status=", "--null", "cost", "--null", "payload").code == 0
    row = storage.table("runs").read(("etl", 10, 1))
    assert row is not None
    assert (row.status, row.cost, row.payload) == ("", None, None)


@every_store
def test_put_replace(structable: Command, url: str, storage: Storage) -> None:
    structable("put", url, "runs", "app=etl", "started=10", "attempt=1", "cost=2", "--mode", "replace")
    row = storage.table("runs").read(("etl", 10, 1))
    assert row is not None
    assert (row.status, row.cost) == (None, 2.0)


@every_store
def test_put_insert_and_update_respect_existing_rows(
    structable: Command, fails: Fails, url: str, storage: Storage
) -> None:
    there, absent = ["app=etl", "started=10", "attempt=1"], ["app=etl", "started=10", "attempt=9"]
    assert "already has a row" in fails(1, "put", url, "runs", *there, "--mode", "insert")
    assert "has no row" in fails(3, "put", url, "runs", *absent, "--mode", "update")
    assert structable("put", url, "runs", *absent, "--mode", "insert").code == 0
    assert structable("put", url, "runs", *absent, "--mode", "update", "cost=1").code == 0


@pytest.mark.parametrize("place", ["argument", "standard input"])
def test_put_json(structable: Command, url: str, storage: Storage, place: str) -> None:
    row = '{"app": "x", "started": 1, "attempt": 1, "payload": "AP8=", "status": null}'
    stdin = place == "standard input"
    piped = f"\ufeff{row}" if stdin else None  # with the mark of the byte order, as some programs write it
    assert structable("put", url, "runs", "--json", "-" if stdin else row, stdin=piped).code == 0
    found = storage.table("runs").read(("x", 1, 1))
    assert found is not None
    assert (found.payload, found.status) == (b"\x00\xff", None)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["app"], "'app' is not FIELD=VALUE"),
        (["nope=1"], "'nope' is not a field of table 'runs'; the fields are app,"),
        (["app=a", "app=b"], "the field 'app' is given twice"),
        (["cost=", "app=a"], "field 'cost': '' is neither a number nor nan, inf or -inf; '--null cost' writes null"),
        (["--null", "nope"], "'nope' is not a field"),
        (["app=a", "--json", "{}"], "--json gives the whole row"),
        (["--json", '{"app": 1'], "--json, line 1, column 10"),
        (["--json", '{"app": 1}'], "--json: field 'app'"),
        (["--mode", "merge"], "'merge' is not one of"),
    ],
)
def test_wrong_rows(fails: Fails, url: str, storage: Storage, args: list[str], message: str) -> None:
    assert message in fails(2, "put", url, "runs", *args)


@every_store
def test_rows_that_the_contract_refuses(fails: Fails, url: str, storage: Storage) -> None:
    assert "field 'started'" in fails(2, "put", url, "runs", "app=a")
    assert "over the limit" in fails(2, "put", url, "runs", "started=1", "attempt=1", "app=" + "x" * 3000)


@every_store
def test_delete_of_a_key(structable: Command, url: str, storage: Storage) -> None:
    assert structable("delete", url, "runs", "etl", 10, 1) == (0, "", "")
    assert structable("delete", url, "runs", "etl", 10, 1) == (0, "", "")
    assert storage.table("runs").count() == 3


@every_store
def test_delete_of_a_selection(structable: Command, url: str, storage: Storage) -> None:
    assert structable("delete", url, "runs", "--prefix", "etl", "--where", "status is not null").out == "2\n"
    assert storage.table("runs").count([Range.prefix(("etl",))]) == 1


@every_store
def test_delete_of_all(structable: Command, url: str, storage: Storage) -> None:
    assert structable("delete", url, "runs", "--all", "--yes").out == "4\n"


@pytest.mark.parametrize("args", [[], ["etl", "10", "1", "--all"], ["--all", "--where", "cost > 1"]])
def test_delete_needs_exactly_one_selection(fails: Fails, url: str, storage: Storage, args: list[str]) -> None:
    assert "one of these only" in fails(2, "delete", url, "runs", *args)
    assert storage.table("runs").count() == 4
