"""Data of any columns as batches of a table: matched by name, cast if no value changes. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ._arrow_columns import CastError, cast_column
from ._arrow_fields import renamed
from ._bulk import PATCH_COLUMNS, WriteMode
from ._changes import FEED_COLUMNS
from ._error_texts import not_a_field
from ._errors import FieldSizeLimitError, InvalidFieldError
from ._rules.rows import check_row
from ._specification import TableSpecification

_ROWS = 64 * 1024
_MARKS: dict[WriteMode, Collection[str]] = {WriteMode.CHANGES: FEED_COLUMNS, WriteMode.PATCH: PATCH_COLUMNS}


def matched_fields(
    columns: Sequence[str], known: Collection[str], rename: Mapping[str, str] | None = None
) -> list[str | None]:
    """Return the field of each column of a file or a frame; None where there is none.

    Its name is the one in `rename`, else the column's own, else the one that `field_names` makes from it.

    Raises
    ------
    ValueError
        If `rename` names a column that is not there.
    """
    names = renamed(columns, rename)
    own = [(rename or {}).get(column, column) for column in columns]
    found: list[str | None] = []
    for column, name in zip(own, names, strict=True):
        # Of two columns of one name, the second has the field that was made for it.
        is_own = column in known and (column not in found or name not in known)
        found.append(column if is_own else name if name in known else None)
    return found


class LoadedBatches:
    """The batches of a reader in the types of a table's fields; iterate it once.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    mode : WriteMode
        The job's mode; the further columns that it takes are passed on.
    reader : pyarrow.RecordBatchReader
        The data.
    """

    def __init__(self, spec: TableSpecification, mode: WriteMode, reader: pa.RecordBatchReader) -> None:
        self._spec = spec
        self._reader = reader
        self._marks = _MARKS.get(mode, ())
        columns = reader.schema.names
        found = matched_fields(columns, (*spec.field_names, *self._marks))
        names: list[str] = []
        for column, name in zip(columns, found, strict=True):
            if name is None:
                raise InvalidFieldError(spec.name, column, not_a_field(spec.field_names))
            if name in names:
                raise InvalidFieldError(spec.name, name, "appears twice in the data; name each column once")
            names.append(name)
        self._names = names
        self._rows = 0
        self._last: pa.RecordBatch | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for whole in self._reader:
            for start in range(0, whole.num_rows, _ROWS):
                batch = whole.slice(start, _ROWS)
                self._last = self._cast(batch.columns)
                yield self._last
                self._rows += batch.num_rows

    def _cast(self, columns: Iterable[pa.Array[Any]]) -> pa.RecordBatch:
        cast: list[pa.Array[Any]] = []
        for name, column in zip(self._names, columns, strict=True):
            try:
                cast.append(column if name in self._marks else cast_column(self._spec.field(name), column))
            except CastError as error:
                row = "" if error.position is None else f"row {self._rows + error.position + 1} of the data: "
                raise InvalidFieldError(self._spec.name, name, f"{row}{error}") from error
        return pa.RecordBatch.from_arrays(cast, self._names)

    def located(self, error: InvalidFieldError) -> InvalidFieldError:
        """Return the store's error with the number of its row in the last batch; unchanged if no row has it."""
        batch = self._last
        if batch is None or "of the data" in error.reason:
            return error
        fields = [name for name in self._names if name not in self._marks]
        for position, row in enumerate(batch.select(fields).to_pylist()):
            try:
                check_row(self._spec, row)
            except FieldSizeLimitError as found:
                found.add_note(f"in row {self._rows + position + 1} of the data")
                return found
            except InvalidFieldError as found:
                reason = f"row {self._rows + position + 1} of the data: {found.reason}"
                return InvalidFieldError(found.table, found.field, reason)
        return error
