"""`JoinTables`: checks the tables of a join against its definition, and makes or widens the result."""

from __future__ import annotations

from collections.abc import Mapping

from structable.spi import (
    PlanChangedError,
    Storage,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
)

from .binding import BoundJoin, bind, check_result
from .definition import parse_source
from .progress import PROGRESS, ProgressRecord, read_record
from .recording import Definition, definition_of, rivals
from .stores import JoinStores, View


class JoinTables:
    """The tables of a join.

    Parameters
    ----------
    stores : JoinStores
        The connections.
    """

    def __init__(self, stores: JoinStores) -> None:
        self._stores = stores
        self._join = stores.join
        self._bound: BoundJoin | None = None

    def record(self) -> ProgressRecord | None:
        """Return the present record of the join."""
        try:
            return read_record(self._stores.result.table(PROGRESS.name), self._join.name)
        except TableNotFoundError:
            return None

    def bind(self, *, resolve: bool = False) -> BoundJoin:
        """Check the join against its present tables, and create nothing.

        Parameters
        ----------
        resolve : bool
            Whether to resolve an absent selection now, even if one is recorded.

        Raises
        ------
        InvalidSpecificationError, UnsupportedOperationError, SchemaIncompatibleError, TableNotFoundError
            As `JoinWorker` does.
        """
        stores, join = self._stores, self._join
        left = stores.left.admin.get_specification(join.left.name)
        right = stores.right.admin.get_specification(join.right.name)
        existing, feed = self._result()
        record = self.record()
        known = None if record is None else Definition.parse(record.definition)
        recorded = None if known is None or resolve else known.selection
        if recorded is not None and not _fits(recorded, left, right):
            recorded = None
        bound = bind(join, left, right, recorded, self._faults(feed))
        ours = known if known is not None and known.feed == feed else None
        if existing is not None and (resolve or ours is None or not ours.differences(definition_of(bound, feed))):
            _checked_removals(existing, bound.result, ours, removes=resolve)
        self._bound = bound
        return bound

    def create(self, known: Definition | None = None) -> str:
        """Make the result and the table of records where they are absent, widen the result; return its feed.

        Parameters
        ----------
        known : Definition, optional
            The recorded definition, to drop the fields of a result of its that this join does not make.

        Raises
        ------
        SchemaIncompatibleError
            If the result exists and is not the join's.
        """
        assert self._bound is not None
        storage, wanted = self._stores.result, self._bound.result
        storage.admin.create_or_update(PROGRESS)
        existing, feed = self._result()
        if existing is None:
            try:
                storage.admin.create(wanted)
            except TableAlreadyExistsError:
                return self.create(known)  # another worker was quicker
            return storage.changes(wanted.name).latest().feed
        removes = known is not None
        if known is None and (record := self.record()) is not None:
            known = Definition.parse(record.definition)
        ours = known if known is not None and known.feed == feed else None
        for name in _checked_removals(existing, wanted, ours, removes=removes):
            storage.admin.drop_field(wanted.name, name)
        if ours is not None:
            storage.admin.create_or_update(wanted)
        return feed

    def reshapes(self, known: Definition) -> bool:
        """Return whether `create` would drop fields of the recorded join, or add some that were dropped by hand."""
        assert self._bound is not None
        existing, wanted = self._result()[0], self._bound.result
        return existing is None or any((name in existing) != (name in wanted) for name in known.fields)

    def result_feed(self) -> str:
        """Return the feed of the result, or "" if there is no such table."""
        return self._result()[1]

    def require_one_result(self, known: Definition) -> None:
        """Check that the recorded result is this one, or gone.

        Raises
        ------
        PlanChangedError
            Otherwise: two tables cannot be the results of one join.
        """
        name, other = self._join.name, known.result_table
        if other == self._join.result.name:
            return
        try:
            there = _feed(self._stores.result, other) == known.feed
        except TableNotFoundError:
            there = False
        if there:
            raise PlanChangedError(
                f"join {name!r}",
                [f"result was {other} and is {self._join.result.name}"],
                f"Give this join another name, or drop the table {other}",
            )

    def fits(self, view: View) -> bool:
        """Return whether the left and the right table are still as they were when the join was bound."""
        bound = self._bound
        assert bound is not None
        return view.left.specification == bound.left and view.right.specification == bound.right

    def result_fits(self, view: View) -> bool | None:
        """Return whether the result has the fields that the join makes, of their types; None if it lacks one."""
        assert self._bound is not None
        assert view.result is not None
        spec = view.result.specification
        if not all(one.name in spec for one in self._bound.result.fields):
            return None
        return all(spec.field(one.name) == one for one in self._bound.result.fields)

    def adopts(self, known: Definition, bound: BoundJoin) -> bool:
        """Return whether the join has no selection of its own, and its resolved one differs from the recorded one."""
        if self._join.select is not None or bound.sources is None or known.selection is None:
            return False
        return bound.sources != known.selection and _fits(known.selection, bound.left, bound.right)

    def _result(self) -> tuple[TableSpecification | None, str]:
        """Return the specification of the result, and its feed, or ""."""
        try:
            spec = self._stores.result.admin.get_specification(self._join.result.name)
        except TableNotFoundError:
            return None, ""
        return spec, _feed(self._stores.result, spec.name)

    def _faults(self, feed: str) -> list[str]:
        """Return the reasons other than fields for which an existing result cannot be the join's."""
        join, stores = self._join, self._stores
        if not feed:
            return []
        if feed in (_feed(stores.left, join.left.name), _feed(stores.right, join.right.name)):
            return [f"the result {join.result.name!r} is an input, too; name another table"]
        try:
            return rivals(stores.result.table(PROGRESS.name), join.name, join.result.name, feed)
        except TableNotFoundError:
            return []


def _checked_removals(
    existing: TableSpecification, wanted: TableSpecification, ours: Definition | None, *, removes: bool
) -> list[str]:
    """Check that a table can be the result, and return the fields of the recorded join that must be dropped."""
    recorded = ours.fields if removes and ours is not None else ()
    removed = [name for name in existing.field_names if name in recorded and name not in wanted]
    check_result(existing, wanted, ours=ours is not None, removed=removed)
    return removed


def _feed(storage: Storage, table: str) -> str:
    try:
        return storage.changes(table).earliest().feed
    except UnsupportedOperationError:
        return ""


def _fits(selection: Mapping[str, str], left: TableSpecification, right: TableSpecification) -> bool:
    sources = [parse_source(source) for source in selection.values()]
    return all(field in (left if side == "left" else right) for side, field in sources)
