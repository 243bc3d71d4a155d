"""Preferences of scopes of every level, put, deleted and resolved at random, beside a model of plain values."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from structable.datasets import NotFoundError, Preferences, Resolved, StaleGenerationError
from structable.spi import Storage
from tests.datasets.machines.conftest import Explore
from tests.datasets.support.session_machine import SessionMachine

Scope = tuple[str, ...]

PROGRAMS = (
    ("default", "shop", "service", "web"),
    ("default", "shop", "service", "w"),
    ("default", "shop2", "workflow", "web"),
    ("sales", "shop", "service", "web"),  # a namespace that comes and goes
)
SCOPES: list[Scope] = sorted({program[:length] for program in PROGRAMS for length in range(5)})
VALUES = st.sampled_from((1, "x", None, [1, {"y": 2.5}], {"z": "ä"}))
PROPERTIES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@dataclasses.dataclass
class Model:
    """`stored` has the properties of each scope, None once they were deleted, and its seq."""

    stored: dict[Scope, tuple[dict[str, object] | None, int]] = dataclasses.field(default_factory=dict)
    namespaces: set[str] = dataclasses.field(default_factory=lambda: {"default", "system"})


class PreferencesMachine(SessionMachine[Model]):
    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, Model())

    @rule(scope=st.sampled_from(SCOPES), properties=PROPERTIES, lead=st.none() | st.sampled_from((0, 0, -1, 1)))
    def put(self, scope: Scope, properties: dict[str, object], lead: int | None) -> None:
        """Put preferences, without a seq, with the present one, or with another."""
        _, present = self._stored(scope)
        with self.session() as s:
            if not self._exists(scope):
                with pytest.raises(NotFoundError):
                    s.preferences.put(scope, properties)
            elif lead:
                with pytest.raises(StaleGenerationError) as error:
                    s.preferences.put(scope, properties, seq=present + lead)
                assert (error.value.expected, error.value.found) == (present + lead, present)
            else:
                given = None if lead is None else present
                assert s.preferences.put(scope, properties, seq=given) == present + 1
                self.model.stored[scope] = properties, present + 1

    @rule(scope=st.sampled_from(SCOPES))
    def delete(self, scope: Scope) -> None:
        _, present = self._stored(scope)
        with self.session() as s:
            if not self._exists(scope):
                with pytest.raises(NotFoundError):
                    s.preferences.delete(scope)
                return
            assert s.preferences.delete(scope) == present + 1
        self.model.stored[scope] = None, present + 1

    @rule()
    def create_or_delete_namespace(self) -> None:
        """Preferences are no members of their namespace, and outlive it."""
        with self.session() as s:
            if "sales" in self.model.namespaces:
                s.namespaces.delete("sales")
            else:
                s.namespaces.create("sales")
        self.model.namespaces ^= {"sales"}

    @rule(
        scope=st.sampled_from((("",), ("default", ""), (*PROGRAMS[0], "x"), ("default", "a\0"), ("default", "ä" * 128)))
    )
    def refuse_bad_scopes(self, scope: Scope) -> None:
        with self.session() as s:
            for refused in (s.preferences.delete, s.preferences.resolve, s.preferences.get):
                with pytest.raises(ValueError, match="scope"):
                    refused(scope)

    @rule(scope=st.sampled_from(SCOPES))
    def change_read_properties(self, scope: Scope) -> None:
        """Change what was read, which is the caller's own: nothing that is stored changes with it."""
        with self.session() as s:
            s.preferences.get(scope).properties["a"] = "changed"
            s.preferences.resolve(scope).properties.clear()

    @invariant()
    def every_scope_is_that_of_the_model(self) -> None:
        with self.session() as s:
            for scope in SCOPES:
                properties, seq = self._stored(scope)
                assert s.preferences.get(scope) == Preferences(properties or {}, seq)
                assert s.preferences.resolve(scope) == self._resolved(scope)

    def _stored(self, scope: Scope) -> tuple[dict[str, object] | None, int]:
        return self.model.stored.get(scope, (None, 0))

    def _exists(self, scope: Scope) -> bool:
        return not scope or scope[0] in self.model.namespaces

    def _resolved(self, scope: Scope) -> Resolved:
        """Return what holds at a scope: of two levels that have a property, the nearer one counts."""
        levels = [self._stored(scope[:length]) for length in range(len(scope) + 1)]
        names = {name for properties, _ in levels for name in properties or {}}
        nearest = {
            name: next(properties[name] for properties, _ in reversed(levels) if properties and name in properties)
            for name in names
        }
        return Resolved(nearest, max(seq for _, seq in levels))


def test_preferences_are_those_of_a_model(explore: Explore) -> None:
    explore(PreferencesMachine)
