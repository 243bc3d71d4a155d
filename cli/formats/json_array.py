"""The elements of a JSON array, read part by part."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO

_PART = 1024 * 1024
_LARGEST = 64 * 1024 * 1024
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # only the end of an element is found here


class ArrayError(ValueError):
    """The text is not a JSON array; `line` is the line of the fault."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def array_elements(begin: bytes, stream: BinaryIO, lines_before: int) -> Iterator[tuple[int, str]]:
    """Yield the texts of the elements, each with the number of its first line.

    Raises
    ------
    ArrayError
        If an element is not JSON, the array does not end, or something follows it.
    """
    text = _UnreadText(begin, stream, lines_before + 1)
    text.skip("[")
    if text.peek() == "]":
        text.skip("]")
    else:
        while True:
            yield text.line, text.element()
            if text.peek() != ",":
                break
            text.skip(",")
            text.peek()
        if text.peek() != "]":
            raise ArrayError(text.line, "a comma, or the end of the array, is missing after an element")
        text.skip("]")
    if text.peek():
        raise ArrayError(text.line, "more follows the end of the array")


class _UnreadText:
    """The text that was read and not consumed yet."""

    def __init__(self, begin: bytes, stream: BinaryIO, line: int) -> None:
        self._stream = stream
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        self.line = line
        self._take(begin)
        self.peek()

    def _take(self, content: bytes) -> None:
        try:
            more = self._utf8.decode(content, final=self._ended)
        except UnicodeDecodeError as error:
            lines = self._text.count("\n", self._at) + content.count(b"\n", 0, error.start)
            raise ArrayError(self.line + lines, "the text is not UTF-8") from None
        self._text, self._at = self._text[self._at :] + more, 0

    def _read(self) -> bool:
        if self._ended:
            return False
        part = self._stream.read(_PART)
        self._ended = not part
        self._take(part)
        return True

    def peek(self) -> str:
        """Return the next character that is not a space, without consuming it; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self.line += self._text[self._at] == "\n"
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def skip(self, mark: str) -> None:
        """Consume the character that `peek` returned."""
        self._at += len(mark)

    def element(self) -> str:
        """Consume and return the text of the next element."""
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > _LARGEST or not self._read():
                    line = self.line + self._text.count("\n", self._at, error.pos)
                    column = error.pos - self._text.rfind("\n", 0, error.pos)
                    raise ArrayError(line, f"{error.msg} at column {column}") from None
                continue
            except RecursionError:
                raise ArrayError(self.line, "the object is nested too deeply") from None
            if end == len(self._text) and self._read():
                continue  # a number may continue
            text = self._text[self._at : end]
            self._at = end
            self.line += text.count("\n")
            return text
