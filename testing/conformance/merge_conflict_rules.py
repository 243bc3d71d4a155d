"""Rules of conflicts between merges: which transactions may both commit, and that the auto-commit view hides them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from structable.spi import (
    Field,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    Transaction,
    TransactionConflictError,
)

from .case import OpenSession
from .clients import StoreProcess
from .concurrency import at_once
from .merge_case import MergeCase
from .samples import Record

Write = Callable[[StructuredTable], object]

NUMBERS = [Field.long("id"), Field.long("n"), Field.int("times"), Field.double("most"), Field.boolean("seen")]
BLIND = TableSpecification(
    "t",
    NUMBERS,
    ["id"],
    options={
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.times.aggregate-function": "count",
        "fields.most.aggregate-function": "max",
        "fields.seen.aggregate-function": "bool_or",
    },
)
OTHERS: dict[str, TableSpecification] = {
    "an index": BLIND.evolve(indexes=["times"]),
    "last_value": BLIND.evolve(options={**BLIND.options, "fields.n.aggregate-function": "last_value"}),
    "a product": BLIND.evolve(options={**BLIND.options, "fields.n.aggregate-function": "product"}),
    "a text": BLIND.evolve(fields=[*NUMBERS, Field.string("text")]),
    "a list": BLIND.evolve(
        fields=[*NUMBERS, Field.string("text")],
        options={**BLIND.options, "fields.text.aggregate-function": "listagg"},
    ),
    "partial-update": BLIND.evolve(options={"merge-engine": "partial-update"}),
    "a sequence": BLIND.evolve(options={"sequence.field": "times"}),
    "soft-delete": BLIND.evolve(options={"soft-delete.field": "seen"}),
    "a group": BLIND.evolve(
        options={
            "merge-engine": "partial-update",
            "fields.times.sequence-group": "n",
            "fields.n.aggregate-function": "sum",
        }
    ),
}
"""Tables on which a merge is a write like any other."""

FIRST_ROW = BLIND.evolve(options={"merge-engine": "first-row"})
OUTSIDE = -1
"""The key of a row that no test writes: reading it takes the snapshot."""

OTHER_WRITES: dict[str, Write] = {
    "replace": lambda table: table.replace({"id": 1, "n": 7}),
    "update": lambda table: table.update({"id": 1, "n": 7}),
    "delete": lambda table: table.delete((1,)),
    "increment": lambda table: table.increment((1,), "n", 7),
    "compare_and_swap": lambda table: table.compare_and_swap((1,), "n", 1, 7),
    "update_all": lambda table: table.update_all(Range.prefix((1,)), {"n": 7}),
    "delete_all": lambda table: table.delete_all(Range.prefix((1,))),
}


def _change(amount: int) -> Record:
    return {"id": 1, "n": amount, "times": amount, "most": amount, "seen": True}


def merging(amount: int) -> Write:
    """Return a merge of row 1."""
    return lambda table: table.upsert(_change(amount))


def changing(kind: str, row: Record) -> Write:
    """Return a change of a row."""
    return lambda table: table.apply_changes([(kind, row)])


def _within(write: Write, transaction: Transaction) -> None:
    write(transaction.table("t"))


class MergeConflictRules(MergeCase):
    """Merges conflict as writes do, unless the table is blind; the auto-commit view repeats them."""

    def both(
        self,
        session: OpenSession,
        first: Write,
        second: Write,
    ) -> tuple[bool, bool]:
        """Let two overlapping transactions write, and return which of them were committed."""
        sessions = [session(), session()]
        for one in sessions:
            one.read("t", (OUTSIDE,))
        for one, write in zip(sessions, (first, second), strict=True):
            one.step(partial(_within, write))
        return sessions[0].commit(), sessions[1].commit()

    def test_blind_merges_may_both_commit(self, typed: Storage, session: OpenSession) -> None:
        """Merges of one row of a blind table may both commit: exactly the committed ones count."""
        typed.admin.create(BLIND)
        table = typed.table("t")
        for kind, sign in (("+I", 1), ("-D", -1)):
            for n, times in ((0, 0), (100, 10)):
                table.delete((1,))
                if n:
                    table.replace({"id": 1, "n": n, "times": times, "most": 0.5})
                one, two = self.both(session, merging(5), changing(kind, {"id": 1, "n": 10, "times": 1}))
                assert one
                row = table.read((1,))
                assert row is not None
                counted = sign if two else 0
                assert (row["n"], row["times"], row["most"]) == (n + 5 + 10 * counted, times + 1 + counted, 5.0)

    @pytest.mark.parametrize("engine", OTHERS)
    def test_other_merges_conflict(self, typed: Storage, session: OpenSession, engine: str) -> None:
        """On any other table a merge is a write: of two overlapping transactions the first to commit wins."""
        typed.admin.create(OTHERS[engine])
        table = typed.table("t")
        for existing in (False, True):
            if existing:
                table.replace(_change(1))
            assert self.both(session, merging(2), merging(3)) == (True, False)
            table.delete((1,))

    def test_first_rows_conflict(self, typed: Storage, session: OpenSession) -> None:
        """Of two transactions that put a first row one commits; if there is a row already, both change nothing."""
        typed.admin.create(FIRST_ROW)
        assert self.both(session, merging(2), merging(3)) == (True, False)
        assert self.both(session, merging(4), merging(5))[0]
        row = typed.table("t").read((1,))
        assert row is not None
        assert row["n"] == 2

    @pytest.mark.parametrize("second", OTHER_WRITES)
    def test_blind_merge_conflicts_with_other_writes(self, typed: Storage, session: OpenSession, second: str) -> None:
        """A blind merge and any other write of the row conflict, an increment too, in either order."""
        typed.admin.create(BLIND)
        for merge_first in (True, False):
            typed.table("t").replace(_change(1))
            order = (merging(2), OTHER_WRITES[second])
            assert self.both(session, *(order if merge_first else order[::-1])) == (True, False)

    @pytest.mark.parametrize("second", ["replace", "increment", "update"])
    def test_merge_with_another_write_is_that_write(self, typed: Storage, session: OpenSession, second: str) -> None:
        """A blind merge together with another write of the row in one transaction is a write like any other."""
        typed.admin.create(BLIND)

        def two_writes(table: StructuredTable) -> None:
            table.upsert(_change(2))
            OTHER_WRITES[second](table)

        for write in (two_writes, lambda table: (OTHER_WRITES[second](table), table.upsert(_change(2)))):
            typed.table("t").replace(_change(1))
            assert self.both(session, merging(3), write) == (True, False)

    def test_own_merges_are_read(self, typed: Storage, session: OpenSession) -> None:
        """A transaction reads its blind merges over its snapshot; the commit applies them to the row as it is then."""
        typed.admin.create(BLIND)
        typed.table("t").upsert(_change(5))
        one = session()
        one.read("t", (1,))
        one.step(lambda transaction: transaction.table("t").upsert({"id": 1, "n": 1}))
        typed.table("t").upsert(_change(7))
        row = one.step(lambda transaction: transaction.table("t").read((1,))).value_or_conflict
        if not isinstance(row, TransactionConflictError):
            assert row is not None
            assert row["n"] == 6
        committed = one.commit()
        assert [row["n"] for row in typed.table("t").scan()] == [13 if committed else 12]

    def test_merges_in_threads(self, typed: Storage) -> None:
        """Merges of one row in the auto-commit view of 8 threads never raise a conflict, and each counts once."""
        rounds = self.stress_rounds // 3
        specs = [BLIND, OTHERS["a list"], OTHERS["an index"], OTHERS["a group"]]
        for number, spec in enumerate(specs):
            typed.admin.create(spec.evolve(name=f"t{number}"))

        def work(worker: int) -> None:
            tables = [typed.table(f"t{number}") for number in range(len(specs))]
            for place in range(rounds):
                row: Record = {"id": 1, "n": worker, "times": 8 * place + worker}
                tables[0].upsert(row)
                tables[1].apply_changes([("+U", {**row, "text": f"{worker}.{place}"})])
                tables[2].upsert_many([row, {**row, "id": 2 + worker}])
                tables[3].upsert(row)

        at_once(8, work)
        total = rounds * sum(range(8))
        found = [typed.table(f"t{number}").read((1,)) for number in range(len(specs))]
        assert [row and row["n"] for row in found] == [total] * 4
        assert [row and row["times"] for row in found] == [8 * rounds] * 3 + [8 * rounds - 1]
        texts = str(found[1]["text"]).split(",") if found[1] else []
        assert sorted(texts) == sorted(f"{worker}.{place}" for worker in range(8) for place in range(rounds))
        for worker in range(8):
            assert [text for text in texts if text[0] == str(worker)] == [
                f"{worker}.{place}" for place in range(rounds)
            ]

    def test_sequences_and_first_rows_in_threads(self, typed: Storage) -> None:
        """Whatever the order of the threads, the highest sequence is left, and one first row."""
        rounds = self.stress_rounds // 3
        specs = [OTHERS["a sequence"].evolve(name="late"), FIRST_ROW.evolve(name="first")]
        for spec in specs:
            typed.admin.create(spec)

        def work(worker: int) -> None:
            late, first = typed.table("late"), typed.table("first")
            for place in range(rounds):
                sequence = 8 * place + worker
                late.upsert({"id": 1, "n": -sequence, "times": sequence})
                first.upsert({"id": place, "n": worker, "times": worker})

        at_once(8, work)
        assert [(row["n"], row["times"]) for row in typed.table("late").scan()] == [(1 - 8 * rounds, 8 * rounds - 1)]
        assert [row["n"] == row["times"] for row in typed.table("first").scan()] == [True] * rounds

    def test_deletion_of_a_row_that_is_written_anew(self, typed: Storage) -> None:
        """A change that deletes a row which another transaction deletes and inserts again at once is not lost."""
        typed.admin.create(BLIND.evolve(options={**BLIND.options, "remove-record-on-delete": "true"}))
        table = typed.table("t")
        is_over = threading.Event()

        def write_anew(transaction: Transaction) -> None:
            rows = transaction.table("t")
            row = rows.read((1,))
            if row is not None:
                rows.delete((1,))
                rows.insert({**row, "n": row.n + 1})
                assert [rows.count() for _ in range(5)] == [1] * 5

        def disturb() -> None:
            while not is_over.is_set():
                typed.run(write_anew)

        with ThreadPoolExecutor(1) as pool:
            disturbing = pool.submit(disturb)
            try:
                for _ in range(self.stress_rounds // 2):
                    table.upsert(_change(1))
                    table.apply_changes([("-D", {"id": 1})])
                    assert table.read((1,)) is None
            finally:
                is_over.set()
            disturbing.result()

    def test_merges_in_processes(self, typed: Storage, storage_url: str) -> None:
        """Merges of one row in the auto-commit view of several processes never raise a conflict; each counts once."""
        self.require("multi_process")
        rounds = self.stress_rounds // 2
        specs = [BLIND, OTHERS["a list"].evolve(name="u")]
        for spec in specs:
            typed.admin.create(spec)
        clients = [
            StoreProcess(storage_url, "merge", [spec.name for spec in specs], worker, rounds) for worker in range(4)
        ]
        try:
            for client in clients:
                assert client.next() == "ready"
            for client in clients:
                client.send("go")
            assert [client.next() for client in clients] == [rounds] * 4
        finally:
            for client in clients:
                client.close()
        for spec in specs:
            row = typed.table(spec.name).read((1,))
            assert row is not None
            assert (row["n"], row["times"]) == (rounds * 6, rounds * 4)
