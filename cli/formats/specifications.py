"""Specification files, in TOML or JSON: read with the lines of errors, and written."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from structable.cli.language.errors import UsageProblem
from structable.spi import TableSpecification, specification_from_document, specification_to_document
from structable.spi.text import rule_to_document

from .json_rows import decoded

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def read_specification(location: str) -> TableSpecification:
    """Return the specification of a file, or of standard input, which holds JSON if it begins with a brace."""
    name = "standard input" if location == "-" else location
    try:
        content = sys.stdin.buffer.read() if location == "-" else Path(location).read_bytes()
    except OSError as error:
        raise UsageProblem(f"{name}: {error.strerror}") from error
    text = decoded(name, content)
    suffix = Path(location).suffix.lower() if location != "-" else ".json" if text.lstrip().startswith("{") else ".toml"
    try:
        if suffix == ".json":
            document = json.loads(text, object_pairs_hook=_without_repetition)
        elif suffix == ".toml":
            document = tomllib.loads(text)
        else:
            raise UsageProblem(f"{name} ends in neither .toml nor .json")
        return specification_from_document(_with_plain_options(document))
    except json.JSONDecodeError as error:
        raise UsageProblem(f"{name}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise UsageProblem(f"{name}: {error}") from error


def _with_plain_options(document: object) -> object:
    """Return a specification's document with options as texts, even if dots nested them or booleans were not quoted."""
    if not isinstance(document, dict) or not isinstance(document.get("options"), dict):
        return document
    return {**document, "options": dict(_plain_options("", document["options"]))}


def _plain_options(prefix: str, options: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _plain_options(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else value


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise ValueError(f"the name {twice!r} appears twice")
    return document


def specification_text(spec: TableSpecification, format_: str) -> str:
    """Return a specification as the text of a file."""
    document = specification_to_document(spec)
    if format_ == "json":
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    lines = [
        f"name = {_toml(spec.name)}",
        f"primary_key = {_toml(list(spec.primary_key))}",
        f"indexes = {_toml(list(spec.indexes))}",
        "",
        "[fields]",
        *(f"{field.name} = {_toml(field.type_text)}" for field in spec.fields),
    ]
    if spec.options:
        lines += ["", "[options]"]
    for name, value in spec.options.items():
        lines.append(f"{name if _BARE_KEY.match(name) else _toml(name)} = {_toml(value)}")
    for rule in map(rule_to_document, spec.rules):
        lines += ["", "[[rules]]", *(f"{name} = {_toml(value)}" for name, value in rule.items())]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    # JSON's other values, and lists of them, are valid TOML, except for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
