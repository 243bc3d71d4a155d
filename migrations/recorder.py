"""`Recorder`: the `op` of a revision's script, which records operations and runs nothing."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping

from structable.spi import Cast, Field, FieldFunction, FieldType, JsonField, Lower, TableSpecification, Value
from structable.spi.authors import check_value

from .errors import RevisionError
from .operations import (
    AddField,
    AddIndex,
    CreateTable,
    DropField,
    DropIndex,
    DropRule,
    DropTable,
    Operation,
    RenameField,
    Rewrite,
    RunFunction,
    WidenField,
)

_MOST_DAYS = 36_500
"""The date on which a table is dropped must exist."""


class Constructors:
    """Makes fields (`op.long("n")`), tables (`op.table("runs", fields, ["app"])`) and functions (`op.lower()`)."""

    def table(
        self,
        name: str,
        fields: Iterable[Field],
        primary_key: Iterable[str] = (),
        indexes: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> TableSpecification:
        """Return a table's specification."""
        return TableSpecification(name, fields, primary_key, indexes, options)

    def decimal(self, name: str, precision: builtins.int, scale: builtins.int) -> Field:
        """Return a field of type decimal."""
        return Field.decimal(name, precision, scale)

    boolean: Callable[[str], Field] = staticmethod(Field.boolean)
    byte: Callable[[str], Field] = staticmethod(Field.byte)
    short: Callable[[str], Field] = staticmethod(Field.short)
    int: Callable[[str], Field] = staticmethod(Field.int)
    long: Callable[[str], Field] = staticmethod(Field.long)
    float: Callable[[str], Field] = staticmethod(Field.float)
    double: Callable[[str], Field] = staticmethod(Field.double)
    string: Callable[[str], Field] = staticmethod(Field.string)
    bytes: Callable[[str], Field] = staticmethod(Field.bytes)
    date: Callable[[str], Field] = staticmethod(Field.date)
    timestamp: Callable[[str], Field] = staticmethod(Field.timestamp)
    timestamp_ntz: Callable[[str], Field] = staticmethod(Field.timestamp_ntz)

    def json_field(
        self,
        path: tuple[str | builtins.int, ...],
        type: FieldType | str,  # noqa: A002 - the name of the contract
        *,
        strict: bool = False,
    ) -> JsonField:
        """Return the function that reads a value from a JSON document; `type` is a name such as "long"."""
        return JsonField(path, type, strict=strict)

    def cast(self, type: FieldType | str) -> Cast:  # noqa: A002 - the name of the contract
        """Return the function that converts a number to a wider type, or to decimal text."""
        return Cast(type)

    def lower(self) -> Lower:
        """Return the function that makes a string lower case."""
        return Lower()


class Recorder(Constructors):
    """Records the operations of one function of a script; also makes their arguments, so that scripts import nothing.

    Parameters
    ----------
    function : str
        The script's function: `up`, `contract` or `down`.
    """

    def __init__(self, function: str) -> None:
        self._function = function
        self._recorded: list[Operation] = []

    @property
    def recorded(self) -> tuple[Operation, ...]:
        """The operations so far."""
        return tuple(self._recorded)

    def create_table(self, specification: TableSpecification) -> None:
        """Make a table; an existing one gets the fields and indexes that it lacks."""
        if not isinstance(specification, TableSpecification):
            raise RevisionError(f"create_table takes a table of op.table, not {specification!r}")
        self._record(CreateTable(specification), "up")

    def drop_table(self, table: str, keep_days: int = 7) -> None:
        """Retire a table, in the contract: programs no longer find it; its rows are deleted `keep_days` later."""
        if isinstance(keep_days, bool) or not isinstance(keep_days, int) or not 0 <= keep_days <= _MOST_DAYS:
            raise RevisionError(f"keep_days is {keep_days!r}; it must be a whole number of days, 0 to {_MOST_DAYS:,}")
        self._record(DropTable(self._name(table), keep_days), "up", "contract")

    def add_field(
        self,
        table: str,
        field: Field,
        *,
        derive: FieldFunction | None = None,
        source: str | None = None,
        default: Value = None,
    ) -> None:
        """Add a field: null in existing rows, computed from the field `source`, or filled with a default.

        A default is filled once, into the rows in which the field is null; later rows have the value that their writer
        gives.
        """
        self._check_field(table, field)
        if (derive is None) != (source is None):
            raise RevisionError(f"field {field.name!r} of table {table!r}: give derive and source together, or neither")
        if derive is not None and not isinstance(derive, FieldFunction):
            raise RevisionError(
                f"field {field.name!r} of table {table!r}: derive is {derive!r}; it must be made by op.json_field, "
                "op.cast or op.lower"
            )
        if default is not None:
            if derive is not None:
                raise RevisionError(f"field {field.name!r} of table {table!r}: a computed field has no default")
            default = check_value(table, field, default)
        self._record(AddField(table, field, derive, source, default), "up")

    def widen_field(self, table: str, field: Field) -> None:
        """Widen an integer or a float: `field` is the field as it will be."""
        self._check_field(table, field)
        self._record(WidenField(table, field), "up")

    def add_index(self, table: str, field: str) -> None:
        """Index a field, after this revision has filled it."""
        self._record(AddIndex(self._name(table), self._name(field)), "up")

    def drop_index(self, table: str, field: str) -> None:
        """Remove the index of a field, in the contract."""
        self._record(DropIndex(self._name(table), self._name(field)), "up", "contract")

    def rename_field(self, table: str, old: str, new: str) -> None:
        """Give a field a second name, which is its only name after the contract."""
        self._check_field(table, Field.int(self._name(new)))
        self._record(RenameField(table, self._name(old), new), "up")

    def drop_field(self, table: str, field: str) -> None:
        """Remove a field, its index and the rule that computes it, in the contract."""
        self._record(DropField(self._name(table), self._name(field)), "up", "contract")

    def drop_rule(self, table: str, field: str) -> None:
        """Turn a computed field into an ordinary one, in the contract."""
        self._record(DropRule(self._name(table), self._name(field)), "contract")

    def rewrite(self, table: str, function: str, where: str | None = None) -> None:
        """Change rows in place: `function`, "module:function", takes a row and returns changes, or None.

        It must be idempotent, and old code must understand the result. `where` is an expression in the syntax of the
        command line; the function sees only rows for which it is true.
        """
        if where is not None and not isinstance(where, str):
            raise RevisionError(f"where is {where!r}; it must be a text such as 'n > 3', or None")
        self._record(Rewrite(self._name(table), self._callable(function), where), "up", "down")

    def run(self, function: str) -> None:
        """Call `function`, "module:function", with a transaction; its writes are committed exactly once."""
        self._record(RunFunction(self._callable(function)), "up", "down")

    def _record(self, operation: Operation, *allowed: str) -> None:
        if self._function not in allowed:
            places = " and ".join(allowed)
            raise RevisionError(f"'{operation}' is an operation of {places}, not of {self._function}")
        self._recorded.append(operation)

    def _check_field(self, table: str, field: object) -> None:
        if not isinstance(field, Field):
            raise RevisionError(f"{field!r} is not a field; make one, as in op.long('n')")
        TableSpecification(self._name(table), [field], options={"write-mode": "append-only"})  # which checks names

    @staticmethod
    def _name(name: object) -> str:
        if not isinstance(name, str) or not name:
            raise RevisionError(f"{name!r} is not the name of a table or a field")
        return name

    @staticmethod
    def _callable(function: object) -> str:
        module, separator, name = function.partition(":") if isinstance(function, str) else ("", "", "")
        if not (separator and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            raise RevisionError(f'{function!r} does not name a function; write it as "module:function"')
        return f"{module}:{name}"
