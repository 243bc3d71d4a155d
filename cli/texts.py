"""Text that the command reads: UTF-8, with or without a byte-order mark at its beginning."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE

from .errors import UsageProblem

__all__ = ["decoded", "without_mark"]


def without_mark(name: str, begin: bytes) -> bytes:
    """Return a text's beginning, at least 4 bytes, without its mark; raises `UsageProblem` for UTF-16 and UTF-32."""
    other = ""
    if begin.startswith((BOM_UTF32_LE, BOM_UTF32_BE)) or begin[:2] == b"\0\0" or begin[2:4] == b"\0\0":
        other = "UTF-32"
    elif begin.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" in begin[:2]:
        other = "UTF-16"
    if other:
        raise UsageProblem(f"{name}: the text is {other}, not UTF-8; convert it, as by iconv -f {other} -t UTF-8")
    return begin.removeprefix(BOM_UTF8)


def decoded(name: str, content: bytes) -> str:
    """Return a whole text; raises `UsageProblem` if it is not UTF-8."""
    content = without_mark(name, content)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageProblem(f"{name}, line {line}: the text is not UTF-8") from error
