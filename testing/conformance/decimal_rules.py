"""Rules of decimals in a program that changes `decimal`'s contexts: they are read, compared and added up exactly."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from threading import Thread
from typing import Any

import pytest

from structable.spi import (
    AggregateExpression,
    Aggregation,
    Field,
    InvalidFieldError,
    Range,
    Storage,
    TableSpecification,
    WriteMode,
    col,
)

from .merge_case import MergeCase, add, delete, preimage
from .samples import Record, plain
from .write_jobs import batch

FIELDS = [Field.int("id"), Field.decimal("price", 20, 2), Field.decimal("wide", 38, 10), Field.decimal("whole", 38, 0)]
PRICES = TableSpecification("prices", FIELDS, primary_key=["id"])
TOTALS = TableSpecification(
    "totals",
    FIELDS,
    primary_key=["id"],
    options={
        "merge-engine": "aggregation",
        "fields.price.aggregate-function": "sum",
        "fields.wide.aggregate-function": "max",
        "fields.whole.aggregate-function": "sum",
    },
)

total = AggregateExpression.sum
PRICE, CENT = Decimal("12345678.91"), Decimal("0.01")
WIDE, WHOLE = Decimal("9999999999999999999999999999.9999999999"), Decimal("12345678901234567890123456789012345678")
ROW: Record = {"id": 1, "price": PRICE, "wide": WIDE, "whole": WHOLE}

HOSTILE = {
    "few digits": decimal.Context(2, decimal.ROUND_UP, Emin=0, Emax=1, capitals=0, clamp=1, flags=[], traps=[]),
    "every trap": decimal.Context(
        1, decimal.ROUND_FLOOR, Emin=0, Emax=0, capitals=0, clamp=1, flags=[], traps=list(decimal.Context().flags)
    ),
}
"""Contexts in which no arithmetic is exact."""
IN_ANY = pytest.mark.parametrize("hostile", list(HOSTILE))


@contextmanager
def contexts_like(hostile: decimal.Context) -> Iterator[None]:
    """Change the default context, which new threads copy, and this thread's context."""
    names = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
    default = decimal.DefaultContext
    before = default.copy()

    def become(other: decimal.Context) -> None:
        for name in names:
            setattr(default, name, getattr(other, name))
        default.traps.update(other.traps)

    become(hostile)
    try:
        with decimal.localcontext(hostile):
            yield
    finally:
        become(before)


def plan_of(storage: Storage, **options: Any) -> list[Record]:  # noqa: ANN401 - those of `plan_scan`
    """Return the batches of the splits of a plan of PRICES."""
    with storage.plan_scan("prices", **options) as plan:
        return [row for split in plan.splits for part in storage.read_split(split) for row in part.to_pylist()]


def in_a_thread(call: Callable[[], object]) -> None:
    """Run a call in a thread, whose context is a copy of the default one; raise its error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


class DecimalRules(MergeCase):
    """The precision, rounding, exponents and traps of the thread's and the default context have no effect."""

    @IN_ANY
    def test_decimals_are_exact_in_any_context(self, storage: Storage, hostile: str) -> None:
        """Decimals are written, read, found and swapped exactly, in rows and in bulk, in every thread."""
        storage.admin.create(PRICES)
        table = storage.table("prices")
        table.upsert(ROW)
        second = {**ROW, "id": 2, "price": PRICE.copy_negate(), "whole": WHOLE.copy_negate()}

        def use() -> None:
            assert table.read((1,)) == ROW
            table.replace(second)
            assert plain(table.scan()) == [ROW, second]
            for where in (
                col("price") == PRICE,
                col("wide").isin([WIDE]) & (col("price") > CENT),
                col("whole") >= WHOLE,
            ):
                assert plain(table.scan(where=where)) == [ROW]
            assert not table.compare_and_swap((2,), "price", PRICE, CENT)
            assert table.compare_and_swap((2,), "price", PRICE.copy_negate(), CENT)
            assert table.update_all(Range.all(), {"wide": CENT}, where=col("price") == CENT) == 1
            with pytest.raises(InvalidFieldError):
                table.upsert({"id": 2, "price": Decimal("0.001")})
            job = storage.begin_write("prices", mode=WriteMode.REPLACE, job_id=self.fresh_id())
            storage.commit_write(job, [storage.stage(job, 0, 0, [batch([second], spec=PRICES)])])
            assert plan_of(storage, where=col("price") <= PRICE) == [ROW, second]

        with contexts_like(HOSTILE[hostile]):
            use()
            in_a_thread(use)
        row = table.read((1,))
        assert row is not None
        assert [str(value) for value in row.values()] == [str(value) for value in ROW.values()]

    @IN_ANY
    def test_decimals_are_merged_exactly_in_any_context(self, typed: Storage, hostile: str) -> None:
        """Sums, differences, the least and the greatest of decimals are exact in any context."""
        least = WHOLE.copy_negate()
        with contexts_like(HOSTILE[hostile]):
            self.merge(
                typed,
                TOTALS,
                ([add(price=PRICE), *[add(price=CENT)] * 9], {"price": Decimal("12345679.00")}),
                ([add(price=PRICE), preimage(price=CENT)], {"price": Decimal("12345678.90")}),
                ([delete(whole=WHOLE)], {"whole": least}),
                ([add(whole=WHOLE, wide=WIDE), add(whole=least, wide=CENT)], {"whole": Decimal(0), "wide": WIDE}),
            )

    @IN_ANY
    def test_decimals_are_aggregated_exactly_in_any_context(self, storage: Storage, hostile: str) -> None:
        """Aggregates of plans are exact in any context, also where a sum has more than 38 digits."""
        self.require("aggregates")
        storage.admin.create(PRICES)
        storage.table("prices").upsert_many([{**ROW, "id": number} for number in range(9)])
        of_pieces = col("price") * (2 - CENT * col("id"))
        functions = [total("price"), total(of_pieces), total("whole"), AggregateExpression.max("wide")]
        with contexts_like(HOSTILE[hostile]):
            parts = plan_of(storage, aggregate=Aggregation(functions))
            found = [sum(Fraction(part[str(one)]) for part in parts if part[str(one)] is not None) for one in functions]
        wanted = [9 * Fraction(PRICE), Fraction("217777775.9724"), 9 * Fraction(WHOLE), Fraction(WIDE)]
        assert found == wanted
