"""The names that authors of backends, and of layers over the contract, need besides those of `structable.spi`.

A backend implements `Backend`, `Storage`, `Transaction`, `TableAdmin` and `StructuredTable`, and finds here:

- operations, which the verbs of a table make: `RowWrites`, `Lookup`, `Scan`, `RangeWrite`, `PlanScan`, `BeginWrite`;
- their meaning, in one definition against which a store is tested: `Outcomes`, and `Merger` for merge engines;
- the rules that all stores share, each with the contract's own error: `check_key`, `check_row`, `bind_filter`,
  `ScanRequest`, `requested_job`, `plan_schema_change`, and others;
- parts to use whole: `AutoCommitTable`, `DelegatingStorage`, `LocalSignals`, `RuledTable`, `RowShape`, `retry`;
- the nodes of filters and expressions, for stores that translate them: `Comparison`, `And`, `Arithmetic`, and others;
- what messages, imports, metrics and values have in common: `shown`, `needing`, `recording_meter`, `plain_value`.

docs/spi.md has every name by subject, under "For authors of backends". Nothing here needs pyarrow: Arrow batches are
the subject of `structable.spi.arrow`.
"""

from __future__ import annotations

from ._autocommit import AutoCommitTable
from ._backend import may_create, parse_options
from ._bulk import PATCH_COLUMNS, StagedData
from ._computed_rows import ListedRows
from ._delegation import DelegatingStorage
from ._error_texts import not_a_field, shown
from ._evaluation import Predicate, compile_filter, equal, same
from ._expressions import Arithmetic, Constant, FieldValue
from ._field_rules import named_fields, retired_since, rules_digest
from ._fields import widens
from ._filters import (
    And,
    Comparison,
    FieldComparison,
    IsIn,
    IsNull,
    Not,
    Operator,
    Or,
    StartsWith,
    UnboundFilterError,
    conjunction,
)
from ._imports import named_module, needing, remedy
from ._merging import IGNORED, IgnoredType, Merger, Values
from ._metering import duration_histogram, recording_meter, records
from ._operations import (
    APPLY_CHANGES,
    DELETE,
    DELETE_MANY,
    INSERT,
    UPDATE,
    UPDATE_MANY,
    UPSERT,
    Answer,
    BeginWrite,
    Effect,
    FeedRecords,
    Judged,
    Lookup,
    Otherwise,
    PlanScan,
    RangeWrite,
    RowMove,
    RowWrites,
    Scan,
    Verb,
    When,
    consumed,
)
from ._outcome import Outcome, Outcomes, Refusal, RowWrite
from ._plain_values import is_aware, named_class, own_class, plain_datetime, plain_value
from ._ranges import Bound
from ._row_rules import RowRules
from ._rows import RowShape, shared_shape
from ._ruled_table import RuledTable
from ._rules.aggregates import MOST_DIGITS, check_aggregation, digits_of, result_fields
from ._rules.arguments import check_columns, check_flag, check_many
from ._rules.changes import (
    check_changes,
    check_default,
    check_increment,
    check_increments,
    check_row_changes,
    check_row_kinds,
    check_swap,
    incremented,
    update_with_default,
)
from ._rules.feeds import check_after, check_moment, check_rows, require_net
from ._rules.filters import bind_filter
from ._rules.jobs import JOB_RETENTION_SECONDS, check_staged_columns, last_attempts, requested_job, table_dropped
from ._rules.keyless import (
    DIGEST_BYTES,
    check_kind,
    check_mode,
    check_verb,
    keyless_refusal,
    new_id,
    new_ids,
    row_digest,
)
from ._rules.ranges import check_range
from ._rules.rows import check_index_sizes, check_key, check_row, check_row_size
from ._rules.scans import ScanRequest, check_limit, check_splits, row_columns
from ._rules.schema_changes import (
    NOTHING_TAKEN,
    TAKEN_TABLE,
    SchemaChange,
    holds_values_of,
    plan_schema_change,
    taken_field,
    taken_index,
    with_rules,
    without_field,
)
from ._rules.signals import check_channel, check_channels, check_timeout, feed_channel, feeds_of
from ._rules.transaction_size import check_transaction_size, lowered_limit, may_be_too_large
from ._runner import retry
from ._signals import LocalListener, LocalSignals, wait_for_any
from ._specification import MAX_KEY_FIELDS
from ._store_reports import COUNTED_ROWS
from ._urls import is_secret, without_secrets
from ._value_checks import check_value
from ._values import (
    EXACT,
    MAX_KEY_AND_INDEX_SIZE,
    MAX_KEY_SIZE,
    MAX_ROW_SIZE,
    exact_context,
    in_exact_context,
    is_nan,
    value_size,
)

__all__ = [
    "APPLY_CHANGES",
    "COUNTED_ROWS",
    "DELETE",
    "DELETE_MANY",
    "DIGEST_BYTES",
    "EXACT",
    "IGNORED",
    "INSERT",
    "JOB_RETENTION_SECONDS",
    "MAX_KEY_AND_INDEX_SIZE",
    "MAX_KEY_FIELDS",
    "MAX_KEY_SIZE",
    "MAX_ROW_SIZE",
    "MOST_DIGITS",
    "NOTHING_TAKEN",
    "PATCH_COLUMNS",
    "TAKEN_TABLE",
    "UPDATE",
    "UPDATE_MANY",
    "UPSERT",
    "And",
    "Answer",
    "Arithmetic",
    "AutoCommitTable",
    "BeginWrite",
    "Bound",
    "Comparison",
    "Constant",
    "DelegatingStorage",
    "Effect",
    "FeedRecords",
    "FieldComparison",
    "FieldValue",
    "IgnoredType",
    "IsIn",
    "IsNull",
    "Judged",
    "ListedRows",
    "LocalListener",
    "LocalSignals",
    "Lookup",
    "Merger",
    "Not",
    "Operator",
    "Or",
    "Otherwise",
    "Outcome",
    "Outcomes",
    "PlanScan",
    "Predicate",
    "RangeWrite",
    "Refusal",
    "RowMove",
    "RowRules",
    "RowShape",
    "RowWrite",
    "RowWrites",
    "RuledTable",
    "Scan",
    "ScanRequest",
    "SchemaChange",
    "StagedData",
    "StartsWith",
    "UnboundFilterError",
    "Values",
    "Verb",
    "When",
    "bind_filter",
    "check_after",
    "check_aggregation",
    "check_changes",
    "check_channel",
    "check_channels",
    "check_columns",
    "check_default",
    "check_flag",
    "check_increment",
    "check_increments",
    "check_index_sizes",
    "check_key",
    "check_kind",
    "check_limit",
    "check_many",
    "check_mode",
    "check_moment",
    "check_range",
    "check_row",
    "check_row_changes",
    "check_row_kinds",
    "check_row_size",
    "check_rows",
    "check_splits",
    "check_staged_columns",
    "check_swap",
    "check_timeout",
    "check_transaction_size",
    "check_value",
    "check_verb",
    "compile_filter",
    "conjunction",
    "consumed",
    "digits_of",
    "duration_histogram",
    "equal",
    "exact_context",
    "feed_channel",
    "feeds_of",
    "holds_values_of",
    "in_exact_context",
    "incremented",
    "is_aware",
    "is_nan",
    "is_secret",
    "keyless_refusal",
    "last_attempts",
    "lowered_limit",
    "may_be_too_large",
    "may_create",
    "named_class",
    "named_fields",
    "named_module",
    "needing",
    "new_id",
    "new_ids",
    "not_a_field",
    "own_class",
    "parse_options",
    "plain_datetime",
    "plain_value",
    "plan_schema_change",
    "recording_meter",
    "records",
    "remedy",
    "requested_job",
    "require_net",
    "result_fields",
    "retired_since",
    "retry",
    "row_columns",
    "row_digest",
    "rules_digest",
    "same",
    "shared_shape",
    "shown",
    "table_dropped",
    "taken_field",
    "taken_index",
    "update_with_default",
    "value_size",
    "wait_for_any",
    "widens",
    "with_rules",
    "without_field",
    "without_secrets",
]
