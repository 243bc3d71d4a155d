"""Metadata of entities, and the words by which it is found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from structable.datasets.errors import StaleGenerationError
from structable.datasets.identifiers import check_name, check_texts
from structable.datasets.records import Records
from structable.datasets.tables.catalog import METADATA, METADATA_TERMS, Metadata, MetadataScope, MetadataTerm
from structable.spi import col

from .context import Dataset

_WORD = re.compile(r"\w+")
MAX_TERM_BYTES = 255
"""Longer words are not found by a search."""


class MetadataSets(Dataset):
    """The datasets `metadata` and `metadata_terms`; a change of metadata writes only the terms that differ.

    An entity is a text of 1 to 255 bytes. The terms are the words of property names, values and tags, in lower case.
    """

    def set(
        self,
        entity: str,
        scope: MetadataScope,
        properties: Mapping[str, str],
        tags: Iterable[str],
        *,
        generation: int | None = None,
    ) -> Metadata:
        """Replace properties and tags, and return them with the next generation.

        Raises
        ------
        StaleGenerationError
            If `generation` is given, and is not the stored one, which is 0 without metadata.
        """
        before = self.get(entity, scope)
        stored = 0 if before is None else before.generation
        if generation is not None and generation != stored:
            raise StaleGenerationError(generation, stored)
        after = Metadata(
            entity=check_name(entity, "entity"),
            scope=MetadataScope(scope),
            properties=dict(properties),
            tags=sorted(set(check_texts(tags, "tags"))),
            generation=stored + 1,
        )
        self._context.check(METADATA, [after])
        self._change(before, after)
        return after

    def add_tags(self, entity: str, scope: MetadataScope, tags: Iterable[str]) -> Metadata:
        """Add tags to the entity, and return its metadata."""
        before = self.get(entity, scope)
        return self.set(
            entity,
            scope,
            {} if before is None else before.properties,
            [*([] if before is None else before.tags), *check_texts(tags, "tags")],
        )

    def remove(self, entity: str, scope: MetadataScope) -> None:
        """Remove all metadata of an entity in a scope, and its terms; the generation starts over."""
        before = self.get(entity, scope)
        if before is not None:
            self._change(before, None)

    def get(self, entity: str, scope: MetadataScope) -> Metadata | None:
        """Return the metadata of an entity in a scope, or None."""
        return self._metadata.get(entity, MetadataScope(scope))

    def search(self, term_prefix: str, scope: MetadataScope | None = None) -> list[Metadata]:
        """Return the metadata in which a word begins with `term_prefix`, in any case of letters, by entity.

        Raises
        ------
        ValueError
            If the prefix is empty.
        """
        prefix = check_name(term_prefix, "term_prefix").lower()
        where = col("term").startswith(prefix)
        if scope is not None:
            where = where & (col("scope") == MetadataScope(scope))
        with self._context.records(METADATA_TERMS).scan(where=where) as found:
            keys = {(one.entity, one.scope) for one in found}
        return self._metadata.get_many(keys)

    @property
    def _metadata(self) -> Records[Metadata]:
        return self._context.records(METADATA)

    def _change(self, before: Metadata | None, after: Metadata | None) -> None:
        known = after or before
        assert known is not None
        old, new = _terms(before), _terms(after)
        terms = self._context.records(METADATA_TERMS)
        if after is None:
            self._metadata.delete(known.entity, known.scope)
        else:
            self._metadata.put(after)
        terms.table.delete_many([(term, known.entity, known.scope.value) for term in old.keys() - new.keys()])
        terms.put_many(
            MetadataTerm(term=term, entity=known.entity, scope=known.scope, kind=kind)
            for term, kind in new.items()
            if old.get(term) != kind
        )


def _terms(metadata: Metadata | None) -> dict[str, str]:
    """Return the words with their kind: TAG or PROPERTY."""
    if metadata is None:
        return {}
    texts = [(tag, "TAG") for tag in metadata.tags]
    texts += [(text, "PROPERTY") for item in metadata.properties.items() for text in item]
    found: dict[str, str] = {}
    for text, kind in texts:
        for word in _WORD.findall(text.lower()):
            if len(word.encode()) <= MAX_TERM_BYTES:
                found.setdefault(word, kind)
    return found
