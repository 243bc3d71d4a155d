"""YCSB's operations follow its definitions, and every kind of program does the same with them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.workloads.postgresql import fresh_place
from benchmarks.workloads.programs import Step
from benchmarks.workloads.sqlite import SqlitePlace
from benchmarks.workloads.ycsb.psycopg_program import PsycopgRecords
from benchmarks.workloads.ycsb.records import FIELDS, LONGEST_SCAN, WORKLOADS, RecordProgram, Shape
from benchmarks.workloads.ycsb.spi_program import SpiRecords
from benchmarks.workloads.ycsb.sqlite_program import SqliteRecords

SHAPE = Shape(records=500, first=1_000_000)
LOADED = {row[0] for row in SHAPE.rows()}


@pytest.fixture
def program(tmp_path: Path) -> RecordProgram:
    return SqliteRecords(SqlitePlace(str(tmp_path / "file")), SHAPE, client=1, clients=4)


@pytest.mark.parametrize("work", WORKLOADS)
def test_operations_have_their_parts(work: str, program: RecordProgram) -> None:
    steps = program.plan(work, 1, 20_000)
    parts = Counter(action for action, _ in steps)
    assert {action: count / 20_000 for action, count in parts.items()} == pytest.approx(WORKLOADS[work], abs=0.01)
    assert program.plan(work, 1, 1_000) == steps[:1_000]
    assert program.plan(work, 2, 1_000) != steps[:1_000]


def test_scans_have_uniform_lengths(program: RecordProgram) -> None:
    lengths = [arguments[1] for action, arguments in program.plan("E", 1, 20_000) if action == "scan"]
    counts = Counter(lengths)
    assert set(counts) == set(range(1, LONGEST_SCAN + 1))
    assert max(counts.values()) < 2 * min(counts.values())


def test_updates_write_one_field_of_a_hundred_characters(program: RecordProgram) -> None:
    changes = [arguments for action, arguments in program.plan("A", 1, 5_000) if action == "update"]
    assert {field for _key, field, _value in changes} == set(FIELDS)
    assert {len(str(value)) for _key, _field, value in changes} == {100}
    assert {len(value) for row in SHAPE.rows() for value in row[1:]} == {100}


def test_reads_prefer_the_latest_records(program: RecordProgram) -> None:
    """Every read is of a record that is there by then: loaded, or inserted by this client before."""
    there = set(LOADED)
    for _round in range(3):
        steps = program.plan("D", 7, 2_000)
        taken = steps[:700]
        latest: list[str] = []
        of_the_latest = reads = 0
        for action, arguments in taken:
            if action == "insert":
                (row,) = arguments
                assert isinstance(row, tuple)
                assert row[0] not in there
                there.add(row[0])
                latest.append(row[0])
            else:
                assert arguments[0] in there
                reads += 1
                of_the_latest += arguments[0] in latest[-5:]
        assert of_the_latest / reads > 0.25  # the first five ranks of 500 have two fifths
        program.performed(taken)


def test_clients_insert_different_records(tmp_path: Path) -> None:
    inserted: Counter[object] = Counter()
    for client in range(4):
        program = SqliteRecords(SqlitePlace(str(tmp_path / "file")), SHAPE, client=client, clients=4)
        for seed in range(2):
            steps = program.plan("E", seed, 2_000)
            program.performed(steps)
            inserted.update(arguments[0] for action, arguments in steps if action == "insert")
        program.close()
    assert set(inserted.values()) == {1}


@pytest.mark.parametrize("store", ["memory", "leveldb", "postgresql", "psycopg"])
def test_programs_do_the_same(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    by_hand = SqliteRecords(SqlitePlace(str(tmp_path / "file")), SHAPE, client=0, clients=1)
    other = open_other(store, tmp_path, request)
    for program in (by_hand, other):
        program.load()
        for number, work in enumerate(WORKLOADS):
            take(program, program.plan(work, number, 300))
    assert by_hand.rows() == other.rows()
    assert len(by_hand.rows()) > len(LOADED)
    by_hand.close()
    other.close()


def open_other(store: str, folder: Path, request: pytest.FixtureRequest) -> RecordProgram:
    if store == "psycopg":
        place = fresh_place(request.getfixturevalue("postgresql_schema"))
        return PsycopgRecords(place, SHAPE, client=0, clients=1)
    if store == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    else:
        url = {"memory": "memory://", "leveldb": f"leveldb://{folder / 'ours'}?durability=process"}[store]
    return SpiRecords(url, SHAPE, client=0, clients=1)


def take(program: RecordProgram, steps: list[Step]) -> None:
    for action, arguments in steps:
        assert program.actions[action](*arguments) == 1
    program.performed(steps)
