"""The code blocks of the documentation's pages, and what they print."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from structable.spi import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent

_BLOCK = re.compile(
    r"^(?:<!-- (?P<how>not executed|executed [^\n]*) -->\n+)?"
    r"```(?P<language>python|sql)\n(?P<code>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of Python or SQL."""

    how: str  # the comment above it, "" if there is none
    language: str
    code: str
    output: str | None  # the text block below it
    line: int  # of the page, the code's first


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a page, in its order."""
    return [
        Block(
            found["how"] or "",
            found["language"],
            found["code"],
            found["output"],
            text.count("\n", 0, found.start("code")) + 1,
        )
        for found in _BLOCK.finditer(text)
    ]


def run_blocks(page: Path, blocks: Iterable[Block]) -> None:
    """Run blocks of a page as one program, and compare what each prints with the text below it, if there is one.

    SQL runs in the session that the program names `spark`: statements end with a semicolon, and those that return rows
    print them. `...` in the text stands for anything.
    """
    namespace: dict[str, object] = {"__name__": page.stem}
    try:
        for block in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                _run(page, block, namespace)
            if block.output is not None:
                _compare(page, block, printed.getvalue())
    finally:
        # Pages leave their stores open. The collector may meet a driver's connection before the storage that closes it.
        for left in namespace.values():
            if isinstance(left, Storage):
                left.close()


def _run(page: Path, block: Block, namespace: dict[str, object]) -> None:
    if block.language == "python":
        code = compile("\n" * (block.line - 1) + block.code, page_name(page), "exec", dont_inherit=True)
        exec(code, namespace)  # noqa: S102
        return
    spark = cast("SparkSession", namespace["spark"])
    for statement in filter(str.strip, block.code.split(";\n")):
        rows = spark.sql(statement)
        if rows.columns:
            rows.show()


def _compare(page: Path, block: Block, printed: str) -> None:
    """Compare what a block printed with the page, but for blank lines and spaces at the ends of lines."""
    got, wanted = (
        "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())
        for text in (printed, block.output or "")
    )
    if not doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS):
        raise AssertionError(f"{page_name(page)}, line {block.line}: the block prints\n{got}\ninstead of\n{wanted}")
