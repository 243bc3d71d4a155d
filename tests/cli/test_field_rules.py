"""What the commands show and copy of rules of fields."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from structable.spi import (
    Derived,
    Field,
    FieldType,
    JsonField,
    Renamed,
    TableSpecification,
    connect,
    specification_to_document,
)
from tests.cli.conftest import Command

EVENTS = TableSpecification(
    "events",
    [Field.long("id"), Field.string("body"), Field.long("n"), Field.string("note"), Field.string("remark")],
    ["id"],
)
NUMBER = Derived("n", "body", JsonField(("a", 0), FieldType.LONG), ready=True)
RENAMED = Renamed("note", "remark")


@pytest.fixture
def ruled(url: str) -> str:
    with connect(url) as storage:
        storage.admin.create(EVENTS)
        table = storage.table("events")
        table.upsert({"id": 1, "note": "x"})
        storage.admin.set_rules("events", [NUMBER, RENAMED])
        table.upsert({"id": 2, "body": '{"a": [5]}', "remark": "y"})
    return url


def test_describe_and_doctor_show_rules(structable: Command, ruled: str) -> None:
    rules = [
        "rule: n is json-field(path=['a', 0], type='long') of body",
        "rule: remark is the new name of note, and is being filled",
    ]
    lines = structable("describe", ruled, "events").out.splitlines()
    assert [line for line in lines if line.startswith("rule")] == rules
    checked = structable("doctor", ruled)
    assert checked.code == 0
    assert all(rule in checked.out for rule in rules)


@pytest.mark.parametrize("format_", ["toml", "json"])
def test_described_rules_are_created_alike(structable: Command, ruled: str, copy_url: str, format_: str) -> None:
    with connect(ruled) as storage:
        spec = EVENTS.evolve(rules=[NUMBER, replace(RENAMED, ready=True)])
        storage.admin.set_rules("events", spec.rules)
    text = structable("describe", ruled, "events", "--format", format_).out
    assert structable("create", copy_url, "-", stdin=text).code == 0
    with connect(copy_url) as copy:
        assert copy.admin.get_specification("events") == spec


def test_update_keeps_rules_and_says_so(structable: Command, ruled: str, tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    file.write_text(json.dumps(specification_to_document(EVENTS)), encoding="utf-8")
    outcome = structable("create", ruled, str(file), "--update")
    assert outcome.code == 0
    assert "rule is kept: remark is the new name of note, and is being filled" in outcome.err
    with connect(ruled) as storage:
        assert storage.admin.get_specification("events").rules == (NUMBER, RENAMED)


def test_explain_names_computed_values(structable: Command, ruled: str) -> None:
    with connect(ruled) as storage:
        storage.admin.set_rules("events", [replace(NUMBER, ready=False)])
    shown = structable("explain", ruled, "events", "--where", "n > 4")
    assert shown.code == 0
    assert "n > 4 is evaluated on computed values: n is being filled" in shown.out


@pytest.mark.parametrize("way", ["copy", "dump"])
def test_copy_has_rows_as_they_are_read(
    structable: Command, ruled: str, copy_url: str, tmp_path: Path, way: str
) -> None:
    """The copy, or the restored dump, has computed values, and rules that are ready."""
    if way == "copy":
        assert structable("copy", ruled, copy_url).code == 0
    else:
        assert structable("export", ruled, "--all", tmp_path / "backup").code == 0
        outcome = structable("import", copy_url, "--all", tmp_path / "backup")
        assert outcome.code == 0, outcome.err
    with connect(copy_url) as copy:
        assert copy.admin.get_specification("events") == EVENTS.evolve(rules=[NUMBER])
        assert [dict(row) for row in copy.table("events").scan()] == [
            {"id": 1, "body": None, "n": None, "note": "x", "remark": "x"},
            {"id": 2, "body": '{"a": [5]}', "n": 5, "note": "y", "remark": "y"},
        ]
