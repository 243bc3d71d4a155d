"""A Hypothesis state machine: random operations of interleaved transactions, compared with the naive model."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from structable.spi import (
    InvalidFieldError,
    Isolation,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Storage,
    StructableError,
    StructuredTable,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    UnsupportedOperationError,
    Value,
    connect,
)

from .case import ConformanceCase
from .chances import (
    ModelWrite,
    older_specification,
    random_condition,
    random_key,
    random_range,
    random_specification,
    random_value,
    random_write,
)
from .feed_case import producers_of, with_feed
from .feed_laws import FeedLaws
from .model import Model, ModelTransaction, Verdict, comparable, kept
from .samples import Record
from .type_chances import indexable, random_type

MOST_OPEN = 3
"""The maximum number of open transactions."""
ACTIONS = 8
"""The maximum number of writes, begins and commits of one step."""
SCANS = 6
"""The number of scans of each kind in one step."""

SEEDS = st.integers(0, 2**32)


@dataclass(eq=False)
class Pair:
    """A transaction and its model; the auto-commit view has no transaction of its own."""

    real: Transaction | None
    model: ModelTransaction


class TableMachine(RuleBasedStateMachine):
    """One table, read and written in the auto-commit view and in up to three open transactions.

    A `restartable` machine connects again at times. Unless `overlapping`, no two open transactions write one row:
    where writes wait, they would wait on one thread. If `typed`, the table may have a merge engine, and if `fed` a
    change feed.
    """

    def __init__(self, url: str, *, restartable: bool, overlapping: bool, typed: bool, fed: bool) -> None:
        super().__init__()
        self.url = url
        self.restartable = restartable
        self.overlapping = overlapping
        self.typed = typed
        self.fed = fed
        self.laws: FeedLaws | None = None
        self.storage: Storage = connect(url)
        self.name = f"t{uuid.uuid4().hex}"
        self.open: list[Pair] = []
        self.chance = random.Random()
        self.model: Model

    @property
    def spec(self) -> TableSpecification:
        return self.model.spec

    @initialize(seed=SEEDS)
    def create(self, seed: int) -> None:
        """Create a table of random fields, with a few rows."""
        chance = self.chance = random.Random(seed)
        spec = random_specification(chance, self.name)
        spec = random_type(chance, spec) if self.typed and chance.random() < 0.7 else spec
        if self.fed and chance.random() < 0.6:
            spec = with_feed(spec, chance.choice(producers_of(spec)))
        self.model = Model(spec)
        note(f"{self.spec}")
        self.storage.admin.create(self.spec)
        if "changelog-producer" in spec.options:
            self.laws = FeedLaws(self.storage, spec)
        for _ in range(3):
            auto_commit = Pair(None, self.model.begin())
            self.write_once(auto_commit, random_write(chance, auto_commit.model, typed=self.typed))

    def pick(self, chance: random.Random) -> Pair:
        """Choose an open transaction, or sometimes the auto-commit view."""
        return chance.choice([*self.open, *self.open, Pair(None, self.model.begin())])

    def table(self, pair: Pair) -> StructuredTable:
        return self.storage.table(self.name) if pair.real is None else pair.real.table(self.name)

    def named(self, pair: Pair) -> str:
        return f"transaction {self.open.index(pair)}" if pair in self.open else "auto-commit"

    @precondition(lambda self: len(self.open) < MOST_OPEN)
    @rule(isolation=st.sampled_from(Isolation))
    def begin(self, isolation: Isolation) -> None:
        self.begin_one(isolation)

    def begin_one(self, isolation: Isolation) -> None:
        """Begin a transaction, and take its snapshot."""
        note(f"transaction {len(self.open)}: {isolation.value}")
        real = self.storage.transaction(isolation)
        model = self.model.begin(isolation)
        if self.laws:
            self.laws.snapshot(real.position(self.name), model.rows.values())
        assert real.table(self.name).count() == len(model.rows)  # there was no commit since it began
        self.open.append(Pair(real, model))

    @rule(seed=SEEDS)
    def write(self, seed: int) -> None:
        """Make a few writes; transactions begin and end among them."""
        chance = random.Random(seed)
        for _ in range(chance.randint(1, ACTIONS)):
            action = chance.random()
            if action < 0.2 and len(self.open) < MOST_OPEN:
                self.begin_one(chance.choice(list(Isolation)))
            elif action > 0.85 and self.open:
                self.commit_one(chance.randrange(len(self.open)))
            else:
                pair = self.pick(chance)
                self.write_once(pair, random_write(chance, pair.model, typed=self.typed))

    def write_once(self, pair: Pair, write: ModelWrite) -> None:
        """Make a write on table and model, and compare results, errors and conflicts."""
        model = pair.model.copy()
        expected = self.outcome(lambda: write.on_model(model))
        keys = model.kinds.keys() | set(write.keys)
        if not self.overlapping and any(other.model.kinds.keys() & keys for other in self.open if other is not pair):
            return  # it would wait for the other transaction
        note(f"{self.named(pair)}: {write.text}")
        try:
            found = self.outcome(lambda: write.on_table(self.table(pair)))
        except TransactionConflictError:
            if isinstance(expected, type):
                model.try_in_vain(write.keys)
            self.leave(pair, model)
            return
        assert found == expected
        if isinstance(expected, type):
            model = pair.model  # it raised, and had no effect
        if pair.real is None:
            model.commit()
            self.check_everything(Pair(None, self.model.begin()))
        else:
            pair.model = model
            self.unless_refused(pair, partial(self.check_everything, pair))

    def unless_refused(self, pair: Pair, reads: Callable[[], None]) -> None:
        """Make reads; if a conflict is possible at all, any of them may raise it."""
        try:
            reads()
        except TransactionConflictError:
            self.leave(pair, pair.model)

    def leave(self, pair: Pair, model: ModelTransaction) -> None:
        """Leave a transaction after a conflict, which only writes known to the model may have caused."""
        assert pair.real is not None, "the auto-commit view retries"
        note(f"{self.named(pair)}: left after a conflict")
        pair.real.rollback()
        self.open.remove(pair)
        assert model.verdict() is not Verdict.NO, "conflict without a conflicting commit"

    def outcome(self, operation: Callable[[], object]) -> object:
        """Return the result of an operation, or the class of the error that its rule demands."""
        try:
            return operation()
        except (RecordExistsError, RecordNotFoundError, InvalidFieldError, UnsupportedOperationError) as error:
            return type(error)

    @precondition(lambda self: self.open)
    @rule(place=st.integers(0, MOST_OPEN - 1))
    def commit(self, place: int) -> None:
        self.commit_one(place % len(self.open))

    def commit_one(self, place: int) -> None:
        """Commit a transaction: it conflicts if it must, and never if it must not."""
        pair = self.open.pop(place)
        assert pair.real is not None
        verdict = pair.model.verdict()
        note(f"commit of transaction {place}, {pair.model.kinds}; conflict: {verdict.value}")
        try:
            pair.real.commit()
        except TransactionConflictError:
            assert verdict is not Verdict.NO, "conflict without a conflicting commit"
            pair.real.rollback()
        else:
            assert verdict is not Verdict.MUST, "no conflict, though a commit since the snapshot wrote the same row"
            pair.model.commit()
        self.check_everything(Pair(None, self.model.begin()))

    @precondition(lambda self: self.open)
    @rule(place=st.integers(0, MOST_OPEN - 1))
    def roll_back(self, place: int) -> None:
        pair = self.open.pop(place % len(self.open))
        assert pair.real is not None
        pair.real.rollback()
        self.check_everything(Pair(None, self.model.begin()))

    @rule(seed=SEEDS)
    def read(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(SCANS):
            self.unless_refused(pair := self.pick(chance), partial(self.read_and_scan, pair, chance))

    def read_and_scan(self, pair: Pair, chance: random.Random) -> None:
        self.read_once(pair, [random_key(chance, self.spec) for _ in range(chance.randint(1, 5))])
        self.scan_once(pair, chance)

    def read_once(self, pair: Pair, wanted: list[tuple[Value, ...]]) -> None:
        table, rows = self.table(pair), pair.model.rows
        kept_keys = [pair.model.kept_key(key) for key in wanted]
        present = sorted(set(kept_keys) & rows.keys())
        self.compare(f"multi_read({wanted})", table.multi_read(iter(wanted)), [rows[key] for key in present])
        row, expected = table.read(wanted[0]), rows.get(kept_keys[0])
        self.compare(f"read({wanted[0]})", [row] if row else [], [expected] if expected else [])

    def scan_once(self, pair: Pair, chance: random.Random) -> None:
        """Compare each kind of scan with the same arguments."""
        spec, table = self.spec, self.table(pair)
        ranges = [random_range(chance, spec) for _ in range(chance.randint(1, 3))]
        where = random_condition(chance, spec) if chance.random() < 0.7 else None
        order_by = chance.choice([None, *spec.primary_key, *spec.indexes])
        reverse = chance.random() < 0.5
        limit = chance.choice([None, None, None, 0, 1, 3])
        per_range = chance.choice([0, 1, 1, 2, 3])
        columns = chance.choice([None, chance.sample(spec.field_names, chance.randint(1, len(spec.fields)))])
        given = where.filter() if where else None
        options: dict[str, Any] = {
            "where": given,
            "columns": columns,
            "order_by": order_by,
            "reverse": reverse,
            "limit": limit,
        }
        calls: list[tuple[str, tuple[Any, ...], dict[str, Any], list[Record]]] = [
            ("multi_scan", (ranges,), options, pair.model.scan(ranges, where, order_by, reverse, limit)),
            (
                "multi_scan",
                (ranges,),
                {**options, "limit_per_range": per_range},
                pair.model.scan(ranges, where, order_by, reverse, limit, per_range),
            ),
            ("scan", (ranges[0],), options, pair.model.scan(ranges[:1], where, order_by, reverse, limit)),
        ]
        if spec.indexes:
            name = chance.choice(spec.indexes)
            present = [row[name] for row in pair.model.rows.values()]
            value = chance.choice([None, random_value(chance, spec, spec.field(name)), *present])
            rows = pair.model.scan(ranges[:1], where, order_by, reverse)
            matching = [row for row in rows if row[name] == kept(spec, name, value)]
            calls.append(("scan_index", (name, value), {"range": ranges[0], **options}, matching[:limit]))
        shown = set(spec.field_names if columns is None else [*columns, *spec.primary_key])
        for method, arguments, keywords, expected in calls:
            with getattr(table, method)(*arguments, **keywords) as found:
                rows = [{name: row[name] for name in row if name in shown} for row in expected]
                self.compare(f"{self.named(pair)}: {method}{arguments}, {keywords}", found, rows)
        assert table.count(ranges, given) == len(pair.model.matching(ranges, where)), f"count({ranges}, {given})"

    def compare(self, call: str, found: Iterable[Mapping[str, Value]], expected: list[Record]) -> None:
        """Compare rows in their order; NaN equals NaN."""
        assert [comparable(row) for row in found] == [comparable(row) for row in expected], call

    def check_everything(self, pair: Pair) -> None:
        """Compare all rows, by key and by each index; after a commit, its changes."""
        table = self.table(pair)
        if self.laws and pair.real is None:
            self.laws.step(pair.model.rows.values(), self.chance)
        self.compare(f"{self.named(pair)}: scan()", table.scan(), pair.model.scan([Range.all()]))
        for name in self.spec.indexes:
            ordered = pair.model.scan([Range.all()], order_by=name)
            self.compare(f"{self.named(pair)}: scan(order_by={name!r})", table.scan(order_by=name), ordered)

    @precondition(lambda self: not self.open and self.restartable)
    @rule()
    def connect_anew(self) -> None:
        self.storage.close()
        self.storage = connect(self.url)
        if self.laws:
            self.laws.storage = self.storage
        self.check_everything(Pair(None, self.model.begin()))

    @precondition(lambda self: self.laws)
    @rule(seed=SEEDS)
    def expire(self, seed: int) -> None:
        assert self.laws is not None
        self.laws.expire(random.Random(seed))

    @rule(seed=SEEDS)
    def start_older_release(self, seed: int) -> None:
        """Update the table to a specification that it covers: nothing changes, and no transaction conflicts."""
        self.storage.admin.create_or_update(older_specification(random.Random(seed), self.spec))
        assert self.storage.table(self.name).specification == self.spec

    @precondition(lambda self: not self.open)
    @rule(seed=SEEDS)
    def change_indexes(self, seed: int) -> None:
        spec, chance = self.spec, random.Random(seed)
        candidates = indexable(spec)
        if not candidates:
            return
        name = chance.choice(candidates)
        if name in spec.indexes:
            self.model.spec = spec.evolve(indexes=[other for other in spec.indexes if other != name])
            self.storage.admin.drop_index(self.name, name)
            self.storage.admin.create_or_update(self.model.spec)
        else:
            self.model.spec = spec.evolve(indexes=[*spec.indexes, name])
            older = older_specification(chance, spec)
            mixed = older.evolve(indexes=[*older.indexes, name]) if name in older else self.model.spec
            self.storage.admin.create_or_update(mixed)
        assert self.storage.table(self.name).specification == self.model.spec
        self.check_everything(Pair(None, self.model.begin()))

    def teardown(self) -> None:
        """Check every open snapshot and the table once more, and drop it."""
        try:
            for pair in [*self.open, Pair(None, self.model.begin())]:
                self.unless_refused(pair, partial(self.check_everything, pair))
        finally:
            for pair in self.open:
                if pair.real is not None:
                    pair.real.rollback()
            with suppress(StructableError):  # it would hide the failure found before
                self.storage.admin.drop(self.name)
            self.storage.close()


class StateMachineCase(ConformanceCase):
    """Rules of rows, transactions and operations, all at once."""

    def test_random_operations_match_the_model(self, storage_url: str) -> None:
        """Random operations have the results, rows, order and conflicts of a naive model."""

        def machine() -> TableMachine:
            return TableMachine(
                storage_url,
                restartable=self.capabilities.restartable,
                overlapping=self.capabilities.writes_never_wait,
                typed=self.capabilities.table_types,
                fed=self.capabilities.table_types and self.capabilities.change_feeds,
            )

        run_state_machine_as_test(
            cast("type[TableMachine]", machine),
            settings=settings(
                max_examples=self.max_examples,
                stateful_step_count=self.max_steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
