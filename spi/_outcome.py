"""`Outcomes`: the effect of writes on a row. The one definition, against which all statements and jobs are tested."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from ._changes import RowKind
from ._errors import InvalidFieldError
from ._evaluation import same
from ._merging import IGNORED, Merger, Values
from ._operations import Effect, Judged, Otherwise, When
from ._rules.changes import incremented
from ._specification import TableSpecification
from ._values import Value

_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})
_CERTAIN = (Effect.PUT, Effect.REMOVE)


class RowWrite(NamedTuple):
    """A checked write of one row."""

    effect: Effect
    fields: Mapping[str, Value] = _NOTHING
    """The named fields outside the key with their values; of a STEP, one field with the amount."""
    when: When = When.ANY
    otherwise: Otherwise = Otherwise.REFUSE
    kind: RowKind = RowKind.UPDATE_AFTER
    """The kind of a MERGE."""
    expected: Mapping[str, Value] = _NOTHING
    """The values that the row must have."""
    default: Mapping[str, Value] | None = None
    """The row to start from if the key has none and the write needs one."""
    operand: Values | None = None
    """The operand of a MERGE of a blind table, in place of kind and fields: see `Merger.absorb`."""


class Refusal(enum.Enum):
    """The reason why writes are refused."""

    EXISTS = "there is a row"
    MISSING = "there is no row"
    CHANGED = "the row has other values"
    MISFIT = "the writes do not stand together"


Outcome: TypeAlias = Values | Refusal | None
"""The row afterwards, its values in the order of the columns; None if there is none."""


class Outcomes:
    """The outcomes of writes in one table with a key; immutable.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    columns : sequence of str, optional
        All fields outside the key, in the order of rows; the specification's order, if not given.
    """

    def __init__(self, spec: TableSpecification, columns: Sequence[str] | None = None) -> None:
        self._spec = spec
        self._merger = Merger(spec, columns)
        self._merges = spec.table_options.merges
        self._columns = self._merger.columns
        self._nulls: Values = (None,) * len(self._columns)
        self._places = {name: place for place, name in enumerate(self._columns)}

    def outcome(self, before: Values | None, writes: Iterable[RowWrite], judged: Judged = Judged.EACH) -> Outcome:
        """Return the row of a key after writes that are applied one after the other.

        Raises
        ------
        InvalidFieldError, UnsupportedOperationError
            If a result does not fit its field, or the merge engine refuses a retract.
        """
        if judged is Judged.FIRST:
            return self._judged_first(before, list(writes))
        row = before
        for write in writes:
            after = self._one(row, write)
            if isinstance(after, Refusal):
                return after
            row = after
        return row

    def holds(self, before: Values | None, write: RowWrite) -> bool:
        """Return whether the condition of a write holds on a row."""
        match write.when:
            case When.ANY:
                return True
            case When.ABSENT:
                return before is None
            case When.PRESENT:
                return before is not None or write.default is not None
        if before is None and write.when is When.EQUAL:
            return False
        row = self._nulls if before is None else before
        return all(same(row[self._places[name]], value) for name, value in write.expected.items())

    def after(self, before: Values | None, write: RowWrite) -> Values | None:
        """Return the row after a write whose condition holds; raises as `outcome` does."""
        match write.effect:
            case Effect.PUT:
                return self._merger.changed(None, write.fields)
            case Effect.CHANGE:
                start = self._merger.changed(None, write.default or _NOTHING) if before is None else before
                return self._merger.changed(start, write.fields)
            case Effect.STEP:
                [(name, amount)] = write.fields.items()
                assert isinstance(amount, int)
                row = self._nulls if before is None else before
                field = self._spec.field(name)
                value = incremented(self._spec.name, field, row[self._places[name]], amount)
                return self._merger.changed(row, {name: value})
            case Effect.REMOVE:
                return None
            case Effect.NONE:
                return before
            case Effect.MERGE:
                if write.operand is not None:
                    return self._merger.absorb(before, write.operand)
                merged = self._merger.apply(before, write.kind, write.fields)
                return before if merged is IGNORED else merged

    def combine(self, first: RowWrite, second: RowWrite) -> RowWrite | None:
        """Return one write with the same outcome as two writes, on every row on which the first does not raise.

        None if there is no such write, or if it would not raise where the second one does. Combined steps must also
        raise where the first one does.
        """
        if first.when is not When.ANY:
            return None
        one, other = self._plain(first), self._plain(second)
        if one.effect in _CERTAIN:
            return self._after_certain(self.after(None, one), other)
        match one.effect, other.effect:
            case Effect.CHANGE, Effect.PUT | Effect.REMOVE if other.when is When.ANY:
                return other
            case Effect.CHANGE, Effect.CHANGE if other.when in (When.ANY, When.PRESENT):
                return RowWrite(Effect.CHANGE, {**one.fields, **other.fields})
            case Effect.STEP, Effect.STEP if other.when is When.ANY:
                return self._added(one, other)
            case Effect.MERGE, Effect.MERGE if other.when is When.ANY and self._merger.blind:
                return self._absorbed(one, other)
        return None

    def _one(self, before: Values | None, write: RowWrite) -> Outcome:
        if self.holds(before, write):
            return self.after(before, write)
        return before if write.otherwise is not Otherwise.REFUSE else _refusal(write)

    def _judged_first(self, before: Values | None, writes: list[RowWrite]) -> Outcome:
        removals = [write for write in writes if write.effect is Effect.REMOVE]
        acting = removals[:1] + [write for write in writes if write.effect not in (Effect.REMOVE, Effect.NONE)]
        inserts = [write for write in acting if write.when is When.ABSENT and write.otherwise is Otherwise.REFUSE]
        match [write.when for write in acting]:
            case [] | [_]:
                pass
            case [When.PRESENT, When.ABSENT] | [When.ABSENT, When.PRESENT] if not inserts:
                # Exactly one of them acts: that the other does not is not an error.
                acting = [write._replace(otherwise=Otherwise.SKIP) for write in acting]
            case [When.ANY, When.ABSENT] if inserts and removals:
                acting = [acting[1]._replace(when=When.ANY)]
            case _:
                return Refusal.EXISTS if inserts else Refusal.MISFIT
        for write in writes:
            if write.effect is Effect.NONE and not self.holds(before, write):
                return _refusal(write)
        row: Outcome = before
        for write in acting:
            after = self._one(before, write)
            if isinstance(after, Refusal):
                return after
            if self.holds(before, write):
                row = after
        return row

    def _plain(self, write: RowWrite) -> RowWrite:
        """Return the effect of a MERGE in a table without a merge engine: a change or a removal."""
        if write.effect is not Effect.MERGE or self._merges:
            return write
        return write._replace(effect=Effect.REMOVE if write.kind.retracts else Effect.CHANGE)

    def _after_certain(self, row: Values | None, second: RowWrite) -> RowWrite | None:
        try:
            after = self._one(row, second)
        except InvalidFieldError:
            return None
        if isinstance(after, Refusal):
            return None
        if after is None:
            return RowWrite(Effect.REMOVE)
        return RowWrite(Effect.PUT, dict(zip(self._columns, after, strict=True)))

    def _added(self, first: RowWrite, second: RowWrite) -> RowWrite | None:
        ((name, amount),), ((other, more),) = first.fields.items(), second.fields.items()
        assert isinstance(amount, int)
        assert isinstance(more, int)
        largest = 1 << (self._spec.field(name).type.integer_bits - 1)
        # Of opposite signs, the first may raise where their sum does not.
        if name != other or (amount < 0) != (more < 0) or not -largest <= amount + more < largest:
            return None
        return RowWrite(Effect.STEP, {name: amount + more})

    def _absorbed(self, first: RowWrite, second: RowWrite) -> RowWrite | None:
        one, other = self._operand(first), self._operand(second)
        if one is None or other is None:
            return None
        try:
            return RowWrite(Effect.MERGE, operand=self._merger.absorb(one, other))
        except InvalidFieldError:
            return None  # they may fit one after the other

    def _operand(self, write: RowWrite) -> Values | None:
        if write.operand is not None:
            return write.operand
        return None if self._merger.drops(write.kind) else self._merger.operand(write.kind, write.fields)


def _refusal(write: RowWrite) -> Refusal:
    match write.when:
        case When.ABSENT:
            return Refusal.EXISTS
        case When.PRESENT:
            return Refusal.MISSING
    return Refusal.CHANGED
