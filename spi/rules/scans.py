"""The rule of which fields an index scan and an order take, the same in every store."""

from __future__ import annotations

from structable.spi.errors import InvalidFieldError
from structable.spi.specification import TableSpecification

__all__ = ["check_indexed_field", "check_order"]


def check_indexed_field(spec: TableSpecification, field: object) -> str:
    """Return the name of a field that has an index.

    Raises
    ------
    InvalidFieldError
        If it has none, or is no field.
    """
    if not isinstance(field, str) or field not in spec:
        raise InvalidFieldError(spec.name, str(field), f"is not a field; the fields are {', '.join(spec.field_names)}")
    if field not in spec.indexes:
        raise InvalidFieldError(spec.name, field, f"has no index; indexed are: {', '.join(spec.indexes) or 'none'}")
    return field


def check_order(spec: TableSpecification, order_by: object) -> str | None:
    """Return the field that goes before the key in the order of a scan; None where the order is the key's.

    Raises
    ------
    InvalidFieldError
        If it is neither of the key nor indexed.
    """
    if order_by is None or order_by == spec.primary_key[0]:
        return None
    if isinstance(order_by, str) and order_by in spec.primary_key:
        return order_by
    return check_indexed_field(spec, order_by)
