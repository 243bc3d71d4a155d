"""Rows and keys of a table as JSON and as paths, in the forms of the `structable` command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from aiohttp import web

from structable.cli.formats.json_rows import row_from_json, row_to_json
from structable.spi import Key, TableSpecification, Value
from structable.spi.authors import check_key
from structable.spi.text import LiteralError, parse_value


class RequestError(ValueError):
    """A request that cannot be understood; the message says why."""


class Documents:
    """The JSON documents of one table's rows.

    Parameters
    ----------
    spec : TableSpecification
        The table, with a primary key.
    """

    def __init__(self, spec: TableSpecification) -> None:
        self.spec = spec

    def key_of_path(self, request: web.Request, prefix: str) -> tuple[Value, ...]:
        """Return the key whose fields are the parts of the path after `prefix`, each percent-encoded.

        Raises
        ------
        RequestError
            If there are more or fewer parts than key fields, or one is not a value of its field.
        """
        parts = request.rel_url.raw_path.removeprefix(prefix).split("/")
        fields = self.spec.key_fields
        if len(parts) != len(fields):
            raise RequestError(f"the path has {len(parts)} parts; the key is ({', '.join(self.spec.primary_key)})")
        values = []
        for field, part in zip(fields, parts, strict=True):
            try:
                values.append(parse_value(field, unquote(part, errors="strict")))
            except (LiteralError, UnicodeDecodeError) as error:
                raise RequestError(f"key field {field.name!r}: {error}") from None
        return tuple(values)

    def lines(self, text: str) -> list[dict[str, Value]]:
        """Return the rows of a text with one JSON object a line.

        Raises
        ------
        RequestError
            If a line is not such an object; the message has its number.
        """
        rows = []
        # Not splitlines(), which also divides at characters that JSON strings may hold.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    rows.append(self.row(line))
                except RequestError as error:
                    raise RequestError(f"line {number}: {error}") from None
        return rows

    def row(self, text: str) -> dict[str, Value]:
        """Return the fields that a JSON object names.

        Raises
        ------
        RequestError
            If the text is not such an object.
        """
        try:
            return row_from_json(self.spec, text)
        except ValueError as error:  # LiteralError, json.JSONDecodeError, and Python's limit of digits
            raise RequestError(f"not a row: {error}") from None

    def key(self, row: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return the key that a row names.

        Raises
        ------
        RequestError
            If it lacks a key field.
        """
        missing = [name for name in self.spec.primary_key if name not in row]
        if missing:
            raise RequestError(f"a row lacks the key field {', '.join(missing)}")
        return tuple(row[name] for name in self.spec.primary_key)

    def json(self, row: Mapping[str, Value]) -> str:
        """Return a row as a JSON object."""
        return row_to_json(self.spec, row, self.spec.field_names)

    def json_keys(self, keys: Iterable[Key]) -> str:
        """Return keys as a JSON list of objects."""
        names = self.spec.primary_key
        rows = (dict(zip(names, check_key(self.spec, key), strict=True)) for key in keys)
        return f"[{', '.join(row_to_json(self.spec, row, names) for row in rows)}]"


def text_of(body: bytes) -> str:
    """Return the text of a request's body.

    Raises
    ------
    RequestError
        If it is not UTF-8.
    """
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: {error}") from None
