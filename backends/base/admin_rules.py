"""Checks of administration calls, the same in every store."""

from __future__ import annotations

from collections.abc import Container, Iterable

from structable.spi import (
    ChangelogProducer,
    InvalidFieldError,
    InvalidSpecificationError,
    Retired,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
)
from structable.spi.authors import retired_since


def require_specification(spec: object, *, has_feeds: bool) -> None:
    """Raise InvalidSpecificationError or UnsupportedOperationError if no table of a store can have this specification.

    `has_feeds` says whether tables of the store may have change feeds.
    """
    if not isinstance(spec, TableSpecification):
        raise InvalidSpecificationError(f"{spec!r} is not a TableSpecification")
    producer = spec.table_options.changelog_producer
    if producer is not ChangelogProducer.NONE and not has_feeds:
        option = "write-mode=log" if spec.table_options.log else f"changelog-producer={producer}"
        raise UnsupportedOperationError(f"table {spec.name!r}: change feeds ({option}) are not supported by this store")


def require_fillable(spec: TableSpecification) -> None:
    """Raise InvalidSpecificationError if a new table cannot have the rules: a new table has no rows to fill."""
    for rule in spec.rules:
        if isinstance(rule, Retired):
            raise InvalidSpecificationError(f"table {spec.name!r}: a new table cannot be retired")
        if not rule.ready:
            raise InvalidSpecificationError(
                f"table {spec.name!r}: {rule!r} is not ready; a new table has no rows to fill, give it ready=True"
            )


def require_unretired(spec: TableSpecification) -> None:
    """Raise TableNotFoundError if a table is retired."""
    since = retired_since(spec.rules)
    if since is not None:
        raise TableNotFoundError(spec.name, since)


def require_same_case(name: str, existing: str) -> None:
    """Raise InvalidSpecificationError if a table exists whose name differs only by case."""
    if existing != name:
        raise InvalidSpecificationError(f"table {name!r} differs from the table {existing!r} by case alone")


def require_index(table: str, field: object, kept: Container[object], indexes: Iterable[str]) -> None:
    """Raise InvalidFieldError unless a field has an index; `kept` holds `indexes` and indexes under construction."""
    if field not in kept:
        indexed = ", ".join(indexes) or "none"
        raise InvalidFieldError(table, str(field), f"has no index; indexed are: {indexed}")
