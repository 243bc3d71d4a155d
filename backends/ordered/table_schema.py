"""`TableSchema`: the ordered stores' form of a table, and its encoding in the catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from structable.spi import DataCorruptionError, Field, TableSpecification, specification_to_document
from structable.spi.authors import NOTHING_TAKEN
from structable.spi.text import field_from_document, field_to_document, specification_from_catalog

HIDDEN_KEY = Field.bytes("_id")
"""The key of the rows of a table without one; no field of a user can have this name."""


def dropped_name(name: str) -> str:
    """Return the name that a dropped field has in the layouts of older rows; no field of a user can have it."""
    return f"{name} (dropped)"


def folded_name(table: str) -> bytes:
    """Return the form of a table's name in keys: in lower case, since no two tables may differ by case alone."""
    return table.lower().encode(errors="surrogatepass")  # never a table's name, but callers may pass it


@dataclass(frozen=True, slots=True)
class FeedSchema:
    """The change feed of a table; its producer is in the specification."""

    space: bytes
    """The space of its entries and marks."""
    token: str
    """The feed's unique name, 16 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A specification with all the numbers needed to read and write its rows."""

    spec: TableSpecification
    space: bytes
    """Four bytes at the head of all keys of this table; never reused for another table."""
    version: int
    """The layout of newly written rows, 0 to 65535."""
    layouts: dict[int, tuple[Field, ...]]
    """Every layout that stored rows may have: the fields outside the key, in stored order.

    Later layouts append fields, widen types, or lack a dropped field, whose name is changed in earlier ones: a row is
    read by its own layout and padded with nulls.
    """
    indexes: dict[str, int]
    """By field, the numbers of the indexes that scans may use: 0 to 65535, never reused in this space."""
    building: dict[str, int] = field(default_factory=dict)
    """By field, the numbers of indexes that every write maintains, but that do not cover all older rows yet."""
    next_index: int = 0
    identity: bytes = b""
    """The first space of the table: no other table of this store has it, not even one of the same name.

    Empty in a table older than identities; at most one such table exists per name.
    """

    feed: FeedSchema | None = None
    taken: Mapping[str, int] = field(default_factory=lambda: NOTHING_TAKEN)
    """Fields and indexes that revisions of migrations removed, see `SchemaChange.taken`."""

    def taking(self, what: str, revision: int | None) -> TableSchema:
        """Return a table that records the removals of a revision."""
        return self if revision is None else replace(self, taken={**self.taken, what: revision})

    @property
    def spaces(self) -> tuple[bytes, ...]:
        """The space of the rows, and the space of the feed if there is one."""
        return (self.space,) if self.feed is None else (self.space, self.feed.space)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The fields of stored keys: the primary key's, or the hidden key."""
        return self.spec.key_fields or (HIDDEN_KEY,)

    @property
    def value_fields(self) -> tuple[Field, ...]:
        """The fields outside the key in the order of the current layout, which may differ from the specification's."""
        return self.layouts[self.version]

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns of a decoded row: the key in key order, then the other fields in layout order."""
        return self.spec.primary_key + tuple(field.name for field in self.value_fields)

    @property
    def maintained(self) -> dict[str, int]:
        return {**self.indexes, **self.building}

    def without(self, name: str, spec: TableSpecification) -> TableSchema:
        """Return the table without a field, which `spec` lacks. No later field of the name reads the values."""
        layouts = {
            version: tuple(replace(one, name=dropped_name(name)) if one.name == name else one for one in fields)
            for version, fields in self.layouts.items()
        }
        layouts[self.version + 1] = tuple(one for one in self.value_fields if one.name != name)
        return replace(self, spec=spec, version=self.version + 1, layouts=layouts)

    def encode(self) -> bytes:
        document: dict[str, object] = {
            "specification": specification_to_document(self.spec),
            "space": self.space.hex(),
            "version": self.version,
            "layouts": {
                str(version): [field_to_document(field) for field in fields] for version, fields in self.layouts.items()
            },
            "indexes": self.indexes,
            "building": self.building,
            "next_index": self.next_index,
        }
        if self.identity:
            document["identity"] = self.identity.hex()
        if self.feed:
            document["feed"] = {"space": self.feed.space.hex(), "token": self.feed.token}
        if self.taken:
            document["taken"] = dict(self.taken)
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, raw: bytes) -> TableSchema:
        try:
            document = json.loads(raw)
            layouts = {
                int(version): tuple(field_from_document(field) for field in fields)
                for version, fields in document["layouts"].items()
            }
            feed = document.get("feed")
            schema = cls(
                specification_from_catalog(document["specification"]),
                bytes.fromhex(document["space"]),
                document["version"],
                layouts,
                document["indexes"],
                document["building"],
                document["next_index"],
                bytes.fromhex(document.get("identity", "")),
                None if feed is None else FeedSchema(bytes.fromhex(feed["space"]), feed["token"]),
                document.get("taken", {}),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataCorruptionError(f"the catalog holds a table that cannot be decoded: {error!r}") from error
        return schema
