"""Random programs on a table with rules and on one without: the rules add what follows, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from structable.spi import (
    InvalidFieldError,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Renamed,
    Storage,
    StructuredTable,
    col,
)
from structable.spi.arrow import rows_to_batches

from .field_rule_case import EVENTS, NUMBER, TEXT, FieldRuleCase
from .samples import Record, plain

BODIES = [None, "{", '{"a": {"n": 5}}', '{"a": {"n": 6}}', '{"a": {"n": 6.0}}']
NOTES = [None, "a", "b"]
SIZES = [None, -1, 0, 7]
REFUSALS = (InvalidFieldError, RecordExistsError, RecordNotFoundError)
PLAIN = EVENTS.evolve(name="plain", fields=[one for one in EVENTS.fields if one.name in ("id", "body", "size", "note")])

Step = Callable[[StructuredTable, str], object]
"""An operation on a table, given the name by which it calls the field `note`."""


def random_step(chance: random.Random) -> Step:
    """Return a random write, or a read whose result both tables share."""
    key, other = chance.randrange(6), chance.randrange(6)
    row: Record = {"id": key, "body": chance.choice(BODIES), "size": chance.choice(SIZES), "note": chance.choice(NOTES)}
    for name in chance.sample(["body", "size", "note"], chance.randrange(4)):
        del row[name]
    more: Record = {"id": other, "body": chance.choice(BODIES)}
    size, by, note, body = chance.choice(SIZES), chance.choice([1, 3]), chance.choice(NOTES), chance.choice(BODIES)

    def named(given: Record, name: str) -> Record:
        return {name if field == "note" else field: value for field, value in given.items()}

    steps: list[Step] = [
        lambda table, name: table.upsert(named(row, name)),
        lambda table, name: table.upsert_many([named(row, name), more]),
        lambda table, name: table.replace(named(row, name)),
        lambda table, name: table.insert_many([named(row, name), more]),
        lambda table, name: table.update(named(row, name)),
        lambda table, name: table.update(more, default=named({**row, "id": other}, name)),
        lambda table, name: table.update_many([named(row, name), more]),
        lambda table, name: table.apply_changes([("+U", named(row, name)), ("-D", {"id": other})]),
        lambda table, name: table.increment((key,), "size", by),
        lambda table, name: table.increment_many([((key,), "size", by), ((other,), "size", 1)]),
        lambda table, name: table.compare_and_swap((key,), "size", size, by),
        lambda table, name: table.compare_and_swap((key,), name, note, "c"),
        lambda table, name: table.compare_and_swap((key,), "body", body, None),
        lambda table, name: table.update_all(Range.at_least((key,)), {"body": body}, where=col(name) == "a"),
        lambda table, name: table.update_all(Range.below((key,)), named({"note": note, "size": size}, name)),
        lambda table, name: table.delete((key,)),
        lambda table, name: table.delete_all(Range.prefix((key,)), where=col(name).is_null()),
        lambda table, name: table.count(where=(col(name) != "b") & (col("size") >= 0)),
        lambda table, name: [row.key for row in table.scan(where=col(name).is_not_null(), order_by="note", limit=3)],
    ]
    return chance.choice(steps)


def outcome(step: Step, table: StructuredTable, name: str) -> object:
    """Return the result of an operation, or the class of its error."""
    try:
        return step(table, name)
    except REFUSALS as error:
        return type(error)


class RandomRuledRows(FieldRuleCase):
    """Random writes of both names, in transactions of some steps and by jobs."""

    @pytest.mark.parametrize("ready", [False, True], ids=["filling", "ready"])
    def test_random_programs_keep_the_rules(self, events: Storage, ready: bool) -> None:
        """Every write leaves the rows that it leaves without rules, with the derived and renamed fields that follow."""
        chance = random.Random(20_261_129)
        events.admin.create(PLAIN)
        renamed = Renamed("note", "remark", ready)
        events.admin.set_rules("events", [replace(NUMBER, ready=ready), replace(TEXT, ready=ready), renamed])
        for _ in range(max(10, self.stress_rounds)):
            steps = [random_step(chance) for _ in range(chance.randint(1, 4))]
            with events.transaction() as tx:
                for step in steps:
                    name = chance.choice(["note", "remark"])
                    assert outcome(step, tx.table("events"), name) == outcome(step, tx.table("plain"), "note")
            self.check(events)
        rows: list[Record] = [
            {"id": one, "body": chance.choice(BODIES), "note": chance.choice(NOTES)} for one in range(8)
        ]
        for table in ("events", "plain"):
            job = events.begin_write(table, mode="upsert", job_id=self.fresh_id())
            batches = rows_to_batches(PLAIN, rows, ["id", "body", "note"])
            events.commit_write(job, [events.stage(job, 0, 0, batches)])
        self.check(events)
        if ready:
            events.admin.set_rules("events", [])
            self.check(events)

    def check(self, storage: Storage) -> None:
        """Compare the tables, and the fields that follow from others."""
        rows = plain(storage.table("events").scan())
        assert [{name: row[name] for name in PLAIN.field_names} for row in rows] == plain(storage.table("plain").scan())
        for row in rows:
            assert row["number"] == NUMBER.function.computed(row["body"]).value
            assert row["size_text"] == TEXT.function.computed(row["size"]).value
            assert row["remark"] == row["note"]
