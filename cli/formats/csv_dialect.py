r"""The dialect of a CSV file: its delimiter, its quote and its escape.

An escape precedes a quote, another escape or a line feed inside quotes, as Spark and MySQL write it; before any other
character it is an ordinary one. In a file without quotes it precedes any character that would end a cell or a line, and
begins the names of others, such as `\t`, as MySQL and PostgreSQL write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO

import numpy as np
from pyarrow import csv as arrow_csv

_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f", b"v": b"\v", b"0": b"\0"}
_NULL = b"\0null"
"""Stands for a null whose text has an escape, which Arrow would remove first; no string has a NUL."""


class CsvDialect:
    """A dialect. Each character is an ASCII character; the quote and the escape may be empty."""

    def __init__(self, delimiter: str = ",", quote: str = '"', escape: str = "") -> None:
        self.delimiter = delimiter
        self.quote = quote
        self.escape = "" if escape == quote else escape
        self._delimiter, self._quote, self._escape = (one.encode() for one in (delimiter, quote, self.escape))
        cell, mark, before = (re.escape(one) for one in (self._delimiter, self._quote, self._escape))
        self._begin, self._end = rb"(?:(?<=[" + cell + rb"\n])|\A)", rb"(?=[" + cell + rb"\r\n]|\Z)"
        self._escaped = re.compile(before + rb"(.)", re.DOTALL)
        self._special = re.compile(before + rb"(.)|\r(?!\n)", re.DOTALL)
        inner = rb"[^%s%s]|%s%s" % (mark, before, mark, mark)
        if self.escape:
            inner += rb"|%s." % before
        self._beside = f"{delimiter}{quote}\r\n".encode()
        """The characters that may be next to a quote."""
        # Not used without a quote.
        self._quoted = re.compile(rb"%s(?:%s)*%s" % (mark, inner, mark) if mark else b"", re.DOTALL)
        self._hidden = re.compile(
            rb"%s(?:%s)*(?:%s|(?:%s)?\Z)" % (mark, inner, mark, before) if mark else b"", re.DOTALL
        )
        self._stray_quote = re.compile(rb"(?<=[^%s\r\n])%s%s|%s%s(?=[^%s\r\n])" % (cell, mark, mark, mark, mark, cell))

    def _skeleton(self, rows: bytes) -> bytes:
        """Return rows without the characters that quotes or escapes hide."""
        if self._quote and self._escape:
            return self._hidden.sub(lambda cell: self._quote * (1 + self._is_closed(cell[0])), rows)
        if self._quote:
            return self._quoted.sub(self._quote * 2, rows)
        return self._escaped.sub(b"xx", rows) if self._escape else rows

    def _masked(self, content: bytes) -> bytes:
        """Return content of the same length in which every line feed that ends no row is masked or inside quotes."""
        if not self._escape or self._escape not in content:
            return content
        if not self._quote:
            return self._escaped.sub(b"xx", content)
        return self._hidden.sub(lambda cell: self._mask(cell[0]), content)

    def _mask(self, cell: bytes) -> bytes:
        closed = self._is_closed(cell)
        return self._quote + b"x" * (len(cell) - 1 - closed) + self._quote * closed

    def _is_closed(self, cell: bytes) -> bool:
        return self._quoted.fullmatch(cell) is not None

    def fault(self, rows: bytes) -> str:
        """Return the fault in the form of rows; empty if there is none."""
        if not self._escape and self._quote and self._is_well_formed(rows):
            return ""
        skeleton = self._skeleton(rows)
        if self._quote:
            if skeleton.count(self._quote) % 2:
                return "a quote is not closed"
            if self._stray_quote.search(skeleton):
                return "a quote stands inside a cell; such a cell is quoted, and the quote doubled"
        if (self._quote or not self._escape) and _STRAY_RETURN.search(skeleton):
            return "a carriage return stands alone; such a cell is quoted, and lines end in a line feed"
        return ""

    def _is_well_formed(self, rows: bytes) -> bool:
        """Return whether the form of rows is right; fast, because nearly all rows are."""
        content = np.frombuffer(rows, np.uint8)
        quotes = np.flatnonzero(content == ord(self.quote))
        if len(quotes) % 2:
            return False
        if b"\r" in rows:
            returns = np.flatnonzero(content[:-1] == ord("\r"))
            outside = returns[np.searchsorted(quotes, returns) % 2 == 0]
            if (content[outside + 1] != ord("\n")).any():
                return False
        # Quotes open and close alternately; a doubled quote closes, and opens again.
        quotes[::2] -= 1
        quotes[1::2] += 1
        # Clipped, the first and the last quote of the rows are their own neighbours.
        return not content.take(quotes, mode="clip").tobytes().translate(None, self._beside)

    def may_be_faulty(self, chunk: bytes) -> bool:
        """Return whether `fault` must check the rows."""
        return (self._quote != b"" and self._quote in chunk) or b"\r" in chunk

    def cells(self, row: bytes) -> int:
        """Return the number of cells of a row."""
        skeleton = self._quoted.sub(b"", row) if self._quote else self._skeleton(row)
        return skeleton.count(self._delimiter) + 1

    def end_of_first_row(self, content: bytes) -> int:
        """Return the end of the first row; 0 if the row does not end yet."""
        content = self._masked(content)
        quotes = start = 0
        while end := content.find(b"\n", start) + 1:
            quotes += self._quotes(content, start, end)
            if quotes % 2 == 0:
                return end
            start = end
        return 0

    def end_of_last_row(self, content: bytes) -> int:
        """Return the end of the last whole row, 0 if there is none."""
        content = self._masked(content)
        quotes = occurrences(self._quote, content) if self._quote else 0
        end = len(content)
        while (start := content.rfind(b"\n", 0, end)) >= 0:
            quotes -= self._quotes(content, start, end)
            if quotes % 2 == 0:
                return start + 1
            end = start
        return 0

    def _quotes(self, content: bytes, start: int, end: int) -> int:
        return content.count(self._quote, start, end) if self._quote else 0

    def rows(self, chunk: bytes, first_line: int) -> Iterator[tuple[int, bytes]]:
        """Yield the rows of a chunk, each with the number of its first line."""
        start, lines, quotes = first_line, list[bytes](), 0
        for number, line in enumerate(BytesIO(chunk), first_line):
            lines.append(line)
            if self._escape:
                masked = self._masked(b"".join(lines))
                ended = self._quotes(masked, 0, len(masked)) % 2 == 0 and masked.endswith(b"\n")
            else:
                quotes += self._quotes(line, 0, len(line))
                ended = quotes % 2 == 0
            if ended:
                yield start, b"".join(lines)
                start, lines = number + 1, []
        if lines:
            yield start, b"".join(lines)

    def prepared(self, chunk: bytes, nulls: Sequence[str]) -> bytes:
        """Return whole rows in the form that Arrow reads with `parse_options`."""
        if not self._escape or (self._escape not in chunk and b"\r" not in chunk):
            return chunk
        if self._quote:
            return self._quoted.sub(lambda cell: self._doubled(cell[0]), chunk)
        for null in nulls:
            if self.escape in null:
                chunk = re.sub(self._begin + re.escape(null.encode()) + self._end, lambda _: _NULL, chunk)
        # Arrow would end a row at a carriage return.
        return self._special.sub(lambda one: self._escape + _NAMED.get(one[1] or b"\r", one[1] or b"\r"), chunk)

    def _doubled(self, cell: bytes) -> bytes:
        if self._escape not in cell:
            return cell
        mark, before = self._quote, self._escape
        plain = self._escaped.sub(
            lambda one: mark * 2 if one[1] == mark else one[1] if one[1] in (before, b"\n") else one[0], cell[1:-1]
        )
        return mark + plain + mark

    def parse_options(self, *, skips_blank: bool) -> arrow_csv.ParseOptions:
        """Return Arrow's options for prepared rows."""
        return arrow_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote or False,
            escape_char=False if self.quote or not self.escape else self.escape,
            newlines_in_values=True,
            ignore_empty_lines=skips_blank,
        )

    def null_values(self, nulls: Sequence[str]) -> list[str]:
        """Return the texts of null for Arrow.

        An empty cell is null, except in a file without quotes whose nulls have a text: there it is the only way to
        write an empty string.
        """
        own = [_NULL.decode() if self.escape and not self.quote and self.escape in one else one for one in nulls]
        return own if own and not self.quote else ["", *own]


def occurrences(mark: bytes, content: bytes) -> int:
    """Return how often a character occurs; four times as fast as `bytes.count` where it is frequent."""
    return int(np.count_nonzero(np.frombuffer(content, np.uint8) == ord(mark)))


_STRAY_RETURN = re.compile(rb"\r(?!\n)")
