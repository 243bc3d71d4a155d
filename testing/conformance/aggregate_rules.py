"""Rules of the aggregate functions, except sum, product and count: values, nulls, extremes, retracts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from structable.spi import Field, FieldType, Storage, TableSpecification, UnsupportedOperationError

from .merge_case import MergeCase, Step, add, delete, postimage, preimage
from .samples import EXTREMES, TYPES, Record

FLOATS = [FieldType.FLOAT, FieldType.DOUBLE]
FIELDS = {field.type: field for field in TYPES.fields if field.name != "id"}
AGGREGATION = {"merge-engine": "aggregation"}


def aggregated(function: str, *kinds: FieldType, **options: str) -> TableSpecification:
    """Return a table of fields of these types, each named by its type and aggregated by the function."""
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return TableSpecification(
        "t",
        [Field.long("id"), *(FIELDS[kind] for kind in kinds)],
        ["id"],
        options={**AGGREGATION, "fields.default-aggregate-function": function, **given},
    )


class AggregateRules(MergeCase):
    """Each named field is aggregated by its function."""

    @pytest.mark.parametrize("function", ["min", "max"])
    def test_min_and_max(self, typed: Storage, function: str) -> None:
        """Min and max of every type, in the contract's order: NaN greatest, false before true; nulls are ignored."""
        cases: list[tuple[list[Step], Record]] = []
        for kind, values in EXTREMES.items():
            name, expected = kind.value, values[0 if function == "min" else -1]
            for order in (values, values[::-1], [None, *values, None]):
                cases.append(([add(**{name: value}) for value in order], {name: expected}))
        self.merge(typed, aggregated(function, *FIELDS), *cases)

    @pytest.mark.parametrize("function", ["min", "max"])
    def test_min_and_max_keep_an_equal_value(self, typed: Storage, function: str) -> None:
        """Min and max keep the stored value where the given one is equal: 0.0 and -0.0."""
        typed.admin.create(aggregated(function, *FLOATS))
        view = typed.table("t")
        for key, zeros in enumerate([(0.0, -0.0), (-0.0, 0.0)]):
            for many in (0, 10):
                rows = [{"id": key + many, "double": zero, "float": zero} for zero in zeros]
                if many:
                    view.upsert_many(rows)
                else:
                    view.upsert(rows[0])
                    view.upsert(rows[1])
        signs = [(math.copysign(1, row["double"]), math.copysign(1, row["float"])) for row in view.scan()]  # type: ignore[arg-type]
        assert signs == [(1, 1), (-1, -1)] * 2

    def test_last_value(self, typed: Storage) -> None:
        """last_value is the named value, null too; last_non_null_value the last that is not null."""
        for kinds in ([FieldType.INT, FieldType.STRING], [FieldType.BYTES, FieldType.DECIMAL, FieldType.BOOLEAN]):
            one: Record = {kind.value: EXTREMES[kind][0] for kind in kinds}
            two: Record = {kind.value: EXTREMES[kind][-1] for kind in kinds}
            nulls: Record = dict.fromkeys(one)
            for function, last in (("last_value", nulls), ("last_non_null_value", two)):
                self.merge(
                    typed,
                    aggregated(function, *kinds),
                    ([add(**one), postimage(**two)], two),
                    ([add(**one), add(**two), add(**nulls)], last),
                    ([add(**one), add(**two), add()], two),
                    ([add(**nulls), add(**one)], one),
                )
                typed.admin.drop("t")

    def test_first_value(self, typed: Storage) -> None:
        """first_value keeps the value of the merge that made the row, null too, for ever."""
        self.merge(
            typed,
            aggregated("first_value", FieldType.INT, FieldType.STRING),
            ([add(int=1, string="a"), add(int=2, string="b")], {"int": 1, "string": "a"}),
            ([add(int=None), add(int=2)], {}),
            ([add(string="a"), add(int=2), postimage(int=3)], {"string": "a"}),
            ([add(), add(int=2, string="b")], {}),
            ([preimage(), add(int=2)], {}),
        )

    def test_first_non_null_value(self, typed: Storage) -> None:
        """first_non_null_value is the first value that is not null."""
        self.merge(
            typed,
            aggregated("first_non_null_value", FieldType.INT, FieldType.STRING),
            ([add(int=1), add(int=2, string="b")], {"int": 1, "string": "b"}),
            ([add(int=None), add(int=2), add(int=3)], {"int": 2}),
            ([preimage(), add(int=2)], {"int": 2}),
        )

    def test_listagg(self, typed: Storage) -> None:
        """Listagg appends delimiter and value, and ignores nulls and empty strings; a stored "" counts as null."""
        self.merge(
            typed,
            aggregated("listagg", FieldType.STRING),
            ([add(string="b"), add(string="a"), postimage(string="b")], {"string": "b,a,b"}),
            ([add(string=None), add(string="a"), add(string=""), add(string=None)], {"string": "a"}),
            ([add(string="a,b"), add(string=",")], {"string": "a,b,,"}),
            ([add(string=""), add(string="a")], {"string": "a"}),
        )
        view = typed.table("t")
        view.replace({"id": -1, "string": ""})
        view.upsert({"id": -1, "string": "a"})
        assert view.read((-1,)) == {"id": -1, "string": "a"}

    def test_listagg_delimiter(self, typed: Storage) -> None:
        """The delimiter is any text that is not empty."""
        for delimiter in ("; ", "%", "\\", "'", ".*", "\u00e9\U0010ffff"):
            spec = aggregated("listagg", FieldType.STRING, fields__string__list_agg_delimiter=delimiter)
            self.merge(
                typed, spec, ([add(string="a"), add(string="b"), add(string="b")], {"string": delimiter.join("abb")})
            )
            typed.admin.drop("t")

    def test_listagg_distinct(self, typed: Storage) -> None:
        """distinct: values are split at the delimiter; empty parts are ignored, others kept once, in the order met."""
        for delimiter in (",", "||", ".", "a+"):
            spec = aggregated(
                "listagg",
                FieldType.STRING,
                fields__string__distinct="true",
                fields__string__list_agg_delimiter=delimiter,
            )
            cases: list[tuple[list[list[str]], list[str]]] = [
                ([["x", "y"], ["y", "z"], ["x"]], ["x", "y", "z"]),
                ([["x", "x", "", "y"]], ["x", "y"]),
                ([["xx"], ["x"], ["", "", "xx"]], ["xx", "x"]),
                ([["", "x"], ["", ""]], ["x"]),
            ]
            self.merge(
                typed,
                spec,
                *(
                    ([add(string=delimiter.join(one)) for one in given], {"string": delimiter.join(after)})
                    for given, after in cases
                ),
            )
            view = typed.table("t")
            view.replace({"id": -1, "string": delimiter.join(["x", "x", "", "y"])})
            view.upsert({"id": -1, "string": delimiter.join(["y", "z", "x"])})
            assert view.read((-1,)) == {"id": -1, "string": delimiter.join(["x", "x", "", "y", "z"])}
            typed.admin.drop("t")

    def test_bool_and_or(self, typed: Storage) -> None:
        """bool_and and bool_or; nulls are ignored."""
        for function, both in (("bool_and", False), ("bool_or", True)):
            self.merge(
                typed,
                aggregated(function, FieldType.BOOLEAN),
                ([add(boolean=True), add(boolean=False)], {"boolean": both}),
                ([add(boolean=False), add(boolean=None), add(boolean=True)], {"boolean": both}),
                ([add(boolean=None), add(boolean=True)], {"boolean": True}),
                ([add(boolean=False), add(boolean=False)], {"boolean": False}),
                ([add(boolean=None)], {}),
            )
            typed.admin.drop("t")

    def test_unnamed_fields_are_untouched(self, typed: Storage) -> None:
        """Each field has its own function, last_non_null_value by default; a field that is not named is untouched."""
        options = {"fields.int.aggregate-function": "sum", "fields.long.aggregate-function": "count"}
        kinds = [FieldType.INT, FieldType.LONG, FieldType.STRING, FieldType.DOUBLE]
        fields: list[Field] = [Field.long("id"), *(FIELDS[kind] for kind in kinds)]
        self.merge(
            typed,
            TableSpecification("t", fields, ["id"], ["string"], {**AGGREGATION, **options}),
            (
                [add(int=1, string="a", double=0.5), add(int=1, long=1), add(string="b", double=None)],
                {"int": 2, "long": 1, "string": "b", "double": 0.5},
            ),
        )

    @pytest.mark.parametrize(
        "function",
        ["product", "min", "max", "last_value", "last_non_null_value", "first_value", "first_non_null_value"],
    )
    def test_retract_of_other_functions(self, typed: Storage, function: str) -> None:
        """A retract of a value of another function is refused, by field and function; a retract of null is ignored."""
        spec = aggregated(function, FieldType.INT)
        refused = [preimage(int=1), delete(int=0)]
        self.refuse(typed, spec, [add(int=1)], refused, UnsupportedOperationError, "int", function, "ignore-retract")
        typed.admin.drop("t")
        self.merge(typed, spec, ([add(int=1), preimage(int=None), delete()], {"int": 1}))

    @pytest.mark.parametrize("function", ["listagg", "bool_and", "bool_or"])
    def test_retract_of_lists_and_booleans(self, typed: Storage, function: str) -> None:
        """A retract of a value of a list or a boolean is refused; a retract of null is ignored."""
        kind, value = (FieldType.STRING, "a") if function == "listagg" else (FieldType.BOOLEAN, True)
        spec = aggregated(function, kind)
        before: list[Step] = [add(**{kind.value: value})]
        refused: list[Step] = [preimage(**{kind.value: value})]
        self.refuse(typed, spec, before, refused, UnsupportedOperationError, kind.value, function)
        typed.admin.drop("t")
        self.merge(typed, spec, ([*before, delete(**{kind.value: None})], {kind.value: value}))

    def test_ignore_retract(self, typed: Storage) -> None:
        """With `ignore-retract` a retract leaves the field as it is, of any function; others are retracted."""
        options: dict[str, Any] = {"fields__int__ignore_retract": "true", "fields__long__ignore_retract": "true"}
        given = {**options, "fields__int__aggregate_function": "max"}
        self.merge(
            typed,
            aggregated("sum", FieldType.INT, FieldType.LONG, FieldType.SHORT, **given),
            ([add(int=1, long=1, short=1), preimage(int=5, long=5, short=5)], {"int": 1, "long": 1, "short": -4}),
            ([delete(int=5, long=5)], {}),
        )

    def test_remove_record_on_delete_of_aggregates(self, typed: Storage) -> None:
        """With `remove-record-on-delete`, -D deletes the row, and a later add starts from nothing; -U retracts."""
        spec = aggregated(
            "sum",
            FieldType.INT,
            FieldType.STRING,
            remove_record_on_delete="true",
            fields__string__aggregate_function="listagg",
        )
        self.merge(
            typed,
            spec,
            ([add(int=5, string="a"), delete(int=1, string="b")], None),
            ([add(int=5, string="a"), delete(), add(int=2, string="c")], {"int": 2, "string": "c"}),
            ([add(int=5), preimage(int=1)], {"int": 4}),
            ([delete(int=1)], None),
            ([preimage(int=1)], {"int": -1}),
        )
        typed.admin.drop("t")
        self.refuse(typed, spec, [add(int=1, string="a")], [preimage(string="a")], UnsupportedOperationError, "listagg")
