"""The datasets `metadata` and `metadata_terms`."""

from __future__ import annotations

import pytest

from structable.datasets import MetadataScope, StaleGenerationError
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin

USER, SYSTEM = MetadataScope.USER, MetadataScope.SYSTEM


def found(metadata: list[object]) -> list[tuple[object, object]]:
    return [(one.entity, one.scope) for one in metadata]  # type: ignore[attr-defined] # metadata


class TestMetadata:
    def test_words_are_found_by_their_beginnings(self, begin: Begin) -> None:
        with begin() as s:
            made = s.metadata.set("default/orders", USER, {"Owner": "Ada Lovelace"}, ["Daily", "pii-data"])
            s.metadata.set("default/orders", SYSTEM, {"schema": "daily_v2"}, [])
            s.metadata.set("default/stock", USER, {}, ["weekly"])
        with begin() as s:
            assert s.metadata.get("default/orders", USER) == made
            assert (made.generation, made.tags) == (1, ["Daily", "pii-data"])
            assert found([*s.metadata.search("dai")]) == [("default/orders", SYSTEM), ("default/orders", USER)]
            assert found([*s.metadata.search("DAI", USER)]) == [("default/orders", USER)]
            for word in ("owner", "love", "pii", "data"):
                assert found([*s.metadata.search(word)]) == [("default/orders", USER)], word
            assert s.metadata.search("aily") == []
            with pytest.raises(ValueError, match="term_prefix"):
                s.metadata.search("")

    def test_words_change_with_the_metadata(self, begin: Begin) -> None:
        with begin() as s:
            s.metadata.set("e", USER, {"a": "one"}, ["two"])
        with begin() as s:
            assert s.metadata.set("e", USER, {"a": "three"}, [], generation=1).generation == 2
            assert s.metadata.add_tags("e", USER, ["four", "four"]).tags == ["four"]
        with begin() as s:
            words = {word: bool(s.metadata.search(word)) for word in ("a", "one", "two", "three", "four")}
            assert words == {"a": True, "one": False, "two": False, "three": True, "four": True}
            s.metadata.remove("e", USER)
            s.metadata.remove("e", USER)
        with begin() as s:
            assert s.metadata.get("e", USER) is None
            assert s.metadata.search("a") == []

    def test_stale_changes_are_refused(self, begin: Begin) -> None:
        with begin() as s:
            with pytest.raises(StaleGenerationError):
                s.metadata.set("e", USER, {}, [], generation=1)
            s.metadata.set("e", USER, {"a": "1"}, [], generation=0)
            with pytest.raises(StaleGenerationError):
                s.metadata.set("e", USER, {}, [], generation=0)
            with pytest.raises(ValueError, match="entity"):
                s.metadata.set("", USER, {}, [])

    def test_long_words_are_kept_and_not_found(self, begin: Begin) -> None:
        with begin() as s:
            s.metadata.set("e", USER, {"a": "x" * 256 + " short"}, [])
            assert found([*s.metadata.search("short")]) == [("e", USER)]
            assert s.metadata.search("xx") == []

    def test_overlapping_changes_conflict(self, begin: Begin) -> None:
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.metadata.get("e", USER)
            with begin() as other:
                other.metadata.add_tags("e", USER, ["a"])
            s.metadata.add_tags("e", USER, ["b"])
