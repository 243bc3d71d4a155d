"""Values, filters and schemas as text and JSON, as the command line and files have them.

- A value: `parse_value` and `format_value` for text, `value_from_json` and `value_to_json` for JSON; `escaped_text` for
  a terminal.
- A filter: `parse_where` reads "status == 'RUNNING' and attempt < 3".
- Parts of a specification as JSON, beside `specification_to_document` of `structable.spi`: `field_to_document`,
  `function_to_document`, `rule_to_document`.
"""

from __future__ import annotations

from ._documents import field_from_document, field_to_document, specification_from_catalog
from ._field_functions import function_from_document, function_to_document
from ._field_rules import rule_to_document
from ._literals import (
    LiteralError,
    checked_value,
    day_of,
    escaped_text,
    format_value,
    parse_time,
    parse_value,
    shown_text,
    value_from_json,
    value_to_json,
)
from ._where import WhereError, parse_where

__all__ = [
    "LiteralError",
    "WhereError",
    "checked_value",
    "day_of",
    "escaped_text",
    "field_from_document",
    "field_to_document",
    "format_value",
    "function_from_document",
    "function_to_document",
    "parse_time",
    "parse_value",
    "parse_where",
    "rule_to_document",
    "shown_text",
    "specification_from_catalog",
    "value_from_json",
    "value_to_json",
]
