"""Differences between a store's tables and a program's specifications: operations of a revision, and its script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from structable.spi import (
    Derived,
    Field,
    FieldRule,
    FieldType,
    Renamed,
    Storage,
    TableNotFoundError,
    TableSpecification,
)
from structable.spi.fields import widens

from .errors import RevisionError
from .folder import Folder, Revision, object_named
from .history import RevisionRow
from .operations import (
    AddField,
    AddIndex,
    CreateTable,
    DropField,
    DropIndex,
    DropRule,
    DropTable,
    FieldOperation,
    Operation,
    RenameField,
    WidenField,
    function_text,
    name_of,
)

__all__ = ["Differences", "differences", "script_of", "specifications_named"]

_HINT = "    # op.create_table, op.add_field, op.add_index, op.rename_field, ...: docs/migrations.md lists them"


@dataclass(slots=True)
class Differences:
    """The operations that a revision would have to record.

    Parameters
    ----------
    up, contract : list of Operation
        The operations.
    renames : list of RenameField
        Renames that may be meant where a field vanished and another of its type was added.
    """

    up: list[Operation] = field(default_factory=list)
    contract: list[Operation] = field(default_factory=list)
    renames: list[RenameField] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.up or self.contract)


def specifications_named(name: str, folder: Path) -> list[TableSpecification]:
    """Import the specifications of a program, "package:SPECIFICATIONS".

    Raises
    ------
    RevisionError
        If there are none of this name, or it is no list of specifications.
    """
    try:
        found = object_named(name, folder)
    except ValueError as error:
        raise RevisionError(
            f"the target {name!r} cannot be imported: {error}; name it as package:SPECIFICATIONS"
        ) from error
    specs = list(found.values() if isinstance(found, Mapping) else found) if isinstance(found, Iterable) else [found]
    if not all(isinstance(one, TableSpecification) for one in specs):
        raise RevisionError(f"the target {name!r} is no list of TableSpecification")
    return specs


def differences(
    storage: Storage, target: Iterable[TableSpecification], folder: Folder, rows: Mapping[int, RevisionRow]
) -> Differences:
    """Compare the tables of a store with specifications.

    What an unfinished contract drops counts as dropped. A table that the specifications do not have is one only if a
    revision made it: others belong to others.

    Raises
    ------
    RevisionError
        If a revision of the folder is not up, or a table cannot become what its specification says.
    """
    revisions = folder.revisions()
    for one in revisions:
        row = rows.get(one.number)
        if row is None or not row.state.ready:
            raise RevisionError(f"revision {one.number} is not up in this store; run 'structable migrate up' first")
    dropped = _Dropped(row for row in rows.values() if row.state.ready)
    found = Differences()
    wanted = {spec.name: spec for spec in target}
    for name in sorted(wanted):
        try:
            before = storage.admin.get_specification(name) if storage.admin.exists(name) else None
        except TableNotFoundError:
            before = None
        if before is None or name in dropped.tables:
            _create(found, wanted[name])
        else:
            _compare(found, dropped.without(before), wanted[name])
    for name in _made(revisions):
        if name not in wanted and name not in dropped.tables and storage.admin.exists(name):
            found.contract.append(DropTable(name))
    return found


class _Dropped:
    """Fields and indexes that contracts take away, unfinished contracts included."""

    def __init__(self, rows: Iterable[RevisionRow]) -> None:
        self.tables: set[str] = set()
        self._fields: set[tuple[str, str]] = set()
        self._indexes: set[tuple[str, str]] = set()
        self._rules: set[tuple[str, str]] = set()
        self._renamed: dict[tuple[str, str], str] = {}
        for row in sorted(rows, key=lambda row: row.number):
            for operation in row.operations.up:  # what is added again is there again
                match operation:
                    case CreateTable(specification):
                        self.tables.discard(specification.name)
                        self._fields -= {(specification.name, name) for name in specification.field_names}
                        self._indexes -= {(specification.name, name) for name in specification.indexes}
                    case AddField(table, one):
                        self._fields.discard((table, one.name))
                        self._rules.discard((table, one.name))
                    case AddIndex(table, name):
                        self._indexes.discard((table, name))
                    case RenameField(table, _, new):
                        self._fields.discard((table, new))
            for operation in row.operations.contracts:
                match operation:
                    case DropTable(table):
                        self.tables.add(table)
                    case DropField(table, name):
                        self._fields.add((table, name))
                    case RenameField(table, old, new):
                        self._fields.add((table, old))
                        self._renamed[table, old] = new
                    case DropIndex(table, name):
                        self._indexes.add((table, name))
                    case DropRule(table, name):
                        self._rules.add((table, name))

    def without(self, spec: TableSpecification) -> TableSpecification:
        """Return a table without what contracts take away."""
        gone = {name for name in spec.field_names if (spec.name, name) in self._fields}
        rules: list[FieldRule] = []
        for rule in spec.rules:
            match rule:
                case Renamed(old, new) if old in gone or new in gone:
                    continue
                case Derived(field, source) if field in gone or (spec.name, field) in self._rules:
                    continue
                case Derived(_, source) if source in gone:
                    known = self._renamed.get((spec.name, source))
                    if known is None or known in gone:
                        continue
                    rule = replace(rule, source=known)
            rules.append(rule)
        return spec.evolve(
            fields=[one for one in spec.fields if one.name not in gone],
            indexes=[name for name in spec.indexes if name not in gone and (spec.name, name) not in self._indexes],
            rules=rules,
        )


def _made(revisions: Iterable[Revision]) -> list[str]:
    return sorted(
        {one.table for revision in revisions for one in revision.operations.up if isinstance(one, CreateTable)}
    )


def _create(found: Differences, spec: TableSpecification) -> None:
    derived = [rule for rule in spec.rules if isinstance(rule, Derived)]
    found.up.append(CreateTable(spec.evolve(rules=[])))
    found.up += [AddField(spec.name, spec.field(rule.field), rule.function, rule.source) for rule in derived]
    if any(isinstance(rule, Renamed) for rule in spec.rules):
        raise RevisionError(f"table {spec.name!r} is new and has a renamed field; leave the old name out")


def _compare(found: Differences, before: TableSpecification, wanted: TableSpecification) -> None:
    name = wanted.name
    if before.primary_key != wanted.primary_key:
        raise RevisionError(
            f"table {name!r} has the key ({', '.join(before.primary_key)}) and cannot "
            f"get ({', '.join(wanted.primary_key)}); make a new table, which the old one's feed fills"
        )
    if {**before.options, **wanted.options} != dict(before.options):
        raise RevisionError(f"table {name!r} has the options {dict(before.options)!r}; no revision changes options")
    rules = {rule.field: rule for rule in wanted.rules if isinstance(rule, Derived)}
    present = {rule.field: rule for rule in before.rules if isinstance(rule, Derived)}
    renames = {rule.new: rule.old for rule in wanted.rules if isinstance(rule, Renamed)}
    added: list[Field] = []
    for one in wanted.fields:
        rule = rules.get(one.name)
        if one.name not in before:
            added.append(one)
            if one.name in renames:
                found.up.append(RenameField(name, renames[one.name], one.name))
            elif rule is not None:
                found.up.append(AddField(name, one, rule.function, rule.source))
            else:
                found.up.append(AddField(name, one))
            continue
        old = before.field(one.name)
        if widens(old, one) and one.name not in wanted.primary_key:
            found.up.append(WidenField(name, one))
        elif old != one and not widens(one, old):
            raise RevisionError(
                f"table {name!r}: {old} cannot become {one.type_text}; add a field of another name, and derive it"
            )
        if rule is not None and one.name not in present:
            found.up.append(AddField(name, one, rule.function, rule.source))
        elif rule is not None and replace(rule, ready=True) != replace(present[one.name], ready=True):
            kept = present[one.name]
            raise RevisionError(
                f"table {name!r}: {one.name!r} is {function_text(kept.function)} of {kept.source!r} and cannot become "
                f"{function_text(rule.function)} of {rule.source!r}; add a field of another name"
            )
    found.up += [AddIndex(name, one) for one in wanted.indexes if one not in before.indexes]
    gone = [one for one in before.fields if one.name not in wanted]
    found.contract += [DropIndex(name, one) for one in before.indexes if one not in wanted.indexes and one in wanted]
    found.contract += [DropField(name, one.name) for one in gone if one.name not in renames.values()]
    for old in gone:
        for new in added:
            if new.name not in rules and new.name not in renames and old.type_text == new.type_text:
                found.renames.append(RenameField(name, old.name, new.name))


def script_of(slug: str, found: Differences) -> str:
    """Return the script that does what was found to differ."""
    title = slug.replace("_", " ").capitalize()
    lines = [f'"""{title}."""', "", "", "def up(op):"]
    lines += [
        f"    # {_call(one)}  # if it is meant: in place of its add_field and its drop_field" for one in found.renames
    ]
    lines += [f"    {_call(one)}" for one in found.up] if found else [_HINT]
    lines += [] if found.up else ["    pass"]
    if found.contract:
        lines += ["", "", "def contract(op):"]
        lines += [f"    {_call(one)}" for one in found.contract]
    return "\n".join(lines) + "\n"


def _call(operation: Operation) -> str:
    match operation:
        case CreateTable(specification):
            return f"op.create_table({_table(specification)})"
        case AddField(table, field, derive, source) if derive is not None:
            return f"op.add_field({table!r}, {_field(field)}, derive=op.{function_text(derive)}, source={source!r})"
        case AddField(table, field):
            return f"op.add_field({table!r}, {_field(field)})"
        case WidenField(table, field):
            return f"op.widen_field({table!r}, {_field(field)})"
        case FieldOperation(table, name):
            return f"op.{name_of(operation)}({table!r}, {name!r})"
        case RenameField(table, old, new):
            return f"op.rename_field({table!r}, {old!r}, {new!r})"
        case DropTable(table, keep_days):
            return f"op.drop_table({table!r}, keep_days={keep_days})"
    raise TypeError(operation)


def _table(spec: TableSpecification) -> str:
    parts = [repr(spec.name), f"[{', '.join(map(_field, spec.fields))}]", f"primary_key={list(spec.primary_key)!r}"]
    if spec.indexes:
        parts.append(f"indexes={list(spec.indexes)!r}")
    if spec.options:
        parts.append(f"options={dict(spec.options)!r}")
    return f"op.table({', '.join(parts)})"


def _field(field: Field) -> str:
    if field.type is FieldType.DECIMAL:
        return f"op.decimal({field.name!r}, {field.precision}, {field.scale})"
    return f"op.{field.type.value}({field.name!r})"
