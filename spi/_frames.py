"""`Frames`: a table's rows as Arrow, pandas and Polars, and in notebooks; a part of `StructuredTable`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._filters import Filter
from ._imports import needing
from ._notebooks import html_rows, html_specification
from ._operations import Scan, consumed
from ._ranges import Range
from ._scans import PlannedScan, RowIterator
from ._specification import TableSpecification

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_ALL = Range()
_SHOWN = 10
"""Number of rows of a table that a notebook shows."""


class Frames(ABC):
    """Tables as DataFrames, as Arrow and in notebooks."""

    __slots__ = ()

    @property
    @abstractmethod
    def specification(self) -> TableSpecification:
        """The table's schema."""

    @abstractmethod
    def _scan(self, scan: Scan) -> RowIterator:
        """Return the rows of a scan."""

    def _plan(self, scan: Scan) -> PlannedScan | None:
        """Return a plan of a scan of one range without an order or a limit; None if its rows must be scanned."""
        return None

    def _location(self) -> str:
        """Return the table's name and its location, for people, without asking the store."""
        return f"{self.specification.name} of a transaction"

    def to_arrow(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> pa.Table:
        """Return rows as a pyarrow.Table in the types of `arrow_schema`, selected and ordered as `scan` does.

        Without an order or a limit, the auto-commit view reads them by `plan_scan`: many times faster than by rows.

        Parameters
        ----------
        range, where, order_by, reverse, limit : optional
            As for `scan`.
        columns : iterable of str, optional
            The columns: exactly these, in this order. All in the table's order, if not given.
        """
        with needing("to_arrow needs", "arrow"):
            from ._arrow_tables import collected
        return collected(self, Scan((range,), where, consumed(columns), order_by, reverse, limit))

    def to_pandas(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """Return rows as a pandas.DataFrame without an index; the arguments are the same as for `to_arrow`.

        Integers and booleans with nulls get pandas' nullable types, where floats would lose digits. Decimals and dates
        are Python's objects.
        """
        with needing("to_pandas needs", "pandas"):
            import pandas  # noqa: F401

            from ._arrow_tables import as_pandas
        table = self.to_arrow(range, where=where, columns=columns, order_by=order_by, reverse=reverse, limit=limit)
        return as_pandas(table)

    def to_polars(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> pl.DataFrame:
        """Return rows as a polars.DataFrame; the arguments are the same as for `to_arrow`."""
        with needing("to_polars needs", "polars"):
            import polars
        table = self.to_arrow(range, where=where, columns=columns, order_by=order_by, reverse=reverse, limit=limit)
        return polars.DataFrame(table)

    def __arrow_c_schema__(self) -> object:
        return self._arrow_schema(Scan((_ALL,)))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._arrow_stream(Scan((_ALL,)), None, requested_schema)

    def _arrow_schema(self, scan: Scan) -> object:
        with needing("Arrow's interface needs", "arrow"):
            from ._arrow_tables import schema_of_scan
        return schema_of_scan(self.specification, scan).__arrow_c_schema__()

    def _arrow_stream(self, scan: Scan, rows: RowIterator | None, requested_schema: object) -> object:
        """Export a scan by Arrow's PyCapsule interface; `rows` are its rows if it was begun."""
        with needing("Arrow's interface needs", "arrow"):
            from ._arrow_tables import streamed
        reader: Any = streamed(self, scan, rows)
        return reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<table {self._location()}>"

    def _repr_html_(self) -> str:
        with self._scan(Scan((_ALL,), limit=_SHOWN + 1)) as found:
            rows = list(found)
        spec = self.specification
        shown = html_rows(spec.field_names, rows[:_SHOWN], more=len(rows) > _SHOWN)
        return f"{html_specification(spec, self._location())}{shown}"
