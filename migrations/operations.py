"""The operations of a revision, as values, and their documents, which are stored when the revision begins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, TypeAlias

from structable.spi import (
    Cast,
    Field,
    FieldFunction,
    FieldType,
    JsonField,
    TableSpecification,
    Value,
    specification_from_document,
    specification_to_document,
)
from structable.spi.text import (
    field_from_document,
    field_to_document,
    function_from_document,
    function_to_document,
    value_from_json,
    value_to_json,
)

from .errors import MigrationError


def function_text(function: FieldFunction) -> str:
    """Return a function as a script writes it, without `op.`."""
    match function:
        case JsonField(path, kind):
            return f"json_field({path!r}, {_type(kind)!r}{', strict=True' if function.strict else ''})"
        case Cast(kind):
            return f"cast({_type(kind)!r})"
    return "lower()"


def _type(kind: FieldType | str) -> str:
    return kind.value if isinstance(kind, FieldType) else kind


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Make a table."""

    specification: TableSpecification

    @property
    def table(self) -> str:
        """The table's name."""
        return self.specification.name

    def __str__(self) -> str:
        return f"create table {self.table}"


@dataclass(frozen=True, slots=True)
class DropTable:
    """Retire a table, in the contract, and drop it `keep_days` later."""

    table: str
    keep_days: int = 7

    def __str__(self) -> str:
        return f"drop table {self.table}, {self.keep_days} days after it was retired"


@dataclass(frozen=True, slots=True)
class AddField:
    """Add a field, which may be computed from another one, or filled in existing rows."""

    table: str
    field: Field
    derive: FieldFunction | None = None
    source: str | None = None
    default: Value = None

    def __str__(self) -> str:
        how = ""
        if self.derive is not None:
            how = f" = {function_text(self.derive)} of {self.source}"
        elif self.default is not None:
            how = f", {self.default!r} in the rows that exist"
        return f"add field {self.table}.{self.field}{how}"


@dataclass(frozen=True, slots=True)
class WidenField:
    """Make a number wider."""

    table: str
    field: Field

    def __str__(self) -> str:
        return f"widen field {self.table}.{self.field}"


@dataclass(frozen=True, slots=True)
class NamedFieldOperation:
    """An operation with no argument but a field's name."""

    table: str
    field: str
    words: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.words} {self.table}.{self.field}"


class AddIndex(NamedFieldOperation):
    """Index a field."""

    __slots__ = ()
    words = "add index"


class DropIndex(NamedFieldOperation):
    """Remove an index, in the contract."""

    __slots__ = ()
    words = "drop index"


class DropField(NamedFieldOperation):
    """Remove a field, in the contract."""

    __slots__ = ()
    words = "drop field"


class DropRule(NamedFieldOperation):
    """Turn a computed field into an ordinary one, in the contract."""

    __slots__ = ()
    words = "drop the rule of field"


@dataclass(frozen=True, slots=True)
class RenameField:
    """Give a field a second name, which replaces the first one in the contract."""

    table: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"rename field {self.table}.{self.old} to {self.new}"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Change rows in place by a function of the row."""

    table: str
    function: str
    where: str | None = None

    def __str__(self) -> str:
        return f"rewrite {self.table} by {self.function}" + (f" where {self.where}" if self.where else "")


@dataclass(frozen=True, slots=True)
class RunFunction:
    """Call a function with a transaction."""

    function: str

    def __str__(self) -> str:
        return f"run {self.function}"


Operation: TypeAlias = (
    CreateTable
    | DropTable
    | AddField
    | WidenField
    | AddIndex
    | DropIndex
    | RenameField
    | DropField
    | DropRule
    | Rewrite
    | RunFunction
)
FIRST_OF_DOWN = 1_000
"""The number of the first operation of `down` in the table of tasks, after the operations of `up`."""
_CONTRACTS = DropTable | DropIndex | RenameField | DropField | DropRule


@dataclass(frozen=True, slots=True)
class RevisionOperations:
    """The operations that a script recorded.

    Parameters
    ----------
    up, contract, down : tuple of Operation
        The operations of its three functions, in their order.
    reversible : bool
        Whether the script has a function `down`.
    """

    up: tuple[Operation, ...]
    contract: tuple[Operation, ...] = ()
    down: tuple[Operation, ...] = ()
    reversible: bool = False

    def at(self, position: int) -> Operation:
        """Return the operation of a number in the table of tasks."""
        return self.up[position] if position < FIRST_OF_DOWN else self.down[position - FIRST_OF_DOWN]

    @property
    def contracts(self) -> tuple[Operation, ...]:
        """The operations of a contract, in its order: fields after the indexes and rules that name them."""
        return tuple(one for one in (*self.up, *self.contract) if isinstance(one, _CONTRACTS))

    def to_text(self) -> str:
        """Return the operations as JSON, the same text for equal operations."""
        document = {
            "up": [_to_document(one) for one in self.up],
            "contract": [_to_document(one) for one in self.contract],
            "down": [_to_document(one) for one in self.down],
            "reversible": self.reversible,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    @classmethod
    def from_text(cls, text: str) -> RevisionOperations:
        """Return the operations of a text of `to_text`.

        Raises
        ------
        MigrationError
            If a later version of structable stored operations that this one does not know.
        """
        document = json.loads(text)
        parts = [tuple(map(_from_document, document[part])) for part in ("up", "contract", "down")]
        return cls(parts[0], parts[1], parts[2], document["reversible"])


What: TypeAlias = tuple[str, ...]
"""A table, or a field, a rule or an index of a table: its kind, then its names."""


def added(operation: Operation) -> set[What]:
    """Return the things that an operation creates."""
    match operation:
        case CreateTable(spec):
            fields = {("field", spec.name, name) for name in spec.field_names}
            return {("table", spec.name), *fields, *(("index", spec.name, name) for name in spec.indexes)}
        case AddField(table, field):
            return {("field", table, field.name), ("rule", table, field.name)}
        case RenameField(table, _, new):
            return {("field", table, new)}
        case AddIndex(table, name):
            return {("index", table, name)}
    return set()


def needed(operation: Operation) -> set[What]:
    """Return the things from which an operation fills rows; ("field", table) stands for any field of a table."""
    match operation:
        case AddField(table, source=str(source)) | RenameField(table, source):
            return {("table", table), ("field", table, source)}
        case AddField(table, default=default) if default is not None:
            return {("table", table)}
        case Rewrite(table):
            return {("table", table), ("field", table)}
    return set()


def taken(operation: Operation) -> set[What]:
    """Return the things that an operation removes in a contract; empty for other operations."""
    match operation:
        case DropTable(table):
            return {("table", table)}
        case DropField(table, name) | RenameField(table, name):
            return {("field", table, name)}
        case DropIndex(table, name):
            return {("index", table, name)}
        case DropRule(table, name):
            return {("rule", table, name)}
    return set()


_KINDS: dict[str, type[Operation]] = {
    "create_table": CreateTable,
    "drop_table": DropTable,
    "add_field": AddField,
    "widen_field": WidenField,
    "add_index": AddIndex,
    "drop_index": DropIndex,
    "rename_field": RenameField,
    "drop_field": DropField,
    "drop_rule": DropRule,
    "rewrite": Rewrite,
    "run": RunFunction,
}
_NAMES: dict[type[object], str] = {kind: name for name, kind in _KINDS.items()}


def name_of(operation: Operation) -> str:
    """Return the name of the method that records an operation."""
    return _NAMES[type(operation)]


def _to_document(operation: Operation) -> dict[str, object]:
    document: dict[str, object] = {"operation": name_of(operation)}
    match operation:
        case CreateTable(specification):
            document["specification"] = specification_to_document(specification)
        case AddField(table, field, derive, source, default):
            document |= {"table": table, "field": field_to_document(field)}
            if derive is not None:
                document |= {"derive": function_to_document(derive), "source": source}
            if default is not None:
                document["default"] = value_to_json(field, default)
        case WidenField(table, field):
            document |= {"table": table, "field": field_to_document(field)}
        case _:
            document |= asdict(operation)
    return document


def _from_document(document: Mapping[str, object]) -> Operation:
    arguments = dict(document)
    name = str(arguments.pop("operation"))
    kind = _KINDS.get(name)
    if kind is None:
        raise MigrationError(f"the store has an operation {name!r} of a later version of structable; use that version")
    if kind is CreateTable:
        return CreateTable(specification_from_document(arguments["specification"]))
    if kind is AddField or kind is WidenField:
        field = arguments["field"] = field_from_document(arguments["field"])
        if "derive" in arguments:
            arguments["derive"] = function_from_document(arguments["derive"])
        if "default" in arguments:
            arguments["default"] = value_from_json(field, arguments["default"])
    return kind(**arguments)  # type: ignore[arg-type]  # as _to_document wrote them
