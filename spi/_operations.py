"""The operations of tables and storages, as values: writes of rows and of a range, look-ups, scans, plans and jobs.

A verb of `StructuredTable` makes an operation from its arguments as they were given; the table that runs the operation
checks them against its schema. So an operation is always checked against the schema against which it runs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from ._aggregates import Aggregation
from ._bulk import WriteMode
from ._errors import StructableError
from ._field_rules import Derived, Renamed
from ._filters import Filter
from ._ranges import Range
from ._rows import Row
from ._specification import TableSpecification
from ._values import Key, Value

Given = TypeVar("Given")
Answer: TypeAlias = list[tuple[Value, ...]]
"""The keys of writes left out because their condition did not hold, each once, in the order of its first such write."""


class Effect(enum.Enum):
    """The effect of a write on its row."""

    PUT = "put"
    """The row becomes exactly this."""
    CHANGE = "change"
    """The named fields change."""
    MERGE = "merge"
    """A change of a kind, as the table's merge engine says; without one, an add is a CHANGE and a retract a REMOVE."""
    STEP = "step"
    """An amount is added to an integer field; an absent row and a null count as 0."""
    REMOVE = "remove"
    NONE = "none"
    """Nothing: the condition alone."""


class When(enum.Enum):
    """The condition of a write, on the row before it."""

    ANY = "any"
    ABSENT = "absent"
    PRESENT = "present"
    EQUAL = "equal"
    """There is a row that has the expected values; null equals null, and NaN equals NaN."""
    EQUAL_OR_ABSENT = "equal or absent"
    """The row has these values; an absent row counts as a row of nulls."""


class Otherwise(enum.Enum):
    """The treatment of a write whose condition does not hold."""

    REFUSE = "refuse"
    """The call raises, and none of its writes is done."""
    SKIP = "skip"
    """The write is left out, and its key is in the answer."""
    REPORT = "report"
    """The write is left out, and the answer reports that: for calls of one write."""


class Judged(enum.Enum):
    """The row on which conditions are judged if a key has several writes."""

    EACH = "each"
    """The row as the previous write left it."""
    FIRST = "first"
    """The row before all writes, as for the arms of patch jobs; not all writes can be combined."""


class FeedRecords(enum.Enum):
    """The records that a feed with the producer `input` keeps."""

    GIVEN = "given"
    """The rows that the writes were given, whatever their effect."""
    DONE = "done"
    """The rows that were written, as they are afterwards."""


class Verb(NamedTuple):
    """The properties that all writes of a call share."""

    name: str
    """The name of the method."""
    effect: Effect
    when: When = When.ANY
    otherwise: Otherwise = Otherwise.REFUSE
    records: FeedRecords = FeedRecords.GIVEN


UPSERT, UPSERT_MANY = Verb("upsert", Effect.MERGE), Verb("upsert_many", Effect.MERGE)
REPLACE, REPLACE_MANY = Verb("replace", Effect.PUT), Verb("replace_many", Effect.PUT)
INSERT, INSERT_MANY = (Verb(name, Effect.PUT, When.ABSENT) for name in ("insert", "insert_many"))
APPLY_CHANGES = Verb("apply_changes", Effect.MERGE)
UPDATE = Verb("update", Effect.CHANGE, When.PRESENT, records=FeedRecords.DONE)
UPDATE_MANY = Verb("update_many", Effect.CHANGE, When.PRESENT, Otherwise.SKIP, FeedRecords.DONE)
COMPARE_AND_SWAP = Verb("compare_and_swap", Effect.CHANGE, When.EQUAL, Otherwise.REPORT, FeedRecords.DONE)
COMPARE_AND_SWAP_ABSENT = COMPARE_AND_SWAP._replace(when=When.EQUAL_OR_ABSENT)
INCREMENT, INCREMENT_MANY = (
    Verb(name, Effect.STEP, records=FeedRecords.DONE) for name in ("increment", "increment_many")
)
DELETE, DELETE_MANY = Verb("delete", Effect.REMOVE), Verb("delete_many", Effect.REMOVE, records=FeedRecords.DONE)


class RowWrites(NamedTuple):
    """The writes of a call, in its order.

    Parameters
    ----------
    verb : Verb
        The properties that the writes share.
    rows : sequence
        As they were given: rows; for APPLY_CHANGES changes or pairs of kind and row; for UPDATE_MANY rows or messages;
        for REMOVE keys; for STEP triples of key, field and amount; for a swap key, field, expected and new value. A
        tuple of one, of a verb of one row. An argument that is not iterable is kept: the table raises the error.
    default : mapping, optional
        The row to start from where there is none but one is needed; without it the write is refused or skipped.
    """

    verb: Verb
    rows: Sequence[Any]
    default: Mapping[str, Value] | None = None


class RangeWrite(NamedTuple):
    """A write of the rows of a range for which `where` is true: of some fields, or without `changes` a removal."""

    name: str
    range: Range
    changes: Mapping[str, Value] | None
    where: Filter | None


class RowMove(NamedTuple):
    """The replacement of rows by rows of other keys.

    Parameters
    ----------
    keys : sequence
        The keys of the rows to replace, each once. The transaction has read these rows, or `expected` checks one.
    rows : sequence of mapping
        For each key the new row, of all fields that the caller knows; no row has its key.
    changed : tuple of str
        The fields besides those of the key in which the new rows may differ.
    expected : tuple, optional
        For a single row: a field, its value, which is not None, and the error if the row to replace has another value.
    """

    keys: Sequence[Key]
    rows: Sequence[Mapping[str, Value]]
    changed: tuple[str, ...]
    expected: tuple[str, Value, StructableError] | None = None

    def check(self, look_up: Callable[[Lookup], Iterable[Row]]) -> None:
        """Raise the error unless the row to replace has the expected value."""
        if self.expected is not None:
            field, value, error = self.expected
            if not any(row[field] == value for row in look_up(Lookup("read", tuple(self.keys), (field,)))):
                raise error

    def whole(
        self, spec: TableSpecification, look_up: Callable[[Lookup], Iterable[Row]]
    ) -> Sequence[Mapping[str, Value]]:
        """Return the new rows, with the former values of fields that they lack: those that the caller does not know."""
        lacking = set(spec.field_names).difference(*self.rows)
        for rule in spec.rules:  # fields of rules are computed from others
            if isinstance(rule, Derived):
                lacking.discard(rule.field)
            elif isinstance(rule, Renamed):
                if rule.new not in lacking:
                    lacking.discard(rule.old)
                lacking.discard(rule.new)
        if not lacking or not self.rows:
            return self.rows
        names = [name for name in spec.field_names if name in lacking]
        former = {row.key: row for row in look_up(Lookup("multi_read", self.keys, names))}
        return [
            {**{name: former[tuple(key)][name] for name in names}, **row}
            for key, row in zip(self.keys, self.rows, strict=True)
        ]


class Lookup(NamedTuple):
    """A read of the rows of keys; a verb of one row has a tuple of one key."""

    name: str
    keys: Iterable[Any]
    columns: Iterable[str] | None


class Scan(NamedTuple):
    """A read of the rows of ranges; `indexed` is an indexed field and its value."""

    ranges: Iterable[Range]
    where: Filter | None = None
    columns: Iterable[str] | None = None
    order_by: str | None = None
    reverse: bool = False
    limit: int | None = None
    limit_per_range: int | None = None
    indexed: tuple[str, Value] | None = None


class PlanScan(NamedTuple):
    """A plan of a scan by several processes: the arguments of `Storage.plan_scan`."""

    table: str
    range: Range
    where: Filter | None
    columns: Iterable[str] | None
    splits: int
    aggregate: Aggregation | None


class BeginWrite(NamedTuple):
    """The beginning of a write job: the arguments of `Storage.begin_write`."""

    table: str
    mode: WriteMode | str
    job_id: str | None
    stream: str | None
    batch: int | None
    on_missing: Literal["fail", "skip"]


def consumed(given: Given) -> Given:
    """Return an iterable as a list, to be read more than once; any other argument is left for the table to reject."""
    # The list of a string would hold its characters.
    if given is not None and isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return list(given)  # type: ignore[return-value]  # a list of the same elements
    return given
