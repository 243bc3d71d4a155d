"""Inference of a table's specification from a file: column types come from all rows, or from the file's own schema."""

from __future__ import annotations

import decimal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from structable.cli.language.errors import UsageProblem
from structable.spi import Field, FieldType, TableSpecification, Value
from structable.spi.arrow import CastError, field_names, field_of, new_names

from .arrow_sources import TypedSource
from .csv_source import CsvSource
from .file_columns import ColumnChoice
from .file_options import FileForm
from .json_source import JsonSource
from .source import BATCH_ROWS, FileSource
from .text_form import TextForm
from .text_guess import DATES, TextGuess


class Inferred:
    """A specification, and the source of its types."""

    def __init__(self, spec: TableSpecification, note: str) -> None:
        self.spec = spec
        self.note = note


def table_name(location: str) -> str:
    """Return a name for the table of a file: the file's name without the extension, made a valid field name."""
    return field_names([Path(location).name.partition(".")[0]])[0]


def inferred(
    location: str, name: str, format_: str | None, form: FileForm, table: str, primary_key: Sequence[str]
) -> Inferred:
    """Return the specification of a table for a file; `name` is its name in messages.

    Raises
    ------
    UsageProblem
        If the file cannot be read, or has a column that no field takes.
    InvalidSpecificationError
        If the key is not one of the fields, or has a type that no key has.
    """
    with form.open(_AnyColumns(form.columns, primary_key), location, format_) as source:
        source.name = name
        skips = form.columns.skips_unknown
        if isinstance(source, TypedSource):
            fields, note = _of_schema(source, primary_key, skips=skips), f"the schema of {source.name}"
        elif isinstance(source, CsvSource):
            fields, note = _of_texts(source, form.text)
        else:
            assert isinstance(source, JsonSource)
            fields, note = _of_objects(source, form.text, skips=skips)
    options = {} if primary_key else {"write-mode": "append-only"}
    return Inferred(TableSpecification(table, fields, primary_key, options=options), note)


_NOT_FINITE = "a string for no finite number"
_NOT_FINITE_TEXTS = {sign + word for word in ("nan", "inf", "infinity") for sign in ("", "-", "+")}


class _AnyColumns:
    """Columns while their types are unknown: every column is a field."""

    fills_up = True

    def __init__(self, choice: ColumnChoice, key: Sequence[str]) -> None:
        self._choice = choice
        self.key = tuple(key)
        self.field_names: tuple[str, ...] = ()

    def named(self, cells: int) -> Sequence[str] | None:
        return self._choice.named(cells, [f"column_{place + 1}" for place in range(cells)])

    def matched(self, columns: Sequence[str], *, growing: bool = False) -> list[str | None]:
        choice = self._choice.growing(columns) if growing else self._choice
        return choice.kept(new_names(columns, choice.rename), growing=growing)

    def missing(self, names: Collection[str]) -> str:
        return ""

    def may_be_null(self, name: str) -> bool:
        return name not in self.key

    def field(self, name: str) -> Field:
        raise KeyError(name)

    def check(self, row: Mapping[str, Value]) -> None:
        return None

    def __contains__(self, name: object) -> bool:
        return True


def _of_schema(source: TypedSource, key: Sequence[str], *, skips: bool) -> list[Field]:
    fields: list[Field] = []
    schema = source.schema()
    for name, kind in zip(schema.names, schema.types, strict=True):
        try:
            fields.append(field_of(name, kind, keyed=name in key))
        except CastError as error:
            if not skips:
                raise UsageProblem(
                    f"{source.name}: column '{name}' {error}, or leave it out by --skip-unknown"
                ) from None
    return fields


def _of_texts(source: CsvSource, form: TextForm) -> tuple[list[Field], str]:
    guesses: dict[str, TextGuess] = {}
    rows = 0
    for batch in source.unconverted():
        rows += batch.num_rows
        for name, texts in zip(batch.schema.names, batch.columns, strict=True):
            guess = guesses.setdefault(name, TextGuess(form))
            guess.see(texts)
            if guess.is_settled:
                source.settled.add(name)
    found = [Field(name, guesses[name].field_type if name in guesses else FieldType.STRING) for name in source.fields]
    if not found:
        raise UsageProblem(f"{source.name}: it is empty; a table has at least one field")
    return found, _rows(source, rows)


def _rows(source: FileSource, rows: int) -> str:
    return f"all {rows:,} rows of {source.name}" if rows != 1 else f"the one row of {source.name}"


def _of_objects(source: JsonSource, form: TextForm, *, skips: bool) -> tuple[list[Field], str]:
    guesses: dict[str, _JsonGuess] = {}
    rows = 0
    for line, _, document in source.objects():
        rows += 1
        for name, value in document:
            guess = guesses.get(name)
            if guess is None:
                guess = guesses[name] = _JsonGuess(name, form)
            guess.see(line, value)
    fields = []
    for name, guess in guesses.items():
        try:
            fields.append(guess.field())
        except CastError as error:
            if not skips:
                raise UsageProblem(
                    f"{source.name}: field '{name}' {error}, or leave it out by --skip-unknown"
                ) from None
    if not fields:
        raise UsageProblem(f"{source.name}: it is empty; a table has at least one field")
    return fields, _rows(source, rows)


class _JsonGuess:
    """The types that the values of a name can have."""

    def __init__(self, name: str, form: TextForm) -> None:
        self._name = name
        self._lines: dict[str, int] = {}
        self._texts: list[str] = []
        self._guess = TextGuess(form, (FieldType.BOOLEAN, *DATES) if form.true else DATES)
        self._least = self._most = 0

    def see(self, line: int, value: object) -> None:
        if value is None:
            return
        match value:
            case bool():
                kind = "a boolean"
            case int():
                kind = "a whole number"
                self._least, self._most = min(self._least, value), max(self._most, value)
            case decimal.Decimal() | float():
                kind = "a number"
            case str():
                kind = _NOT_FINITE if value.lower() in _NOT_FINITE_TEXTS else "a string"
                self._texts.append(value)
                if len(self._texts) >= BATCH_ROWS:
                    self._see_texts()
            case _:
                kind = "an array" if type(value) is list else "an object"
        self._lines.setdefault(kind, line)

    def _see_texts(self) -> None:
        try:
            texts = pa.array(self._texts, pa.string())
        except UnicodeEncodeError:  # for a lone surrogate, which no field takes; the import names its line
            texts = pa.array([""], pa.string())  # no type but string
        self._guess.see(texts)
        self._texts = []

    def field(self) -> Field:
        kinds = set(self._lines)
        if _NOT_FINITE in kinds:  # as Spark writes NaN and infinities; a string among strings
            kinds.discard(_NOT_FINITE)
            kinds.add("a number" if kinds and kinds <= {"a whole number", "a number"} else "a string")
        if nested := kinds & {"an array", "an object"}:
            kind = min(nested)
            raise CastError(
                f"is {kind} on line {self._lines[kind]}; write it as JSON into a string, or its members as fields"
            )
        if kinds == {"a whole number"}:
            if self._least >= -(2**63) and self._most < 2**63:
                return Field.long(self._name)
            if max(-self._least, self._most) < 10**38:
                return Field.decimal(self._name, 38, 0)
            raise CastError("has a whole number of more than 38 digits; write it as a string")
        if kinds and kinds <= {"a whole number", "a number"}:
            return Field.double(self._name)
        if kinds == {"a boolean"}:
            return Field.boolean(self._name)
        if len(kinds) > 1:
            kinds_found = " and ".join(f"{kind} on line {line}" for kind, line in self._lines.items())
            raise CastError(f"is {kinds_found}; no field takes them all; write one kind")
        self._see_texts()
        return Field(self._name, self._guess.field_type)
