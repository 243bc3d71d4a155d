"""`TableOptions`: the meaning of the options of a table specification."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ._fields import Field, FieldType

FEED_OPTIONS = ("changelog-producer.compaction-interval", "changelog.time-retained")
"""The options that a table has only while it has a change feed."""


class WriteBehaviour(enum.StrEnum):
    """The option `write-mode`: whether rows can be taken away again, or are kept at all."""

    CHANGE_LOG = "change-log"
    APPEND_ONLY = "append-only"
    LOG = "log"


class MergeEngine(enum.StrEnum):
    """The option `merge-engine`: the effect of a merge verb on the row of its key."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class ChangelogProducer(enum.StrEnum):
    """The option `changelog-producer`: the content of a change feed."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"


class AggregateFunction(enum.StrEnum):
    """The functions of `fields.F.aggregate-function`."""

    SUM = "sum"
    PRODUCT = "product"
    COUNT = "count"
    MIN = "min"
    MAX = "max"
    LAST_VALUE = "last_value"
    LAST_NON_NULL_VALUE = "last_non_null_value"
    FIRST_VALUE = "first_value"
    FIRST_NON_NULL_VALUE = "first_non_null_value"
    LISTAGG = "listagg"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"

    def fits(self, kind: FieldType) -> bool:
        """Return whether the function can aggregate fields of this type."""
        return kind in _FITTING.get(self, frozenset(FieldType))

    @property
    def in_groups(self) -> bool:
        """Whether the function can aggregate members of sequence groups, which also count rows that come late."""
        return self in _IN_GROUPS


_INTEGERS = frozenset(kind for kind in FieldType if kind.integer_bits)
_NUMBERS = _INTEGERS | {FieldType.FLOAT, FieldType.DOUBLE, FieldType.DECIMAL}
_FITTING = {
    AggregateFunction.SUM: _NUMBERS,
    AggregateFunction.PRODUCT: _NUMBERS - {FieldType.DECIMAL},
    AggregateFunction.COUNT: frozenset({FieldType.INT, FieldType.LONG}),
    AggregateFunction.LISTAGG: frozenset({FieldType.STRING}),
    AggregateFunction.BOOL_AND: frozenset({FieldType.BOOLEAN}),
    AggregateFunction.BOOL_OR: frozenset({FieldType.BOOLEAN}),
}
_IN_GROUPS = (
    AggregateFunction.SUM,
    AggregateFunction.COUNT,
    AggregateFunction.PRODUCT,
    AggregateFunction.MIN,
    AggregateFunction.MAX,
    AggregateFunction.BOOL_AND,
    AggregateFunction.BOOL_OR,
)
_BLIND = frozenset(_IN_GROUPS) - {AggregateFunction.PRODUCT}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The aggregation of one field."""

    function: AggregateFunction
    delimiter: str = ","
    distinct: bool = False
    ignore_retract: bool = False


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """A sequence group: `members`, sorted, change where the values of `fields` are not lower than the stored ones."""

    fields: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The meaning of a table's options; two tables whose options mean the same are equal in it.

    Attributes
    ----------
    functions : mapping of str to Aggregate
        Under aggregation, the function of every field outside the key; under partial-update, the function of each
        aggregated member of a group.
    default_function : AggregateFunction, optional
        Under aggregation, the function of fields without one of their own, including fields that are added later.
    sequence : tuple of str
        The fields of `sequence.field`.
    compaction_interval, time_retained : float
        Seconds.
    """

    write_mode: WriteBehaviour = WriteBehaviour.CHANGE_LOG
    merge_engine: MergeEngine = MergeEngine.DEDUPLICATE
    sequence: tuple[str, ...] = ()
    soft_delete: str | None = None
    functions: Mapping[str, Aggregate] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    default_function: AggregateFunction | None = None
    groups: tuple[SequenceGroup, ...] = ()
    ignore_delete: bool = False
    remove_on_delete: bool = False
    changelog_producer: ChangelogProducer = ChangelogProducer.NONE
    compaction_interval: float = 1_800.0
    time_retained: float = 604_800.0

    @property
    def append_only(self) -> bool:
        """Whether rows can only be added."""
        return self.write_mode is not WriteBehaviour.CHANGE_LOG

    @property
    def log(self) -> bool:
        """Whether rows are in the change feed alone."""
        return self.write_mode is WriteBehaviour.LOG

    @property
    def merges(self) -> bool:
        """Whether an upsert does anything else than to insert the row or to change the fields that it names."""
        return self.merge_engine is not MergeEngine.DEDUPLICATE or bool(self.sequence or self.soft_delete)

    def blind(self, value_fields: Sequence[Field]) -> bool:
        """Return whether merges of one row can be applied in any order, without an index: these need not conflict."""
        return self.merge_engine is MergeEngine.AGGREGATION and all(
            one.type.width and self.functions[one.name].function in _BLIND for one in value_fields
        )
