"""Specifications as plain documents, for catalogs and for JSON and TOML files."""

from __future__ import annotations

from collections.abc import Mapping

from ._error_texts import shown
from ._errors import InvalidSpecificationError
from ._field_rules import rule_from_document, rule_to_document
from ._fields import Field, field_of_type
from ._specification import MeaninglessOptions, TableSpecification
from ._table_options import ChangelogProducer

_KEYS = ("name", "fields", "primary_key", "indexes", "options", "rules")
_REQUIRES = "requires"
_TABLE_TYPES = "table-types"
"""The feature needed to write to a table whose options mean something."""
_CHANGE_FEEDS = "change-feeds"
"""The feature needed to write to a table with a change feed."""
_FIELD_RULES = "field-rules"
"""The feature needed to read or write a table with rules."""
_LOGS = "logs"
"""The feature needed to write to a table that keeps no rows."""
_KNOWN = (_TABLE_TYPES, _CHANGE_FEEDS, _FIELD_RULES, _LOGS)


def specification_to_document(spec: TableSpecification) -> dict[str, object]:
    """Return a specification as a JSON document: `fields` is a list of `{"name": ..., "type": "decimal(10,2)"}`.

    A table that has rules, or options that mean something, has a key `requires` as well, which software that does not
    know them rejects.
    """
    document: dict[str, object] = {
        "name": spec.name,
        "fields": [field_to_document(field) for field in spec.fields],
        "primary_key": list(spec.primary_key),
        "indexes": list(spec.indexes),
        "options": dict(spec.options),
    }
    requires: list[str] = []
    if spec.has_type:
        requires.append(_TABLE_TYPES)
        if spec.table_options.changelog_producer is not ChangelogProducer.NONE:
            requires.append(_CHANGE_FEEDS)
        if spec.table_options.log:
            requires.append(_LOGS)
    if spec.rules:
        requires.append(_FIELD_RULES)
        document["rules"] = [rule_to_document(rule) for rule in spec.rules]
    if requires:
        document[_REQUIRES] = requires
    return document


def specification_from_document(document: object) -> TableSpecification:
    """Build a specification from a document that a user wrote, or that `specification_to_document` returned.

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
    return _from_document(document, stored=False)


def specification_from_catalog(document: object) -> TableSpecification:
    """Build a specification from a document of a catalog: options of a table without `requires` mean nothing.

    Raises
    ------
    InvalidSpecificationError
        As `specification_from_document` does.
    """
    return _from_document(document, stored=True)


def _from_document(document: object, *, stored: bool) -> TableSpecification:
    if not isinstance(document, Mapping):
        raise InvalidSpecificationError(f"{shown(document)} is not a specification: it must map {', '.join(_KEYS)}")
    requires = _required(document.get(_REQUIRES, []))
    for key in document:
        if key not in (*_KEYS, _REQUIRES):
            raise InvalidSpecificationError(
                f"{shown(key)} is not a part of a specification; its parts are {', '.join(_KEYS)}"
            )
    for key in _KEYS[:2]:
        if key not in document:
            raise InvalidSpecificationError(f"the specification lacks {key!r}; its parts are {', '.join(_KEYS)}")
    fields = document["fields"]
    if isinstance(fields, Mapping):
        fields = [{"name": name, "type": kind} for name, kind in fields.items()]
    if not isinstance(fields, list):
        raise InvalidSpecificationError(f"fields is {shown(fields)}; it must be a list of names and types")
    parts = {part: document[part] for part in document if part not in ("fields", "rules", _REQUIRES)}
    if stored and _TABLE_TYPES not in requires and isinstance(parts.get("options"), Mapping):
        parts["options"] = MeaninglessOptions(parts["options"])
    rules = document.get("rules", [])
    if not isinstance(rules, list):
        raise InvalidSpecificationError(f"rules is {shown(rules)}; it must be a list of rules")
    return TableSpecification(
        **parts,
        fields=[field_from_document(entry) for entry in fields],
        rules=[rule_from_document(entry) for entry in rules],
    )


def _required(given: object) -> list[str]:
    if not isinstance(given, list) or any(one not in _KNOWN for one in given):
        raise InvalidSpecificationError(
            f"the table requires {shown(given)}, and this version of structable knows {', '.join(_KNOWN)}; use a newer "
            "one"
        )
    return given


def field_to_document(field: Field) -> dict[str, str]:
    """Return a field as a JSON document: `{"name": "cost", "type": "decimal(10,2)"}`."""
    return {"name": field.name, "type": field.type_text}


def field_from_document(entry: object) -> Field:
    """Build a field from its document: a name and a known type, or `InvalidSpecificationError`."""
    if not isinstance(entry, Mapping) or set(entry) != {"name", "type"} or not isinstance(entry["type"], str):
        raise InvalidSpecificationError(f"the field {shown(entry)} must have a name and a type, and nothing else")
    return field_of_type(entry["name"], entry["type"])
