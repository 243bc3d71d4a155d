"""A Hypothesis state machine: random operations of interleaved transactions, compared with the naive model."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from structable.spi import (
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
    connect,
)

from .case import ConformanceCase
from .conditions import Condition
from .model import Model, ModelTransaction, Verdict, comparable, kept
from .samples import Record
from .strategies import changes, conditions, key_ranges, row_keys, rows, specifications, values

__all__ = ["StateMachineCase", "TableMachine"]

MOST_OPEN = 3
"""How many transactions are open at once."""


@dataclass(eq=False)
class Pair:
    """A transaction and its model; the auto-commit view has no transaction of its own."""

    real: Transaction | None
    model: ModelTransaction


class TableMachine(RuleBasedStateMachine):
    """One table, read and written in the auto-commit view and in up to three open transactions.

    Parameters
    ----------
    url : str
        The store; each machine makes a table of its own in it.
    restartable : bool
        Whether to connect anew now and then.
    overlapping : bool
        Whether open transactions may write a row that another open one has written: not where writes wait.
    """

    def __init__(self, url: str, *, restartable: bool, overlapping: bool) -> None:
        super().__init__()
        self.url = url
        self.restartable = restartable
        self.overlapping = overlapping
        self.storage: Storage = connect(url)
        self.name = f"t{uuid.uuid4().hex}"
        self.open: list[Pair] = []
        self.model: Model

    @property
    def spec(self) -> TableSpecification:
        """The table as it is now."""
        return self.model.spec

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        """Create a table of random fields."""
        self.model = Model(data.draw(specifications(self.name), "specification"))
        self.storage.admin.create(self.spec)

    def pick(self, data: st.DataObject) -> Pair:
        """Choose an open transaction or the auto-commit view."""
        place = data.draw(st.integers(-1, len(self.open) - 1), "transaction (-1: auto-commit)")
        return self.open[place] if place >= 0 else Pair(None, self.model.begin())

    def table(self, pair: Pair) -> StructuredTable:
        """Return the table of the transaction or of the view."""
        return self.storage.table(self.name) if pair.real is None else pair.real.table(self.name)

    def write(
        self, pair: Pair, on_model: Callable[[ModelTransaction], object], on_table: Callable[[StructuredTable], object]
    ) -> None:
        """Run a write on both, and compare results, errors and conflicts."""
        model = pair.model.copy()
        expected = self.outcome(lambda: on_model(model))
        if not self.overlapping and any(
            other is not pair and other.model.kinds.keys() & model.kinds.keys() for other in self.open
        ):
            return  # it would wait for the other
        try:
            found = self.outcome(lambda: on_table(self.table(pair)))
        except TransactionConflictError:
            assert pair.real is not None, "the auto-commit view must not give a conflict up here"
            assert model.verdict() is not Verdict.NO, "this write conflicts with nobody"
            pair.real.rollback()
            self.open.remove(pair)
            return
        assert found == expected
        if isinstance(expected, type):
            return  # it raised, and had no effect
        if pair.real is None:
            model.commit()
        else:
            pair.model = model

    def outcome(self, operation: Callable[[], object]) -> object:
        """Return what an operation returned, or the class of the error that its rule demands."""
        try:
            return operation()
        except (RecordExistsError, RecordNotFoundError) as error:
            return type(error)

    @precondition(lambda self: len(self.open) < MOST_OPEN)
    @rule(isolation=st.sampled_from(Isolation))
    def begin(self, isolation: Isolation) -> None:
        """Begin a transaction, and take its snapshot."""
        real = self.storage.transaction(isolation)
        model = self.model.begin(isolation)
        assert real.table(self.name).count() == len(model.rows)
        self.open.append(Pair(real, model))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Commit a transaction: it conflicts where it must, and never where it must not."""
        pair = self.open.pop(data.draw(st.integers(0, len(self.open) - 1), "transaction"))
        assert pair.real is not None
        verdict = pair.model.verdict()
        try:
            pair.real.commit()
        except TransactionConflictError:
            assert verdict is not Verdict.NO, "this transaction conflicts with nobody"
        else:
            assert verdict is not Verdict.MUST, "a row that this transaction wrote was written since its snapshot"
            pair.model.commit()
        self.check_everything(Pair(None, self.model.begin()))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """Roll a transaction back."""
        pair = self.open.pop(data.draw(st.integers(0, len(self.open) - 1), "transaction"))
        assert pair.real is not None
        pair.real.rollback()

    @rule(data=st.data())
    def upsert(self, data: st.DataObject) -> None:
        """`upsert`."""
        row = data.draw(rows(self.spec), "row")
        self.write(self.pick(data), lambda model: model.upsert(row), lambda table: table.upsert(row))

    @rule(data=st.data())
    def upsert_many(self, data: st.DataObject) -> None:
        """`upsert_many`."""
        many = data.draw(st.lists(rows(self.spec), max_size=8), "rows")
        self.write(
            self.pick(data),
            lambda model: model.upsert_many(many),
            lambda table: table.upsert_many(iter(many)),
        )

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        """`replace`."""
        row = data.draw(rows(self.spec), "row")
        self.write(self.pick(data), lambda model: model.replace(row), lambda table: table.replace(row))

    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        """`insert`."""
        row = data.draw(rows(self.spec), "row")
        self.write(self.pick(data), lambda model: model.insert(row), lambda table: table.insert(row))

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        """`update`, with and without a default."""
        row = data.draw(rows(self.spec), "row")
        default = data.draw(st.none() | changes(self.spec), "default")
        self.write(self.pick(data), lambda model: model.update(row, default), lambda table: table.update(row, default))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """`delete`."""
        key = data.draw(row_keys(self.spec), "key")
        self.write(self.pick(data), lambda model: model.delete(self.kept_key(key)), lambda table: table.delete(key))

    @rule(data=st.data())
    def compare_and_swap(self, data: st.DataObject) -> None:
        """`compare_and_swap`, often with what is there."""
        pair = self.pick(data)
        key = data.draw(row_keys(self.spec), "key")
        field = data.draw(st.sampled_from(self.spec.value_fields), "field")
        current = pair.model.rows.get(self.kept_key(key), {}).get(field.name)
        expected = data.draw(st.just(current) | st.none() | values(field), "expected")
        value = data.draw(st.none() | values(field), "value")
        self.write(
            pair,
            lambda model: model.compare_and_swap(self.kept_key(key), field.name, expected, value),
            lambda table: table.compare_and_swap(key, field.name, expected, value),
        )

    @rule(data=st.data(), amount=st.sampled_from([1, -1, 3]))
    def increment(self, data: st.DataObject, amount: int) -> None:
        """`increment`, far from an overflow."""
        pair = self.pick(data)
        key = data.draw(row_keys(self.spec), "key")
        for state in (pair.model.rows, self.model.rows):
            if abs(state.get(self.kept_key(key), {}).get("n") or 0) > 2**62:
                return
        self.write(
            pair,
            lambda model: model.increment(self.kept_key(key), "n", amount),
            lambda table: table.increment(key, "n", amount),
        )

    @rule(data=st.data())
    def delete_all(self, data: st.DataObject) -> None:
        """`delete_all`, with and without a condition."""
        range_, where = self.selection(data)
        self.write(
            self.pick(data),
            lambda model: model.delete_all(range_, where),
            lambda table: table.delete_all(range_, where.filter() if where else None),
        )

    @rule(data=st.data())
    def update_all(self, data: st.DataObject) -> None:
        """`update_all`, with and without a condition."""
        range_, where = self.selection(data)
        changed = data.draw(changes(self.spec, least=1), "changes")
        self.write(
            self.pick(data),
            lambda model: model.update_all(range_, changed, where),
            lambda table: table.update_all(range_, changed, where.filter() if where else None),
        )

    def selection(self, data: st.DataObject) -> tuple[Range, Condition | None]:
        """Draw a range and perhaps a condition."""
        return (
            data.draw(key_ranges(self.spec), "range"),
            data.draw(st.none() | conditions(self.spec), "where"),
        )

    def kept_key(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a key as the table keeps it."""
        return tuple(kept(self.spec, name, value) for name, value in zip(self.spec.primary_key, key, strict=True))

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """`read` and `multi_read`."""
        pair = self.pick(data)
        wanted = data.draw(st.lists(row_keys(self.spec), min_size=1, max_size=5), "keys")
        found = [
            pair.model.rows[key] for key in sorted({self.kept_key(key) for key in wanted} & pair.model.rows.keys())
        ]
        table = self.table(pair)
        self.compare(table.multi_read(iter(wanted)), found)
        row = table.read(wanted[0])
        self.compare(
            [] if row is None else [row], [row for row in found if pair.model.key_of(row) == self.kept_key(wanted[0])]
        )

    @rule(data=st.data())
    def scan(self, data: st.DataObject) -> None:
        """`scan`, `multi_scan`, `scan_index` and `count` with everything that they take."""
        pair = self.pick(data)
        ranges = data.draw(st.lists(key_ranges(self.spec), max_size=3), "ranges")
        where = data.draw(st.none() | conditions(self.spec), "where")
        order_by = data.draw(st.sampled_from([None, *self.spec.primary_key, *self.spec.indexes]), "order_by")
        reverse = data.draw(st.booleans(), "reverse")
        limit = data.draw(st.none() | st.integers(0, 4), "limit")
        columns = data.draw(
            st.none() | st.lists(st.sampled_from(self.spec.field_names), min_size=1, max_size=3), "columns"
        )
        table, given = self.table(pair), where.filter() if where else None
        shown = set(self.spec.field_names if columns is None else [*columns, *self.spec.primary_key])

        def compare(rows: Any, expected: list[Record]) -> None:  # noqa: ANN401 - an iterator of rows
            with rows:
                self.compare(
                    rows, [{name: row[name] for name in self.spec.field_names if name in shown} for row in expected]
                )

        options: dict[str, Any] = {
            "where": given,
            "columns": columns,
            "order_by": order_by,
            "reverse": reverse,
            "limit": limit,
        }
        compare(table.multi_scan(ranges, **options), pair.model.scan(ranges, where, order_by, reverse, limit))
        range_ = ranges[0] if ranges else Range.all()
        compare(table.scan(range_, **options), pair.model.scan([range_], where, order_by, reverse, limit))
        assert table.count(ranges, given) == len(pair.model.matching(ranges, where))
        if self.spec.indexes:
            field = data.draw(st.sampled_from(self.spec.indexes), "index")
            value = kept(self.spec, field, data.draw(st.none() | values(self.spec.field(field)), "value"))
            rows = [row for row in pair.model.scan([range_], where, order_by, reverse) if row[field] == value]
            compare(table.scan_index(field, value, range=range_, **options), rows[:limit])

    def compare(self, found: Any, expected: list[Record]) -> None:  # noqa: ANN401 - an iterable of rows
        """Compare rows in their order; NaN equals NaN."""
        assert [comparable(row) for row in found] == [comparable(row) for row in expected]

    def check_everything(self, pair: Pair) -> None:
        """Compare all rows, by key and by each index."""
        table = self.table(pair)
        self.compare(table.scan(), pair.model.scan([Range.all()]))
        for name in self.spec.indexes:
            self.compare(table.scan(order_by=name), pair.model.scan([Range.all()], order_by=name))

    @precondition(lambda self: not self.open and self.restartable)
    @rule()
    def connect_anew(self) -> None:
        """Close the storage and connect again."""
        self.storage.close()
        self.storage = connect(self.url)
        self.check_everything(Pair(None, self.model.begin()))

    @precondition(lambda self: not self.open)
    @rule(data=st.data())
    def change_indexes(self, data: st.DataObject) -> None:
        """Drop an index, or add one."""
        spec = self.spec
        candidates = [field.name for field in spec.value_fields if field.type.keyable]
        name = data.draw(st.sampled_from(candidates), "index")
        if name in spec.indexes:
            indexes = tuple(other for other in spec.indexes if other != name)
            self.storage.admin.drop_index(self.name, name)
        else:
            indexes = (*spec.indexes, name)
        self.model.spec = TableSpecification(self.name, spec.fields, spec.primary_key, indexes)
        self.storage.admin.create_or_update(self.model.spec)
        assert self.storage.table(self.name).specification == self.model.spec
        self.check_everything(Pair(None, self.model.begin()))

    def teardown(self) -> None:
        """Check every open snapshot and the table a last time, and drop it."""
        try:
            for pair in [*self.open, Pair(None, self.model.begin())]:
                self.check_everything(pair)
        finally:
            for pair in self.open:
                if pair.real is not None:
                    pair.real.rollback()
            with suppress(StructableError):  # the failure that was found is worth more than this one
                self.storage.admin.drop(self.name)
            self.storage.close()


class StateMachineCase(ConformanceCase):
    """DESIGN.md sections 2 to 4, all at once."""

    def test_random_operations_match_the_model(self, storage_url: str) -> None:
        """Whatever is done in whatever order, results, rows, order and conflicts are those of a naive model."""

        def machine() -> TableMachine:
            return TableMachine(
                storage_url,
                restartable=self.capabilities.restartable,
                overlapping=self.capabilities.writes_never_wait,
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
