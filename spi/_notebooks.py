"""Tables, rows and plans as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from ._specification import TableSpecification
from ._values import Value

_LONGEST = 80


def html_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Value]], *, more: bool = False) -> str:
    """Return rows as a table; `more` means that there are others."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = [f"<tr>{''.join(f'<td>{_cell(row[name])}</td>' for name in columns)}</tr>" for row in rows]
    if more:
        lines.append(f'<tr><td colspan="{len(columns)}">&hellip;</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _cell(value: Value) -> str:
    text = "null" if value is None else str(value)
    shown = escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}")
    return f"<i>{shown}</i>" if value is None else shown


def html_specification(spec: TableSpecification, title: str) -> str:
    """Return a table's schema under a title."""
    lines = []
    for field in spec.fields:
        key = f"{spec.primary_key.index(field.name) + 1}" if field.name in spec.primary_key else ""
        index = "yes" if field.name in spec.indexes else ""
        cells = (field.name, field.type_text, key, index)
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("field", "type", "key", "index"))
    caption = f"<caption>table {escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def html_text(text: str) -> str:
    """Return lines of text as they are."""
    return f"<pre>{escape(text)}</pre>"
