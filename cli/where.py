"""The option `--where`: its errors are misuse of the command."""

from __future__ import annotations

from structable.spi import Filter, TableSpecification
from structable.spi import where as language

from .errors import UsageProblem

__all__ = ["parse_where"]


def parse_where(spec: TableSpecification, text: str) -> Filter:
    """Return the filter of an expression such as `status == 'RUNNING' and attempt < 3 or payload is null`.

    Errors name the column, counted in characters from 1.
    """
    try:
        return language.parse_where(spec, text)
    except language.WhereError as error:
        raise UsageProblem(f"--where, {error}") from None
