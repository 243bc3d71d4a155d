"""Selects rows: the options for key ranges and `--where`, and keys given as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from structable.spi import Filter, Range, TableSpecification, Value
from structable.spi import text as language
from structable.spi.authors import not_a_field
from structable.spi.text import LiteralError, parse_value

from .errors import UsageProblem

_REPEATED = "Repeat it for each further key field, in key order."

Where = Annotated[
    str | None,
    typer.Option(
        metavar="EXPRESSION", help="Only rows for which this is true, e.g. \"status == 'RUNNING' and attempt < 3\"."
    ),
]
Prefix = Annotated[
    list[str] | None, typer.Option(metavar="VALUE", help=f"Only keys that start with this value. {_REPEATED}")
]
AtLeast = Annotated[list[str] | None, typer.Option(metavar="VALUE", help=f"Only keys from this one on. {_REPEATED}")]
Above = Annotated[list[str] | None, typer.Option(metavar="VALUE", help=f"Only keys after this one. {_REPEATED}")]
AtMost = Annotated[list[str] | None, typer.Option(metavar="VALUE", help=f"Only keys up to this one. {_REPEATED}")]
Below = Annotated[list[str] | None, typer.Option(metavar="VALUE", help=f"Only keys before this one. {_REPEATED}")]
Columns = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Only these columns, in this order, separated by commas.")
]

_Values: TypeAlias = tuple[Value, ...]


def parse_key(spec: TableSpecification, texts: Sequence[str]) -> _Values:
    """Return the primary key that arguments give, one text per field, in key order."""
    if spec.keyless:
        raise UsageProblem(f"table '{spec.name}' has no primary key to find a row by; scan --where finds rows")
    if len(texts) != len(spec.primary_key):
        wanted = " ".join(field.name.upper() for field in spec.key_fields)
        raise UsageProblem(f"the key of table '{spec.name}' is {wanted}; {len(texts)} given")
    return _key_values(spec, texts, "the key")


def selected(
    spec: TableSpecification,
    where: str | None,
    prefix: Sequence[str] | None,
    at_least: Sequence[str] | None,
    above: Sequence[str] | None,
    at_most: Sequence[str] | None,
    below: Sequence[str] | None,
) -> tuple[Range, Filter | None]:
    """Return the key range and the filter that the options of this module describe."""
    given = {"--prefix": prefix, "--at-least": at_least, "--above": above, "--at-most": at_most, "--below": below}
    bounds = {option: _bound(spec, texts, option) for option, texts in given.items() if texts}
    for one, other in (("--at-least", "--above"), ("--at-most", "--below")):
        if one in bounds and other in bounds:
            raise UsageProblem(f"{one} and {other} exclude each other")
    if "--prefix" in bounds:
        if len(bounds) > 1:
            raise UsageProblem("--prefix excludes the other options of the key range; leave one side out")
        range_ = Range.prefix(bounds["--prefix"])
    else:
        range_ = Range(
            bounds.get("--at-least", bounds.get("--above")),
            bounds.get("--at-most", bounds.get("--below")),
            "--above" not in bounds,
            "--at-most" in bounds,
        )
    return range_, None if where is None else parse_where(spec, where)


def parse_where(spec: TableSpecification, text: str) -> Filter:
    """Return the filter of `--where`, an expression such as `status == 'RUNNING' and attempt < 3 or payload is null`.

    Errors name the column, counted in characters from 1.
    """
    try:
        return language.parse_where(spec, text)
    except language.WhereError as error:
        raise UsageProblem(f"--where, {error}") from None


def named_columns(spec: TableSpecification, columns: str | None) -> list[str] | None:
    """Return the columns that `--columns` names, None for all."""
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",")]
    for position, name in enumerate(names):
        if name not in spec:
            raise UsageProblem(f"--columns: '{name}' {not_a_field(spec.field_names, spec.name)}")
        if name in names[:position]:
            raise UsageProblem(f"--columns names '{name}' twice")
    return names


def _bound(spec: TableSpecification, texts: Sequence[str], option: str) -> _Values:
    if spec.keyless:
        raise UsageProblem(f"table '{spec.name}' has no primary key for {option}; --where selects rows")
    if len(texts) > len(spec.primary_key):
        key = ", ".join(spec.primary_key)
        raise UsageProblem(f"{option} is given {len(texts)} times; the primary key of '{spec.name}' is ({key})")
    return _key_values(spec, texts, option)


def _key_values(spec: TableSpecification, texts: Sequence[str], source: str) -> _Values:
    values: list[Value] = []
    for field, text in zip(spec.key_fields, texts, strict=False):
        try:
            values.append(parse_value(field, text))
        except LiteralError as error:
            raise UsageProblem(f"{source}, field '{field.name}': {error}") from None
    return tuple(values)
