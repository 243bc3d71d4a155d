"""The table that the rules of fields are tried on, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import pytest

from structable.spi import (
    Cast,
    Derived,
    Field,
    FieldRule,
    FieldType,
    JsonField,
    Renamed,
    Storage,
    StructuredTable,
    TableSpecification,
)

from .case import AUTO_COMMIT, ONE_TRANSACTION, ConformanceCase
from .samples import Record

EVENTS = TableSpecification(
    "events",
    [
        Field.long("id"),
        Field.string("body"),
        Field.int("size"),
        Field.int("tries"),
        Field.string("note"),
        Field.long("number"),
        Field.string("size_text"),
        Field.string("remark"),
    ],
    primary_key=["id"],
    indexes=["note"],
)
NUMBER = Derived("number", "body", JsonField(("a", "n"), FieldType.LONG))
TEXT = Derived("size_text", "size", Cast(FieldType.STRING))
RENAMED = Renamed("note", "remark")
READY = pytest.mark.parametrize("ready", [False, True], ids=["filling", "ready"])

OpenRuled: TypeAlias = Callable[..., StructuredTable]
"""Puts the given rows into EVENTS without rules, then sets rules and opens the table as one of the views."""


def event(key: int, /, **fields: object) -> Record:
    """Return a whole row of EVENTS; fields that are not given are null."""
    return {**dict.fromkeys(EVENTS.field_names), "id": key, **fields}


class FieldRuleCase(ConformanceCase):
    """The base of the rules of fields."""

    @pytest.fixture
    def migrating(self, storage: Storage) -> Storage:
        """Return a store whose tables may have rules."""
        self.require("field_rules")
        return storage

    @pytest.fixture
    def events(self, migrating: Storage) -> Storage:
        """Return a store with EVENTS."""
        migrating.admin.create(EVENTS)
        return migrating

    @pytest.fixture(params=[AUTO_COMMIT, ONE_TRANSACTION])
    def ruled(self, request: pytest.FixtureRequest, events: Storage) -> Iterator[OpenRuled]:
        """Open EVENTS under rules, in both views."""
        with ExitStack() as stack:

            def opened(*rules: FieldRule, before: tuple[Record, ...] = ()) -> StructuredTable:
                events.table("events").upsert_many(before)
                events.admin.set_rules("events", rules)
                if request.param == AUTO_COMMIT:
                    return events.table("events")
                return stack.enter_context(events.transaction()).table("events")

            yield opened
