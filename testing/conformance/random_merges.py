"""Random change rows on tables with types, and random bags, compared with the naive model."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    UnsupportedOperationError,
    Value,
)

from .chances import random_specification, random_value
from .keyless_rules import counted
from .merge_case import MergeCase, Step, run_job, write
from .model import Model, comparable, kept
from .samples import Record
from .type_chances import FUNCTIONS, aggregated_by, random_change, random_kind

_KEYS = 3
_BATCH = 12


class RandomMerges(MergeCase):
    """After any changes in any order, the rows are those of the model."""

    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_random_change_rows_match_the_model(self, typed: Storage, function: str) -> None:
        """For each function and type, random changes, extremes too, have the rows and errors of the model."""
        chance = random.Random(function)
        spec = aggregated_by(function)
        typed.admin.create(spec)
        model, table = Model(spec), typed.table(spec.name)
        for place in range(4 * self.max_examples):
            step = random_change(chance, spec, _KEYS, extremes=True)
            self.compare(typed, model, [step], f"{place}: {step}")
            if chance.random() < 0.1:
                table.replace(self.restarted(chance, model))
        table.delete_all(Range.all())
        model.rows = {}
        for place in range(max(2, self.max_examples // 8)):
            steps = [random_change(chance, spec, _KEYS, extremes=False) for _ in range(_BATCH)]
            self.compare(typed, model, steps, f"{place}: {steps}", by_job=place % 2 == 1)

    def restarted(self, chance: random.Random, model: Model) -> Record:
        """Return a row of nulls that replaces one of the model."""
        row: Record = {"id": chance.randrange(_KEYS)}
        transaction = model.begin()
        transaction.replace(row)
        transaction.commit()
        return row

    def compare(self, storage: Storage, model: Model, steps: list[Step], text: str, *, by_job: bool = False) -> None:
        """Make changes by one call or by a job, and compare the error, or else the rows."""
        transaction, table = model.begin(), storage.table(model.spec.name)
        make = partial(run_job, storage, model.spec.name, steps) if by_job else partial(self.call, table, steps)
        try:
            transaction.apply_changes(steps)
        except (InvalidFieldError, UnsupportedOperationError) as error:
            with pytest.raises(type(error)):
                make()
        else:
            make()
            transaction.commit()
        expected = [comparable(row) for row in model.begin().scan([Range.all()])]
        assert [comparable(row) for row in table.scan()] == expected, text

    def call(self, table: StructuredTable, steps: list[Step]) -> None:
        if len(steps) == 1:
            write(table, steps[0])
        else:
            table.apply_changes(steps)

    def test_random_changes_of_a_bag_match_the_model(self, typed: Storage) -> None:
        """Random rows are put into bags and taken away, by calls, transactions and jobs; the model is a multiset."""
        for seed in range(max(2, self.max_examples // 10)):
            chance = random.Random(seed)
            plain = random_specification(chance, "bag")
            spec = TableSpecification(
                "bag", [*plain.value_fields, Field.int("few")], indexes=["few"], options={"write-mode": "change-log"}
            )
            typed.admin.create(spec)
            pool = [self.random_row(chance, spec) for _ in range(6)]
            rows: Counter[int] = Counter()
            for _ in range(8):
                steps = [(random_kind(chance), pool[chance.randrange(len(pool))]) for _ in range(chance.randint(1, 6))]
                for kind, row in steps:
                    rows[self.place(spec, pool, row)] += -1 if kind.retracts else 1
                    rows = +rows
                match chance.randrange(3):
                    case 0:
                        typed.table("bag").apply_changes(steps)
                    case 1:
                        with typed.transaction() as transaction:
                            for step in steps:
                                transaction.table("bag").apply_changes([step])
                    case 2:
                        run_job(typed, "bag", steps)
                expected = [self.whole(spec, pool[place]) for place in rows.elements()]
                assert counted(typed.table("bag").scan()) == counted(expected), steps
                some = [row for row in expected if row["few"] == 1]
                assert counted(typed.table("bag").scan_index("few", 1)) == counted(some)
            typed.admin.drop("bag")

    def random_row(self, chance: random.Random, spec: TableSpecification) -> Record:
        row: dict[str, Value] = {"few": chance.choice([None, 0, 1])}
        for field in spec.fields[:-1]:
            if chance.random() < 0.6:
                row[field.name] = random_value(chance, spec, field)
        return row

    def whole(self, spec: TableSpecification, row: Record) -> Record:
        return {name: kept(spec, name, row.get(name)) for name in spec.field_names}

    def place(self, spec: TableSpecification, pool: list[Record], row: Record) -> int:
        """Return the first place of an equal row."""
        wanted = comparable(self.whole(spec, row))
        return next(place for place, one in enumerate(pool) if comparable(self.whole(spec, one)) == wanted)
