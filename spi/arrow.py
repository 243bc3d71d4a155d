"""Arrow batches of tables: their schemas, rows as batches, checks and casts of columns. Importing it imports pyarrow.

`arrow_schema`, `arrow_type` and `rows_to_batches` make what plans, splits and write jobs exchange. The rest is for
authors of backends, and of tools that read files.
"""

from __future__ import annotations

from ._imports import needing

with needing("Arrow batches need", "arrow"):
    from ._arrow import arrow_schema, conform_batch, conform_column, feed_schema, rows_to_batches
    from ._arrow_aggregates import aggregate_schema, fitting_batches, partial_aggregates
    from ._arrow_columns import cast_column
    from ._arrow_data import record_batches
    from ._arrow_fields import field_names, field_of, new_names
    from ._arrow_types import CastError, arrow_type
    from ._loading import matched_fields

__all__ = [
    "CastError",
    "aggregate_schema",
    "arrow_schema",
    "arrow_type",
    "cast_column",
    "conform_batch",
    "conform_column",
    "feed_schema",
    "field_names",
    "field_of",
    "fitting_batches",
    "matched_fields",
    "new_names",
    "partial_aggregates",
    "record_batches",
    "rows_to_batches",
]
