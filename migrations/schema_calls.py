"""`SchemaCalls`: repeatable changes of tables that wait while other transactions hold the tables."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import logging
from collections.abc import Callable, Collection

from structable.spi import (
    Derived,
    Field,
    FieldRule,
    FindingLevel,
    InvalidFieldError,
    Renamed,
    Retired,
    StorageUnavailableError,
    StructableError,
    TableNotFoundError,
    TableSpecification,
)
from structable.spi.authors import named_fields, retired_since, widens, without_field

from .errors import MigrationError
from .operations import What
from .scope import RunnerScope

_log = logging.getLogger("structable.migrations")
_ATTEMPTS = 5
_FIRST_PAUSE = 1.0

Report = Callable[[int, int | None], None]


class SchemaCalls:
    """Changes of the tables of a store for one revision. Each may be repeated: a change already made is skipped.

    Each change checks the lease first, and rules are changed only if they are as they were read: a runner that stood
    still does not undo the changes of the one that took over.

    Parameters
    ----------
    scope : RunnerScope
        The state of the runner.
    revision : int
        The revision, which the store records with everything that its contract removes.
    """

    def __init__(self, scope: RunnerScope, revision: int) -> None:
        self.revision = revision
        self._scope = scope
        self._storage = scope.history.storage
        self._admin = self._storage.admin

    def find(self, table: str) -> TableSpecification | None:
        """Return the present specification of a table, also of a retired one; None if there is no table."""
        try:
            return self._admin.get_specification(table)
        except TableNotFoundError:
            return None

    def require(self, table: str) -> TableSpecification:
        """Return the present specification of a table.

        Raises
        ------
        MigrationError
            If there is none.
        """
        found = self.find(table)
        if found is None:
            raise MigrationError(
                f"table {table!r}, which revision {self.revision} changes, does not exist; create it before"
            )
        return found

    def things(self, table: str) -> set[What]:
        """Return a table, its fields, indexes and rules; nothing if there is no table."""
        spec = self.find(table)
        if spec is None:
            return set()
        named = {"field": spec.field_names, "index": spec.indexes, "rule": [_target(rule) for rule in spec.rules]}
        return {("table", table), *((kind, table, name) for kind, names in named.items() for name in names if name)}

    def create(self, spec: TableSpecification) -> None:
        """Create a table, or add the fields and indexes that it lacks."""
        self._patiently(lambda: self._admin.create_or_update(spec, revision=self.revision))

    def drop(self, table: str) -> None:
        """Drop a table, also a retired one."""
        self._patiently(lambda: self._admin.drop(table))

    def add_field(self, table: str, field: Field, rule: Derived | Renamed | None = None) -> None:
        """Add a field and its rule, which is not ready."""
        spec = self.require(table)
        if field.name not in spec:
            wanted = spec.evolve(fields=[*spec.fields, field])
            if rule is not None:
                wanted.evolve(rules=[*spec.rules, rule])  # which raises if the rule does not fit
            self.create(wanted)
        elif (found := spec.field(field.name)) != field and not widens(field, found):
            raise MigrationError(
                f"table {table!r} has a field {found}, which revision {self.revision} adds as {field}; give it "
                "another name"
            )
        if rule is not None:
            self._add_rule(table, rule)

    def widen_field(self, table: str, field: Field) -> None:
        """Widen a field."""
        spec = self.require(table)
        if field.name not in spec:
            raise MigrationError(f"table {table!r} has no field {field.name!r}, which revision {self.revision} widens")
        found = spec.field(field.name)
        if found == field or widens(field, found):
            return
        if not widens(found, field) or field.name in spec.primary_key:
            raise MigrationError(
                f"table {table!r}: {found} cannot become {field.type_text}; integers and floats outside the key become "
                "wider ones. For all else add a field"
            )
        self.create(spec.evolve(fields=[field if one.name == field.name else one for one in spec.fields]))

    def add_index(self, table: str, field: str, report: Report) -> None:
        """Index a field, and report the number of rows covered."""
        spec = self.require(table)
        if field not in spec.indexes:
            wanted = spec.evolve(indexes=[*spec.indexes, field])
            self._patiently(lambda: self._admin.create_or_update(wanted, progress=report, revision=self.revision))

    def drop_index(self, table: str, field: str, *, revision: int | None) -> None:
        """Remove an index, even if its build was interrupted; for good by a revision, if there is one."""
        if self.find(table) is not None:
            with contextlib.suppress(InvalidFieldError):  # there is none
                self._patiently(lambda: self._admin.drop_index(table, field, revision=revision))

    def drop_field(self, table: str, field: str, *, revision: int | None) -> None:
        """Remove a field, its index, and the rules that name it; fields computed from it keep their values.

        It is removed for good by a revision, if there is one.
        """
        spec = self.find(table)
        if spec is None or field not in spec:
            return
        self.drop_index(table, field, revision=revision)
        self._set_rules(spec, [rule for rule in spec.rules if field not in named_fields([rule])])
        self._patiently(lambda: self._admin.drop_field(table, field, revision=revision))

    def require_droppable(self, table: str, field: str) -> None:
        """Check that a later contract can remove a field.

        Raises
        ------
        SchemaIncompatibleError
            If the table needs the field.
        """
        spec = self.find(table)
        if spec is not None and field in spec:
            rules = [rule for rule in spec.rules if field not in named_fields([rule])]
            without_field(spec.evolve(indexes=[one for one in spec.indexes if one != field], rules=rules), field)

    def _add_rule(self, table: str, rule: Derived | Renamed) -> None:
        spec = self.require(table)
        present = next((one for one in spec.rules if _target(one) == _target(rule)), None)
        if present is None:
            self._set_rules(spec, [*spec.rules, rule])
        elif _ready(present) != _ready(rule):
            raise MigrationError(
                f"table {table!r} has the rule {present!r}, where revision {self.revision} has {rule!r}; add a field "
                "of another name"
            )

    def add_name(self, table: str, old: str, new: str) -> None:
        """Give a field a second name."""
        spec = self.require(table)
        if old not in spec:
            raise MigrationError(
                f"table {table!r} has no field {old!r}, which revision {self.revision} renames to {new!r}"
            )
        self.add_field(table, dataclasses.replace(spec.field(old), name=new), Renamed(old, new))

    def end_name(self, table: str, old: str, new: str, own: Collection[str]) -> None:
        """Remove the rule of a new name; fields computed from the old one, but `own`, follow the new one."""
        spec = self.find(table)
        if spec is None:
            return
        rules = [rule for rule in spec.rules if not (isinstance(rule, Renamed) and (rule.old, rule.new) == (old, new))]
        if len(rules) < len(spec.rules):  # else it was done, and the old name may be another field now
            self._set_rules(spec, [rule if _target(rule) in own else _of_source(rule, old, new) for rule in rules])

    def set_ready(self, table: str, field: str) -> None:
        """Mark the rule of a field as ready.

        Raises
        ------
        MigrationError
            If it is gone.
        """
        spec = self.require(table)
        if field not in map(_target, spec.rules):
            raise MigrationError(
                f"table {table!r}: {field!r} has lost the rule of revision {self.revision}: the table was made again "
                f"since, or copied; run 'structable migrate down {self.revision - 1}', and 'up' again"
            )
        self._set_rules(spec, [_ready(rule) if _target(rule) == field else rule for rule in spec.rules])

    def drop_rule(self, table: str, field: str) -> None:
        """Remove the rule of a field, which keeps its values."""
        spec = self.find(table)
        if spec is not None:
            self._set_rules(spec, [rule for rule in spec.rules if _target(rule) != field])

    def is_retired(self, table: str) -> bool:
        """Return whether the table exists and is retired."""
        spec = self.find(table)
        return spec is not None and retired_since(spec.rules) is not None

    def retire(self, table: str, at: dt.datetime) -> dt.datetime | None:
        """Retire a table, and return the time of its retirement; None if there is no such table."""
        spec = self.find(table)
        if spec is None:
            return None
        since = retired_since(spec.rules)
        if since is not None:
            return since
        self._set_rules(spec, [*spec.rules, Retired(at)], self.revision)
        return at

    def _set_rules(self, spec: TableSpecification, rules: list[FieldRule], revision: int | None = None) -> None:
        if list(spec.rules) != rules:
            self._patiently(lambda: self._admin.set_rules(spec.name, rules, expected=spec.rules, revision=revision))

    def _patiently(self, call: Callable[[], None]) -> None:
        """Call, and retry after a pause while other transactions hold the tables. They are reported, never ended."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._scope.check()
                return call()
            except StorageUnavailableError as error:
                in_the_way = self._in_the_way()
                if error.lasting or attempt == _ATTEMPTS or self._scope.ended.wait(_FIRST_PAUSE * 2 ** (attempt - 1)):
                    for note in in_the_way:
                        error.add_note(note)
                    raise
                _log.warning("%s; trying again%s", error, "".join(f"; {note}" for note in in_the_way))
        return None

    def _in_the_way(self) -> list[str]:
        try:
            found = list(self._storage.diagnose())
        except StructableError:
            return []
        return [f"{one.subject}: {one.text}" for one in found if one.level is not FindingLevel.OK]


def _target(rule: FieldRule) -> str | None:
    match rule:
        case Derived(field):
            return field
        case Renamed(_, new):
            return new
    return None


def _of_source(rule: FieldRule, old: str, new: str) -> FieldRule:
    if isinstance(rule, Derived) and rule.source == old:
        return dataclasses.replace(rule, source=new)
    return rule


def _ready(rule: FieldRule) -> FieldRule:
    return rule if isinstance(rule, Retired) else dataclasses.replace(rule, ready=True)
