"""Differences between a store's tables and a program's specifications: operations of a revision, and its script."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
from structable.spi.authors import RowRules, widens

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
    NamedFieldOperation,
    Operation,
    RenameField,
    What,
    WidenField,
    added,
    function_text,
    name_of,
    taken,
)

_HINT = "    # op.create_table, op.add_field, op.add_index, op.rename_field, ...: docs/migrations.md lists them"


@dataclass(slots=True)
class Differences:
    """The operations that a revision would have to record.

    Parameters
    ----------
    up, contract : list of Operation
        The operations.
    renames : list of RenameField
        Possible renames: a field vanished and another of its type was added.
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
        If the name does not exist, or is not a list of specifications.
    """
    try:
        found = object_named(name, folder)
    except ValueError as error:
        raise RevisionError(
            f"the target {name!r} cannot be imported: {error}; name it as package:SPECIFICATIONS"
        ) from error
    specs = list(found.values() if isinstance(found, Mapping) else found) if isinstance(found, Iterable) else [found]
    if not all(isinstance(one, TableSpecification) for one in specs):
        raise RevisionError(f"the target {name!r} is not a list of TableSpecification")
    return specs


def differences(
    storage: Storage, target: Iterable[TableSpecification], folder: Folder, rows: Mapping[int, RevisionRow]
) -> Differences:
    """Compare the tables of a store with specifications.

    Fields that an unfinished contract drops count as dropped. A table without a specification counts as dropped only if
    a revision made it: other tables belong to other programs.

    Raises
    ------
    RevisionError
        If a revision of the folder is not up, or a table cannot be changed to its specification.
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
        if before is None or name in dropped:
            _create(found, wanted[name])
        else:  # a name that the specification calls an old one stays until its contract
            kept, done = [rule.old for rule in _renamed(wanted[name])], len(found.up)
            _compare(found, dropped.without(before, kept), wanted[name])
            for operation in found.up[done:]:
                _require_possible(before, operation)
    for name in _made(revisions):
        if name not in wanted and name not in dropped and storage.admin.exists(name):
            found.contract.append(DropTable(name))
    return found


class _Dropped:
    """Fields and indexes that contracts remove, unfinished contracts included."""

    def __init__(self, rows: Iterable[RevisionRow]) -> None:
        self._gone: set[What] = set()
        self._renamed: dict[tuple[str, str], tuple[str, set[str]]] = {}
        """New names by old ones, and the fields that later revisions compute, of fields of their own."""
        for row in sorted(rows, key=lambda row: row.number):
            operations = row.operations
            for operation in operations.up:  # a field that is added again exists again, without its index
                made = added(operation)
                bare = {("index", *what[1:]) for what in made & self._gone if what[0] == "field"}
                self._gone = (self._gone | bare) - made
                for (table, _), (_, own) in self._renamed.items():
                    own.update(what[2] for what in made if what[:2] == ("rule", table))
            for operation in operations.contracts:
                self._gone |= taken(operation)
                if isinstance(operation, RenameField):
                    self._renamed[operation.table, operation.old] = operation.new, set()

    def __contains__(self, table: str) -> bool:
        return ("table", table) in self._gone

    def without(self, spec: TableSpecification, kept: Collection[str]) -> TableSpecification:
        """Return a table without the fields and indexes that contracts remove, except some fields."""
        gone = {name for name in spec.field_names if name not in kept and ("field", spec.name, name) in self._gone}
        ending = {one.old: one.new for one in _renamed(spec) if one.old not in kept}
        rules: list[FieldRule] = []
        for rule in spec.rules:
            match rule:
                case Renamed(old, new) if old in gone or new in gone:
                    continue
                case Derived(name, source) if name in gone or ("rule", spec.name, name) in self._gone:
                    continue
                case Derived(name, source):
                    known, own = self._renamed.get((spec.name, source), ("", set()))
                    if source in gone or (ending.get(source) == known and name not in own):
                        if not known or known in gone:
                            continue
                        rule = replace(rule, source=known)
            rules.append(rule)
        indexed = [name for name in spec.indexes if name not in gone and ("index", spec.name, name) not in self._gone]
        fields = [one for one in spec.fields if one.name not in gone]
        return spec.evolve(fields=fields, indexes=indexed, rules=rules)


def _made(revisions: Iterable[Revision]) -> list[str]:
    return sorted(
        {one.table for revision in revisions for one in revision.operations.up if isinstance(one, CreateTable)}
    )


def _create(found: Differences, spec: TableSpecification) -> None:
    """Record a table, then its rules: an operation makes a table without them."""
    named = {rule.new for rule in _renamed(spec)}
    plain = spec.evolve(
        fields=[one for one in spec.fields if one.name not in named],
        indexes=[one for one in spec.indexes if one not in named],
        rules=[],
    )
    found.up.append(CreateTable(plain))
    _compare(found, plain, spec)


def _renamed(spec: TableSpecification) -> list[Renamed]:
    return [rule for rule in spec.rules if isinstance(rule, Renamed)]


def _compare(found: Differences, before: TableSpecification, wanted: TableSpecification) -> None:
    name = wanted.name
    if before.primary_key != wanted.primary_key:
        raise RevisionError(
            f"table {name!r} has the key ({', '.join(before.primary_key)}) and cannot "
            f"get ({', '.join(wanted.primary_key)}); make a new table, which the old one's feed fills"
        )
    if {**before.options, **wanted.options} != dict(before.options):
        raise RevisionError(f"table {name!r} has the options {dict(before.options)!r}; no revision changes options")
    rules = RowRules(wanted).derived  # each rule after the rule of its source
    present = {rule.field: rule for rule in before.rules if isinstance(rule, Derived)}
    renames = {rule.new: rule.old for rule in _renamed(wanted)}
    ruled = {*renames, *(rule.field for rule in rules)}
    fresh = [one for one in wanted.fields if one.name not in before]
    found.up += [AddField(name, one) for one in fresh if one.name not in ruled]
    for one in wanted.fields:
        old = before.field(one.name) if one.name in before else one
        if widens(old, one) and one.name not in wanted.primary_key:
            found.up.append(WidenField(name, one))
        elif old != one and not widens(one, old):
            raise RevisionError(
                f"table {name!r}: {old} cannot become {one.type_text}; add a field of another name, and derive it"
            )
    there = {(rule.old, rule.new) for rule in _renamed(before)}
    for rename in _renamed(wanted):
        if rename.new in before and rename.old not in before:
            raise RevisionError(f"table {name!r}: {rename.old!r} is {rename.new!r} by now; leave {rename.old!r} out")
        if (rename.old, rename.new) not in there:
            found.up.append(RenameField(name, rename.old, rename.new))
    for rule in rules:
        kept = present.get(rule.field)
        if kept is None:
            found.up.append(AddField(name, wanted.field(rule.field), rule.function, rule.source))
        elif replace(rule, ready=True) != replace(kept, ready=True):
            raise RevisionError(
                f"table {name!r}: {rule.field!r} is {function_text(kept.function)} of {kept.source!r} and cannot "
                f"become {function_text(rule.function)} of {rule.source!r}; add a field of another name"
            )
    # Index the second name of an indexed field: the first name's index goes with it.
    indexes = dict.fromkeys([*wanted.indexes, *(new for new, old in renames.items() if old in wanted.indexes)])
    found.up += [AddIndex(name, one) for one in indexes if one not in before.indexes]
    gone = [one for one in before.fields if one.name not in wanted]
    found.contract += [DropIndex(name, one) for one in before.indexes if one in wanted and one not in indexes]
    found.contract += [DropRule(name, one) for one in present if wanted.rules and one in wanted and one not in ruled]
    found.contract += [DropField(name, one.name) for one in gone]
    for old in gone:
        for one in fresh:
            if one.name not in ruled and old.type_text == one.type_text:
                found.renames.append(RenameField(name, old.name, one.name))


def _require_possible(stored: TableSpecification, operation: Operation) -> None:
    """Raise RevisionError if a table allows a change only after a contract that is pending."""
    named = {name for rule in _renamed(stored) for name in (rule.old, rule.new)}
    derived = {rule.field: (rule.source, rule.function) for rule in stored.rules if isinstance(rule, Derived)}
    match operation:
        case AddField(_, field, derive, source) if field.name in stored:
            known = stored.field(field.name)
            wrong = known != field and not widens(field, known)
            if derive is not None:
                how = (source, derive)
                wrong = wrong or field.name in named or derived.get(field.name, how) != how
        case WidenField(_, field):
            wrong = field.name in named
        case RenameField(_, old, new):
            wrong = not named.isdisjoint((old, new))
        case _:
            wrong = False
    if wrong:
        raise RevisionError(f"'{operation}' has to wait for the contract of an earlier revision; run that first")


def script_of(slug: str, found: Differences) -> str:
    """Return the script that applies the differences."""
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
        case NamedFieldOperation(table, name):
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
