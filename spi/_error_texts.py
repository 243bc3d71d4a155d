"""Words that error messages share."""

from __future__ import annotations

from collections.abc import Iterable


def shown(value: object) -> str:
    """Return the `repr` of any object for a message, cut at 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out integers of over 4,300 digits
        text = f"an {type(value).__name__} of very many digits"
    except RecursionError:
        text = f"a {type(value).__name__} of very many levels"
    return text if len(text) <= 80 else f"{text[:77]}..."


def not_a_field(names: Iterable[str], table: str | None = None) -> str:
    """Return the predicate of a message about a name that is not a field of a table."""
    return f"is not a field{'' if table is None else f' of table {table!r}'}; the fields are {', '.join(names)}"
