"""The isolation cases of Hermitage, under both levels, with the rows in one table and in two.

Names and steps come from github.com/ept/hermitage; the expected outcomes are the contract's: SNAPSHOT refuses all
but G2-item and G2, SERIALIZABLE refuses these as well. Writes may wait for one another or not, see `interleaving`, and
SERIALIZABLE may refuse a transaction at any step, a read among them, once another one has written what it read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from structable.spi import (
    Field,
    Filter,
    Isolation,
    Range,
    Storage,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    col,
)

from .case import ConformanceCase, OpenSession
from .interleaving import ConcurrentTransaction

BOTH = pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)


class Ledger:
    """Rows 1 => 10 and 2 => 20, with an index on the value: in one table, or the odd and the even ones in two."""

    def __init__(self, storage: Storage, tables: int) -> None:
        self._storage = storage
        self._tables = [f"ledger{number}" for number in range(tables)]
        for name in self._tables:
            storage.admin.create(TableSpecification(name, [Field.long("id"), Field.long("value")], ["id"], ["value"]))
        with storage.transaction() as transaction:
            self.put(transaction, 1, 10)
            self.put(transaction, 2, 20)

    def _table_of(self, row: int) -> str:
        return self._tables[row % len(self._tables)]

    def put(self, transaction: Transaction, row: int, value: int) -> None:
        transaction.table(self._table_of(row)).upsert({"id": row, "value": value})

    def get(self, transaction: Transaction, row: int) -> int:
        found = transaction.table(self._table_of(row)).read((row,))
        assert found is not None
        return cast("int", found["value"])

    def find(self, transaction: Transaction, where: Filter | None = None) -> dict[int, int]:
        """Read the rows of all tables that match a condition."""
        return {
            cast("int", row["id"]): cast("int", row["value"])
            for name in self._tables
            for row in transaction.table(name).scan(where=where)
        }

    def delete(self, transaction: Transaction, where: Filter) -> int:
        """Delete the rows of all tables that match a condition."""
        return sum(transaction.table(name).delete_all(Range.all(), where) for name in self._tables)

    def now(self) -> dict[int, int]:
        """Return the committed rows."""
        return self._storage.run(self.find, read_only=True)


class Actor:
    """A session that reads and writes rows of a ledger."""

    def __init__(self, session: ConcurrentTransaction, ledger: Ledger, isolation: Isolation) -> None:
        self._session = session
        self._ledger = ledger
        self._isolation = isolation

    def put(self, row: int, value: int) -> None:
        """Write a row; this may wait."""
        self._session.step(lambda transaction: self._ledger.put(transaction, row, value))

    def get(self, row: int) -> int:
        return self._session.step(lambda transaction: self._ledger.get(transaction, row)).value

    def find(self, where: Filter | None = None) -> dict[int, int]:
        return self._session.step(lambda transaction: self._ledger.find(transaction, where)).value

    def expect(self, row: int, value: int) -> None:
        """Read a row of a known value; under SERIALIZABLE a conflict may occur instead."""
        self._expect(lambda transaction: self._ledger.get(transaction, row), value)

    def expect_rows(self, rows: dict[int, int], where: Filter | None = None) -> None:
        """Find known rows; under SERIALIZABLE a conflict may occur instead."""
        self._expect(lambda transaction: self._ledger.find(transaction, where), rows)

    def _expect(self, action: Callable[[Transaction], object], known: object) -> None:
        step = self._session.step(action)
        found = step.value if self._isolation is Isolation.SNAPSHOT else step.value_or_conflict
        assert found == known or isinstance(found, TransactionConflictError)

    def delete(self, where: Filter) -> None:
        """Delete the rows that match a condition; this may wait."""
        self._session.step(lambda transaction: self._ledger.delete(transaction, where))

    def commit(self) -> bool:
        """Commit, and return whether that succeeded."""
        return self._session.commit()

    def abort(self) -> None:
        self._session.rollback()


class IsolationCases(ConformanceCase):
    """The anomalies that each isolation level excludes."""

    @pytest.fixture(params=[1, 2], ids=["one table", "two tables"])
    def ledger(self, request: pytest.FixtureRequest, storage: Storage) -> Ledger:
        return Ledger(storage, request.param)

    def actors(self, session: OpenSession, ledger: Ledger, isolation: Isolation, number: int = 2) -> list[Actor]:
        return [Actor(session(isolation), ledger, isolation) for _ in range(number)]

    @BOTH
    def test_g0_write_cycles(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G0, dirty write: the writes of two transactions are never mixed; the second gets a conflict."""
        one, two = self.actors(session, ledger, isolation)
        assert (one.get(1), two.get(1)) == (10, 10)
        one.put(1, 11)
        two.put(1, 12)
        one.put(2, 21)
        assert one.commit()
        two.put(2, 22)
        assert not two.commit()
        assert ledger.now() == {1: 11, 2: 21}

    @BOTH
    def test_g1a_aborted_read(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G1a: rolled-back writes are never read, neither before nor after the rollback."""
        one, two = self.actors(session, ledger, isolation)
        one.put(1, 101)
        assert two.get(1) == 10
        one.abort()
        assert two.get(1) == 10
        assert two.commit()
        assert ledger.now() == {1: 10, 2: 20}

    @BOTH
    def test_g1b_intermediate_read(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G1b: a value that its transaction overwrote before the commit is never read."""
        one, two = self.actors(session, ledger, isolation)
        one.put(1, 101)
        assert two.get(1) == 10
        one.put(1, 11)
        assert one.commit()
        two.expect(1, 10)
        assert ledger.now() == {1: 11, 2: 20}

    @BOTH
    def test_g1c_circular_information_flow(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G1c: of two transactions neither reads the other's write; under SERIALIZABLE only one of them commits."""
        one, two = self.actors(session, ledger, isolation)
        one.put(1, 11)
        two.put(2, 22)
        one.expect(2, 20)
        two.expect(1, 10)
        committed = [one.commit(), two.commit()]
        if isolation is Isolation.SNAPSHOT:
            assert committed == [True, True]
        else:
            assert committed.count(True) == 1

    @BOTH
    def test_otv_observed_transaction_vanishes(
        self, session: OpenSession, ledger: Ledger, isolation: Isolation
    ) -> None:
        """OTV: a transaction that was seen does not vanish when another one overwrites a part of it."""
        one, two = self.actors(session, ledger, isolation)
        assert two.get(1) == 10
        one.put(1, 11)
        one.put(2, 19)
        two.put(1, 12)
        assert one.commit()
        (three,) = self.actors(session, ledger, isolation, 1)
        assert three.get(1) == 11
        two.put(2, 18)
        assert three.get(2) == 19
        assert not two.commit()
        assert (three.get(2), three.get(1)) == (19, 11)
        assert three.commit()
        assert ledger.now() == {1: 11, 2: 19}

    @BOTH
    def test_pmp_predicate_many_preceders(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """PMP: a row that another transaction inserts does not appear in a later scan with a matching condition."""
        one, two = self.actors(session, ledger, isolation)
        assert one.find(col("value") == 30) == {}
        two.put(3, 30)
        assert two.commit()
        one.expect_rows({}, col("value").isin([30, 33]))
        one.expect_rows({}, col("value") >= 25)
        if isolation is Isolation.SNAPSHOT:
            assert one.commit()
        assert ledger.now() == {1: 10, 2: 20, 3: 30}

    @BOTH
    def test_pmp_for_write_predicates(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """PMP for writes: a delete by a condition does not act on rows as they were before another's commit."""
        one, two = self.actors(session, ledger, isolation)
        for actor in (one, two):
            assert actor.find() == {1: 10, 2: 20}
        for row, value in one.find().items():
            one.put(row, value + 10)
        two.delete(col("value") == 20)
        assert one.commit()
        assert not two.commit()
        assert ledger.now() == {1: 20, 2: 30}

    @BOTH
    def test_p4_lost_update(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """P4: of two transactions that read a row and write it, only one commits."""
        one, two = self.actors(session, ledger, isolation)
        assert (one.get(1), two.get(1)) == (10, 10)
        one.put(1, 11)
        two.put(1, 11)
        assert one.commit()
        assert not two.commit()

    @BOTH
    def test_g_single_read_skew(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G-single: a transaction sees all of another's commit or nothing of it."""
        one, two = self.actors(session, ledger, isolation)
        assert one.get(1) == 10
        assert (two.get(1), two.get(2)) == (10, 20)
        two.put(1, 12)
        two.put(2, 18)
        assert two.commit()
        one.expect(2, 20)
        if isolation is Isolation.SNAPSHOT:
            assert one.commit()

    @BOTH
    def test_g_single_with_predicates(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G-single by conditions: a scan after another's commit does not see its changes."""
        one, two = self.actors(session, ledger, isolation)
        assert one.find(col("value").isin([10, 20])) == {1: 10, 2: 20}
        two.put(1, 12)
        assert two.commit()
        one.expect_rows({}, col("value") == 12)
        one.expect_rows({1: 10, 2: 20})

    @BOTH
    def test_g_single_with_a_write(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G-single with a write: a delete by a condition that another's commit made false gets a conflict."""
        one, two = self.actors(session, ledger, isolation)
        assert one.get(1) == 10
        assert two.find() == {1: 10, 2: 20}
        two.put(1, 12)
        two.put(2, 18)
        assert two.commit()
        one.delete(col("value") == 20)
        assert not one.commit()
        assert ledger.now() == {1: 12, 2: 18}

    @BOTH
    def test_g2_item_write_skew(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G2-item, write skew: SNAPSHOT lets both commit, SERIALIZABLE exactly one."""
        one, two = self.actors(session, ledger, isolation)
        for actor in (one, two):
            assert (actor.get(1), actor.get(2)) == (10, 20)
        one.put(1, 11)
        two.put(2, 21)
        self.assert_skew(isolation, [one.commit(), two.commit()])

    @BOTH
    def test_g2_predicate_write_skew(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G2, write skew by conditions: each inserts a row in the other's scan; SERIALIZABLE lets one commit."""
        one, two = self.actors(session, ledger, isolation)
        matching = col("value").isin([30, 42])
        assert (one.find(matching), two.find(matching)) == ({}, {})
        one.put(3, 30)
        two.put(4, 42)
        self.assert_skew(isolation, [one.commit(), two.commit()])

    def assert_skew(self, isolation: Isolation, committed: list[bool]) -> None:
        """Check which commits succeed of two transactions that each read the row the other wrote."""
        if isolation is Isolation.SNAPSHOT:
            assert committed == [True, True]
        else:
            assert committed.count(True) == 1

    @BOTH
    def test_g2_two_anti_dependency_edges(self, session: OpenSession, ledger: Ledger, isolation: Isolation) -> None:
        """G2 by two edges (Fekete et al.): a reader between two writers sees a state that no order of them explains."""
        one, two = self.actors(session, ledger, isolation)
        assert one.find() == {1: 10, 2: 20}
        two.put(2, two.get(2) + 5)
        assert two.commit()
        (three,) = self.actors(session, ledger, isolation, 1)
        assert three.find() == {1: 10, 2: 25}
        assert three.commit()
        one.put(1, 0)
        assert one.commit() == (isolation is Isolation.SNAPSHOT)
