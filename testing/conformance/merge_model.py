"""A naive model of merges, written from the rules alone: it reads the options by itself and folds row by row.

It knows nothing of how the library merges, so that the two can be compared.
"""

from __future__ import annotations

import ctypes
import decimal
import math
from collections.abc import Callable, Mapping
from typing import Any

from structable.spi import FieldType, InvalidFieldError, RowKind, TableSpecification, UnsupportedOperationError, Value

from .conditions import rank
from .samples import Record

_BLIND = {"sum", "count", "min", "max", "bool_and", "bool_or"}
_WIDE = {FieldType.STRING, FieldType.BYTES}


def functions_of(spec: TableSpecification) -> dict[str, str]:
    """Return the aggregate function of each field that has one."""
    given = {
        name[len("fields.") : -len(".aggregate-function")]: value
        for name, value in spec.options.items()
        if name.startswith("fields.") and name.endswith(".aggregate-function")
    }
    if spec.options.get("merge-engine") != "aggregation":
        return given
    default = spec.options.get("fields.default-aggregate-function", "last_non_null_value")
    return {field.name: given.get(field.name, default) for field in spec.value_fields}


def groups_of(spec: TableSpecification) -> list[tuple[list[str], list[str]]]:
    """Return the sequence fields and the members of each sequence group."""
    return [
        (name[len("fields.") : -len(".sequence-group")].split(","), value.split(","))
        for name, value in spec.options.items()
        if name.startswith("fields.") and name.endswith(".sequence-group")
    ]


def position(values: list[Value]) -> list[tuple[Any, ...]]:
    """Return the sort key of a sequence: the fields in their order, null lowest."""
    return [(0,) if value is None else (1, value) for value in values]


class MergeModel:
    """The merges of one keyed table.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    """

    def __init__(self, spec: TableSpecification) -> None:
        self.spec = spec
        self.engine = spec.options.get("merge-engine", "deduplicate")
        self.functions = functions_of(spec)
        self.groups = groups_of(spec)
        self.grouped = {name for fields, members in self.groups for name in (*fields, *members)}
        sequence = spec.options.get("sequence.field")
        self.sequence = sequence.split(",") if sequence else []
        self.soft_delete = spec.options.get("soft-delete.field")

    @property
    def plain(self) -> bool:
        """Whether an add is an upsert of a table without options."""
        return self.engine == "deduplicate" and not self.sequence and self.soft_delete is None

    @property
    def blind(self) -> bool:
        """Whether two merges of one row by overlapping transactions may both commit."""
        return (
            self.engine == "aggregation"
            and not self.spec.indexes
            and all(self.functions[one.name] in _BLIND and one.type not in _WIDE for one in self.spec.value_fields)
        )

    def on(self, option: str) -> bool:
        return self.spec.options.get(option) == "true"

    def merge(self, old: Record | None, kind: RowKind, given: Mapping[str, Value]) -> Record | None:
        """Return the row after a merge; `old` itself where the engine ignores it.

        `given` has stored values, as `kept` makes them. Raises what the rules demand.
        """
        with decimal.localcontext(prec=80):
            return self._merge(old, kind, given)

    def _merge(self, old: Record | None, kind: RowKind, given: Mapping[str, Value]) -> Record | None:
        retract = kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
        if retract and self.on("ignore-delete"):
            return old
        row = dict(old) if old else {**dict.fromkeys(self.spec.field_names), **self.key(given)}
        match self.engine:
            case "deduplicate":
                return self._deduplicate(old, row, retract, given)
            case "first-row":
                if retract:
                    self.refuse(kind, "a first-row table")
                return old if old else {**row, **given}
        if kind is RowKind.DELETE and self.on("remove-record-on-delete"):
            return None
        if self.engine == "aggregation":
            for name in given.keys() & self.functions.keys():
                row[name] = self.aggregate(name, row[name], given[name], retract, new=old is None)
            return row
        return self._partial_update(old, row, kind, given)

    def key(self, given: Mapping[str, Value]) -> Record:
        return {name: given[name] for name in self.spec.primary_key}

    def refuse(self, kind: RowKind, what: str) -> None:
        raise UnsupportedOperationError(f"{kind} on {what}")

    def _deduplicate(self, old: Record | None, row: Record, retract: bool, given: Mapping[str, Value]) -> Record | None:
        if self.sequence:
            row = {**dict.fromkeys(self.spec.field_names), **self.key(given)}
            new = position([given.get(name) for name in self.sequence])
            unknown = new == position([None] * len(new))
            if retract and unknown and self.soft_delete:
                raise InvalidFieldError(self.spec.name, ",".join(self.sequence), "a delete names its sequence")
            late = old is not None and new < position([old[name] for name in self.sequence])
            if late and not (retract and unknown):
                return old
        if self.soft_delete:
            flag = True if retract else given.get(self.soft_delete, False)
            return {**row, **given, self.soft_delete: flag}
        return None if retract else {**row, **given}

    def _partial_update(
        self, old: Record | None, row: Record, kind: RowKind, given: Mapping[str, Value]
    ) -> Record | None:
        retract = kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
        if retract and not self.groups:
            if not self.on("remove-record-on-delete"):
                self.refuse(kind, "a partial-update table")
            return old
        moved = False
        for fields, members in self.groups:
            new = position([given.get(name) for name in fields])
            if new == position([None] * len(new)):
                continue
            moved = True
            late = new < position([row[name] for name in fields])
            for name in members:
                if name in self.functions:
                    if name in given:
                        row[name] = self.aggregate(name, row[name], given[name], retract, new=old is None)
                elif not late:
                    row[name] = None if retract else given.get(name)
            if not late:
                row.update({name: given.get(name) for name in fields})
        if retract:
            return row if moved else old
        others = given.keys() - self.grouped
        return {**row, **{name: given[name] for name in others if given[name] is not None}}

    def aggregate(self, name: str, acc: Value, value: Value, retract: bool, *, new: bool) -> Value:
        """Return the value of a field after a merge that names it."""
        function = self.functions[name]
        if retract:
            if self.on(f"fields.{name}.ignore-retract") or value is None:
                return acc
            if function not in ("sum", "count"):
                raise UnsupportedOperationError(f"field {name}: {function} cannot retract")
        match function:
            case "last_value":
                return value
            case "first_value":
                return value if new else acc
            case "count" if value is not None:
                return self.fitting(name, (acc or 0) + (-1 if retract else 1), [])  # type: ignore[operator]
        if value is None:
            return acc
        match function:
            case "last_non_null_value":
                return value
            case "first_non_null_value":
                return value if acc is None else acc
            case "sum" if acc is None:
                return self.fitting(name, -value if retract else value, [])  # type: ignore[operator]
            case "sum":
                return self.number(name, lambda a, b: a - b if retract else a + b, acc, value)
            case "product":
                return value if acc is None else self.number(name, lambda a, b: a * b, acc, value)
            case "min":
                return value if acc is None or rank(value) < rank(acc) else acc
            case "max":
                return value if acc is None or rank(value) > rank(acc) else acc
            case "bool_and":
                return value if acc is None else acc and value
            case "bool_or":
                return value if acc is None else acc or value
            case "listagg":
                return self.listed(name, acc, value)
        raise AssertionError(f"the model lacks {function}")

    def listed(self, name: str, acc: Any, value: Any) -> str:  # noqa: ANN401 - texts or null
        delimiter = self.spec.options.get(f"fields.{name}.list-agg-delimiter", ",")
        if self.on(f"fields.{name}.distinct"):
            known, fresh = (acc or "").split(delimiter), []
            for part in value.split(delimiter):
                if part and part not in known and part not in fresh:
                    fresh.append(part)
            value = delimiter.join(fresh)
        if not value:
            return acc  # type: ignore[no-any-return]
        return f"{acc}{delimiter}{value}" if acc else value

    def number(self, name: str, operation: Callable[[Any, Any], Any], acc: Any, value: Any) -> Value:  # noqa: ANN401
        return self.fitting(name, operation(acc, value), [acc, value])

    def fitting(self, name: str, result: Any, operands: list[Any]) -> Value:  # noqa: ANN401 - a number
        """Return a result as the field keeps it; `InvalidFieldError` if it does not fit."""
        field = self.spec.field(name)
        if field.type.integer_bits:
            fits = -(1 << (field.type.integer_bits - 1)) <= result < 1 << (field.type.integer_bits - 1)
        elif field.type is FieldType.DECIMAL:
            assert field.precision is not None
            assert field.scale is not None
            fits = abs(result) < decimal.Decimal(10) ** (field.precision - field.scale)
        else:
            if field.type is FieldType.FLOAT:
                result = ctypes.c_float(result).value
            fits = math.isfinite(result) or not operands or not all(map(math.isfinite, operands))
            if result == 0 and self.functions[name] == "product":
                fits = 0 in operands
        if not fits:
            raise InvalidFieldError(self.spec.name, name, f"{result} does not fit")
        return result  # type: ignore[no-any-return]
