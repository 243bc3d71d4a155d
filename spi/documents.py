"""Specifications as plain documents, for catalogs and for JSON and TOML files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import InvalidSpecificationError
from .fields import Field, FieldType
from .showing import shown
from .specification import TableSpecification

__all__ = ["field_from_document", "field_to_document", "specification_from_document", "specification_to_document"]

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)\Z")
_KEYS = ("name", "fields", "primary_key", "indexes", "options")


def specification_to_document(spec: TableSpecification) -> dict[str, object]:
    """Return a specification as a JSON document: `fields` is a list of `{"name": ..., "type": "decimal(10,2)"}`."""
    return {
        "name": spec.name,
        "fields": [field_to_document(field) for field in spec.fields],
        "primary_key": list(spec.primary_key),
        "indexes": list(spec.indexes),
        "options": dict(spec.options),
    }


def specification_from_document(document: object) -> TableSpecification:
    """Build a specification from a document.

    Parameters
    ----------
    document : mapping
        As `specification_to_document` returns it; `fields` may also be a mapping of names to types, and `indexes` and
        `options` may be left out.

    Raises
    ------
    InvalidSpecificationError
        If the document has another shape, or the specification breaks a rule.
    """
    if not isinstance(document, Mapping):
        raise InvalidSpecificationError(f"{shown(document)} is not a specification: it must map {', '.join(_KEYS)}")
    for key in document:
        if key not in _KEYS:
            raise InvalidSpecificationError(
                f"{shown(key)} is not a part of a specification; its parts are {', '.join(_KEYS)}"
            )
    for key in _KEYS[:3]:
        if key not in document:
            raise InvalidSpecificationError(f"the specification lacks {key!r}; its parts are {', '.join(_KEYS)}")
    fields = document["fields"]
    if isinstance(fields, Mapping):
        fields = [{"name": name, "type": kind} for name, kind in fields.items()]
    if not isinstance(fields, list):
        raise InvalidSpecificationError(f"fields is {shown(fields)}; it must be a list of names and types")
    return TableSpecification(
        **{part: document[part] for part in document if part != "fields"},
        fields=[field_from_document(entry) for entry in fields],
    )


def field_to_document(field: Field) -> dict[str, str]:
    """Return a field as a JSON document: `{"name": "cost", "type": "decimal(10,2)"}`."""
    return {"name": field.name, "type": field.type_text}


def field_from_document(entry: object) -> Field:
    """Build a field from its document: a name and a known type, or `InvalidSpecificationError`."""
    if not isinstance(entry, Mapping) or set(entry) != {"name", "type"} or not isinstance(entry["type"], str):
        raise InvalidSpecificationError(f"the field {shown(entry)} must have a name and a type, and nothing else")
    kind = entry["type"].strip().lower()
    if match := _DECIMAL.match(kind):
        return Field.decimal(entry["name"], int(match[1]), int(match[2]))
    allowed = [one.value for one in FieldType if one is not FieldType.DECIMAL]
    if kind not in allowed:
        raise InvalidSpecificationError(
            f"field {shown(entry['name'])}: type {shown(entry['type'])} is unknown; allowed: {', '.join(allowed)}, "
            "decimal(p,s)"
        )
    return Field(entry["name"], FieldType(kind))
