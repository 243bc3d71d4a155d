"""Rules of sum, product and count: nulls, extremes, retracts, and results that do not fit."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from structable.spi import Field, FieldType, InvalidFieldError, Storage, TableSpecification, Value

from .aggregate_rules import FLOATS, aggregated
from .merge_case import MergeCase, add, delete, postimage, preimage
from .samples import EXTREMES, Record

INTEGERS = [kind for kind in FieldType if kind.integer_bits]


def limits(kind: FieldType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    return -(2 ** (kind.integer_bits - 1)), 2 ** (kind.integer_bits - 1) - 1


class SumRules(MergeCase):
    """Numbers are added, multiplied and counted, and never beyond their type."""

    def test_sum(self, typed: Storage) -> None:
        """sum: a given value replaces a stored null; a given null is ignored."""
        kinds = [*INTEGERS, FieldType.DOUBLE, FieldType.FLOAT]
        numbers: dict[int | None, Record] = {n: {kind.value: n for kind in kinds} for n in (None, 1, 2, 3, -3)}
        self.merge(
            typed,
            aggregated("sum", *kinds, FieldType.DECIMAL),
            ([add(**numbers[1]), postimage(**numbers[2])], numbers[3]),
            ([add(**numbers[None]), add(**numbers[3]), add(**numbers[None])], numbers[3]),
            ([add(int=1), add(long=2)], {"int": 1, "long": 2}),
            ([add(decimal=Decimal("0.1")), add(decimal=Decimal("0.2"))], {"decimal": Decimal("0.3")}),
            ([add()], {}),
        )

    def test_sum_retracts(self, typed: Storage) -> None:
        """A retract of a sum subtracts; of a null value or an absent row it is the negative value."""
        kinds = [*INTEGERS, FieldType.DOUBLE, FieldType.FLOAT]
        numbers: dict[int, Record] = {n: {kind.value: n for kind in kinds} for n in (1, 2, 3, -3)}
        most = Decimal("9999999999999999999999999999.9999999999")
        self.merge(
            typed,
            aggregated("sum", *kinds, FieldType.DECIMAL),
            ([add(**numbers[3]), preimage(**numbers[1])], numbers[2]),
            ([add(), delete(**numbers[3])], numbers[-3]),
            ([delete(**numbers[3])], numbers[-3]),
            ([preimage(int=3), postimage(int=4)], {"int": 1}),
            ([preimage(int=None)], {}),
            ([delete(decimal=Decimal("1.5"))], {"decimal": Decimal("-1.5")}),
            ([add(decimal=most), delete(decimal=most), delete(decimal=most)], {"decimal": most.copy_negate()}),
            ([add(int=1), delete(int=1)], {"int": 0}),
        )

    def test_sum_of_extremes(self, typed: Storage) -> None:
        """Sums reach the limits of their type; the least value can be retracted wherever the result fits."""
        least: Record = {kind.value: limits(kind)[0] for kind in INTEGERS}
        most: Record = {kind.value: limits(kind)[1] for kind in INTEGERS}
        ones: Record = {kind.value: 1 for kind in INTEGERS}
        minus: Record = {kind.value: -1 for kind in INTEGERS}
        self.merge(
            typed,
            aggregated("sum", *INTEGERS),
            ([add(**most), preimage(**ones), add(**ones)], most),
            ([add(**least), add(**ones), preimage(**ones)], least),
            ([add(**minus), add(**most), add(**minus), delete(**most)], dict.fromkeys(ones, -2)),
        )
        view = typed.table("t")
        for kind in INTEGERS:
            view.upsert({"id": -1, kind.value: -1})
            view.apply_changes([("-D", {"id": -1, kind.value: limits(kind)[0]})])
        row = view.read((-1,))
        assert row is not None
        assert {name: row[name] for name in most} == most

    @pytest.mark.parametrize("kind", [*INTEGERS, FieldType.DECIMAL], ids=lambda kind: kind.value)
    def test_sum_overflows(self, typed: Storage, kind: FieldType) -> None:
        """A sum that does not fit is `InvalidFieldError`, and nothing is written."""
        name, values = kind.value, EXTREMES[kind]
        one = Decimal(1) if kind is FieldType.DECIMAL else 1
        for before, refused in [
            ([add(**{name: values[-1]})], [add(**{name: one}), postimage(**{name: values[-1]})]),
            ([add(**{name: values[0]})], [preimage(**{name: one}), delete(**{name: values[-1]})]),
        ]:
            self.refuse(typed, aggregated("sum", kind), before, refused, InvalidFieldError, staged=False)
            typed.admin.drop("t")
        if kind is not FieldType.DECIMAL:
            least = limits(kind)[0]
            self.refuse(
                typed, aggregated("sum", kind), [add()], [delete(**{name: least})], InvalidFieldError, staged=False
            )

    @pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.value)
    def test_sum_of_floats(self, typed: Storage, kind: FieldType) -> None:
        """Finite numbers whose sum is infinite are `InvalidFieldError`; infinities and NaN add as floats do."""
        name, most = kind.value, EXTREMES[kind][-3]
        steps: list[tuple[list[Value], Value]] = [
            ([0.5, 0.25], 0.75),
            ([math.inf, -1.0], math.inf),
            ([math.inf, -math.inf], math.nan),
            ([math.nan, 1.0], math.nan),
            ([most, 0.0], most),
        ]
        self.merge(
            typed,
            aggregated("sum", kind),
            *(([add(**{name: n}) for n in given], {name: after}) for given, after in steps),
        )
        typed.admin.drop("t")
        before, refused = [add(**{name: most})], [add(**{name: most})]
        self.refuse(typed, aggregated("sum", kind), before, refused, InvalidFieldError, staged=False)

    def test_sum_of_floats_is_rounded(self, typed: Storage) -> None:
        """Sums of FLOAT are rounded to 32 bits like any value."""
        self.merge(
            typed,
            aggregated("sum", *FLOATS),
            ([add(float=16_777_216.0), add(float=1.0)], {"float": 16_777_216.0}),
            ([add(double=0.1), add(double=0.2)], {"double": 0.1 + 0.2}),
        )

    def test_product(self, typed: Storage) -> None:
        """product: a given value replaces a stored null; a given null is ignored."""
        kinds = [*INTEGERS, *FLOATS]
        numbers: dict[int | None, Record] = {n: {kind.value: n for kind in kinds} for n in (None, 0, 2, -3, -6)}
        self.merge(
            typed,
            aggregated("product", *kinds),
            ([add(**numbers[2]), postimage(**numbers[None]), add(**numbers[-3])], numbers[-6]),
            ([add(**numbers[None]), add(**numbers[-3])], numbers[-3]),
            ([add(**numbers[-3]), add(**numbers[0])], numbers[0]),
            ([add(double=math.inf), add(double=0.0)], {"double": math.nan}),
        )

    def test_product_that_does_not_fit(self, typed: Storage) -> None:
        """A product that overflows, or of non-zeros that becomes zero, is `InvalidFieldError`."""
        for kind in INTEGERS:
            name = kind.value
            least, most = limits(kind)
            for value, factor in [(most, 2), (least, -1), (most, most)]:
                before, refused = [add(**{name: value})], [add(**{name: factor})]
                self.refuse(typed, aggregated("product", kind), before, refused, InvalidFieldError, staged=False)
                typed.admin.drop("t")
        for kind in FLOATS:
            name, tiny, huge = kind.value, EXTREMES[kind][4], EXTREMES[kind][-3]
            for number, times in [(tiny, 0.25), (huge, 2.0)]:
                before, refused = [add(**{name: number})], [add(**{name: times})]
                self.refuse(typed, aggregated("product", kind), before, refused, InvalidFieldError, staged=False)
                typed.admin.drop("t")

    def test_count_of_values(self, typed: Storage) -> None:
        """Count adds one for a value that is not null, whatever it is, and takes one away when it is retracted."""
        self.merge(
            typed,
            aggregated("count", FieldType.INT, FieldType.LONG),
            ([add(int=7, long=None), add(int=-5), postimage(int=0, long=9)], {"int": 3, "long": 1}),
            ([add(int=7), delete(int=9), preimage(int=9)], {"int": -1}),
            ([delete(int=7)], {"int": -1}),
            ([add(int=None)], {}),
            ([add(), preimage(int=None)], {}),
        )

    @pytest.mark.parametrize("kind", [FieldType.INT, FieldType.LONG], ids=lambda kind: kind.value)
    def test_count_overflows(self, typed: Storage, kind: FieldType) -> None:
        """A count beyond its type is `InvalidFieldError`."""
        name = kind.value
        typed.admin.create(aggregated("count", kind))
        view = typed.table("t")
        for limit, step in zip(limits(kind), (delete(id=1, **{name: 1}), add(id=1, **{name: 1})), strict=True):
            view.replace({"id": 1, name: limit})
            with pytest.raises(InvalidFieldError):
                view.apply_changes([step])
            with pytest.raises(InvalidFieldError):
                self.in_transaction(typed, "t", step)
            with pytest.raises(InvalidFieldError):
                self.in_job(typed, "t", [step], False)
            assert view.read((1,)) == {"id": 1, name: limit}

    def test_overflow_leaves_or_ends_the_transaction(self, typed: Storage) -> None:
        """An overflow is raised by the merge, which then has no effect, or later: then nothing can be committed."""
        for spec in (
            aggregated("sum", FieldType.BYTE),
            aggregated("sum", FieldType.BYTE).evolve(name="u", indexes=["byte"]),
        ):
            typed.admin.create(spec)
            view = typed.table(spec.name)
            view.upsert({"id": 1, "byte": 100})
            transaction = typed.transaction()
            inside = transaction.table(spec.name)
            inside.upsert({"id": 2, "byte": 1})
            try:
                inside.upsert({"id": 1, "byte": 100})
            except InvalidFieldError:
                inside.upsert({"id": 1, "byte": 1})
                transaction.commit()
                assert [row["byte"] for row in view.scan()] == [101, 1]
            else:
                with pytest.raises(InvalidFieldError):
                    transaction.commit()
                transaction.rollback()
                assert [row["byte"] for row in view.scan()] == [100]

    def test_sums_of_widened_fields(self, typed: Storage) -> None:
        """Fields under a sum may be widened; the sum continues."""
        narrow = aggregated("sum", FieldType.INT)
        typed.admin.create(narrow)
        view = typed.table("t")
        view.upsert({"id": 1, "int": 2**31 - 1})
        wide = TableSpecification(
            "t", [Field.long("id"), Field.long("int")], ["id"], options=aggregated("sum", FieldType.INT).options
        )
        typed.admin.create_or_update(wide)
        view.upsert({"id": 1, "int": 1})
        view.upsert_many([{"id": 1, "int": 2**40}, {"id": 2, "int": 1}])
        assert [row["int"] for row in view.scan()] == [2**31 + 2**40, 1]
