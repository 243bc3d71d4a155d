"""Display: the interface of every output format, tables for people, and progress on a terminal."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self, TypeAlias

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from structable.spi import Field, Value
from structable.spi.text import escaped_text, format_value

if TYPE_CHECKING:
    import pyarrow as pa

_CELL_WIDTH = 200
_ROWS = 500
_UNBOUNDED = 100_000  # columns of a line: without a terminal, each row is one line

Advance: TypeAlias = Callable[[float | None, int], None]
"""Takes the fraction done, 0 to 1 or None if unknown, and the number of rows, or of another unit."""


class BatchWriter(ABC):
    """Writes record batches of one schema to a stream; a context manager that finishes the output."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""

    def finish(self) -> None:  # noqa: B027 (most formats need nothing)
        """Write the end of the format. The stream stays open."""

    def abandon(self) -> None:  # noqa: B027 (most formats hold nothing)
        """Release resources after a failure; the output is discarded."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
        except BaseException:
            self.abandon()
            raise
        if error is not None:
            self.abandon()


class TableWriter(BatchWriter):
    """Prints rows as tables of some hundred rows each, so that the layout needs bounded memory.

    On a terminal too narrow for the table each row is shown as a block of lines, one per field.
    """

    def __init__(self, stream: BinaryIO, fields: Sequence[Field]) -> None:
        self._stream = stream
        self._fields = fields
        self._empty = True
        self._shown = 0

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _ROWS):
            self._print([column.to_pylist() for column in batch.slice(start, _ROWS).columns])

    def finish(self) -> None:
        if self._empty:
            self._print([])

    def _print(self, columns: Sequence[Sequence[Value]]) -> None:
        self._empty = False
        table = _table(field.name for field in self._fields)
        rows = [
            [_cell(field, value) for field, value in zip(self._fields, values, strict=True)]
            for values in zip(*columns, strict=True)
        ]
        for cells in rows:
            table.add_row(*cells)
        with _console(self._stream) as console:
            natural = console.measure(table, options=console.options.update(max_width=_UNBOUNDED)).maximum
            if rows and natural > console.width:
                self._print_records(console, rows)
            else:
                _print(console, table)

    def _print_records(self, console: Console, rows: Sequence[Sequence[Text]]) -> None:
        width = max(len(field.name) for field in self._fields)
        for cells in rows:
            self._shown += 1
            console.print(Text(f"row {self._shown:,}", style="bold"))
            record = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
            record.add_column(width=width)
            record.add_column(overflow="fold")
            for field, cell in zip(self._fields, cells, strict=True):
                record.add_row(Text(field.name), cell)
            console.print(record)


def print_table(columns: Sequence[str], lines: Iterable[Sequence[str]], *, title: str | None = None) -> None:
    """Print texts, of any content, as a table on standard output."""
    table = _table(columns)
    if title is not None:
        table.title = Text(title, style="bold")
        table.title_justify = "left"
    for line in lines:
        table.add_row(*(Text(visible(cell)) for cell in line))
    with _console(sys.stdout.buffer) as console:
        _print(console, table)


def _print(console: Console, table: Table) -> None:
    if console.is_terminal:
        console.print(table)
        return
    # The last column is padded with spaces, which only a terminal needs.
    with console.capture() as capture:
        console.print(table)
    console.out("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _table(columns: Iterable[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    return table


def _cell(field: Field, value: Value) -> Text:
    return Text("null", style="dim italic") if value is None else Text(visible(format_value(field, value)))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would end the process; end only the command, as for every other output.
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@contextlib.contextmanager
def _console(stream: BinaryIO) -> Iterator[Console]:
    if stream is sys.stdout.buffer:
        yield _Console(file=sys.stdout, width=None if sys.stdout.isatty() else _UNBOUNDED, highlight=False)
        sys.stdout.flush()
        return
    text = io.TextIOWrapper(stream, "utf-8", write_through=True)
    try:
        yield _Console(file=text, width=_UNBOUNDED, highlight=False)
    finally:
        text.detach()


def visible(text: str) -> str:
    """Return a text fit for a terminal: shortened, on one line, with control characters escaped."""
    return escaped_text(text if len(text) <= _CELL_WIDTH else f"{text[: _CELL_WIDTH - 1]}…")


@contextlib.contextmanager
def progress(description: str, unit: str = "rows") -> Iterator[Advance]:
    """Show a progress bar while the block runs, if standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda fraction, number: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.fields[number]:,}} {unit}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(description, total=None, number=0)

        def advance(fraction: float | None, number: int) -> None:
            if fraction is None:
                bar.update(task, number=number)
            else:
                bar.update(task, total=1.0, completed=fraction, number=number)

        yield advance
