"""The recorded definition of a join: compared at each start, and read by the command `structable join`.

A JSON document. Tables are recorded with their URLs, without passwords. Only their names are compared, since one store
has many URLs, and the positions show whether a table is the one that was joined. `select` is the resolved selection,
`feed` the feed of the result, and `unfilled` the rules by which reads computed fields of the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from structable.spark_bridge.base.table_ref import TableRef
from structable.spi import DataCorruptionError, InvalidSpecificationError, StructuredTable
from structable.spi.authors import is_secret, without_secrets
from structable.spi.text import field_from_document, field_to_document

from .binding import BoundJoin
from .definition import ForeignKeyJoin, joiner_name, load_joiner
from .progress import PROGRESS, all_records

_COMPARED = ("how", "joiner", "left", "on", "result", "result_fields", "right", "select")


@dataclass(frozen=True, slots=True)
class Definition:
    """A recorded definition."""

    text: str
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> Definition:
        """Return the definition of a recorded text.

        Raises
        ------
        DataCorruptionError
            If the text is not a definition.
        """
        try:
            document = json.loads(text)
            for part in (*_COMPARED, "feed"):
                document[part]
            for table in ("left", "right", "result"):
                document[table]["table"], document[table]["url"], document[table]["options"]
        except (ValueError, TypeError, KeyError) as error:
            raise DataCorruptionError(
                f"{text!r:.200} is not the definition of a join: {error!r}; delete its row of {PROGRESS.name}, and "
                "the join is rebuilt"
            ) from error
        return cls(text, document)

    @property
    def feed(self) -> str:
        """The feed of the result."""
        return str(self.document["feed"])

    @property
    def result_table(self) -> str:
        """The name of the result."""
        return str(self.document["result"]["table"])

    @property
    def selection(self) -> Mapping[str, str] | None:
        """The recorded selection; None with a joiner."""
        selection: Mapping[str, str] | None = self.document["select"]
        return selection

    @property
    def fields(self) -> frozenset[str]:
        """The names of the result's fields outside of its key."""
        made = self.document["result_fields"]
        return frozenset(self.selection or () if made is None else (one["name"] for one in made))

    @property
    def unfilled(self) -> Mapping[str, Any]:
        """The rules of fields that reads computed when the result was joined, as `BoundJoin` has them."""
        unfilled: Mapping[str, Any] = self.document.get("unfilled", {})
        return unfilled

    def differences(self, wanted: Definition) -> tuple[str, ...]:
        """Return the differences from another definition, a sentence each."""
        found = []
        for part in _COMPARED:
            ours, theirs = self.document[part], wanted.document[part]
            if part in ("left", "right", "result"):
                ours, theirs = ours["table"], theirs["table"]
            if ours != theirs:
                found.append(f"{part} was {_text(ours)} and is {_text(theirs)}")
        return tuple(found)

    def join(self, name: str, refs: Iterable[TableRef]) -> ForeignKeyJoin:
        """Return the join, without a selection if it had none.

        Parameters
        ----------
        name : str
            Its name.
        refs : iterable of TableRef
            The left table, the right one and the result.

        Raises
        ------
        InvalidSpecificationError
            If its joiner cannot be imported here.
        """
        document = self.document
        left, right, result = refs
        joiner = None
        if document["joiner"] is not None:
            try:
                joiner = load_joiner(document["joiner"])
            except (ImportError, AttributeError, ValueError) as error:
                raise InvalidSpecificationError(
                    f"join {name!r}: its joiner {document['joiner']} cannot be imported here ({error}); put its module "
                    "where Python finds it, as by PYTHONPATH"
                ) from error
        fields = document["result_fields"]
        return ForeignKeyJoin(
            name,
            left,
            right,
            document["on"],
            document["how"],
            select=document["select"] if document["chosen"] else None,
            joiner=joiner,
            result_fields=None if fields is None else [field_from_document(one) for one in fields],
            result=result,
        )

    def ref(self, table: str) -> TableRef:
        """Return the reference to a table, without a password: `left`, `right` or `result`."""
        one = self.document[table]
        return TableRef(one["url"], one["table"], **one["options"])


def rivals(table: StructuredTable, join: str, result: str, feed: str) -> list[str]:
    """Return a fault for each other join whose result is the table with this feed."""
    return [
        f"table {result!r} is the result of the join {one.consumer!r}; name another result, or drop that one and "
        f"delete the row {one.consumer!r} of {PROGRESS.name}"
        for one in all_records(table)
        if one.consumer != join and Definition.parse(one.definition).feed == feed
    ]


def definition_of(bound: BoundJoin, feed: str) -> Definition:
    """Return the definition of a join with the feed of its result."""
    join = bound.join
    document = {
        "version": 1,
        "left": _ref_document(join.left),
        "right": _ref_document(join.right),
        "result": _ref_document(join.result),
        "feed": feed,
        "on": bound.on,
        "how": join.how,
        "unfilled": bound.unfilled,
        "select": bound.sources,
        "chosen": join.select is not None,
        "joiner": None if join.joiner is None else joiner_name(join.joiner),
        "result_fields": None if join.result_fields is None else [field_to_document(one) for one in join.result_fields],
    }
    return Definition(json.dumps(document, sort_keys=True), document)


def _ref_document(ref: TableRef) -> dict[str, object]:
    options = {name: value for name, value in ref.options if not is_secret(name)}
    return {"url": without_secrets(ref.url), "table": ref.name, "options": options}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
