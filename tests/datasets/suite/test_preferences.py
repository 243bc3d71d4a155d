"""The datasets `preferences` and `configs`."""

from __future__ import annotations

import pytest

from structable.datasets import NotFoundError, StaleGenerationError
from structable.datasets.system.preferences import Preferences, Resolved
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock


class TestPreferences:
    def test_nearest_scope_wins_key_by_key(self, begin: Begin) -> None:
        program = ("default", "shop", "service", "web")
        with begin() as s:
            s.preferences.put((), {"a": "instance", "b": "instance", "c": "instance", "d": 0})
            s.preferences.put(("default",), {"b": "namespace", "c": "namespace"})
            s.preferences.put(program[:2], {"c": "application", "x": [1]})
            s.preferences.put(program, {"d": 4})
            s.preferences.put(("default", "other"), {"a": "other"})
        with begin() as s:
            found = {"a": "instance", "b": "namespace", "c": "application", "d": 4, "x": [1]}
            assert s.preferences.resolve(program) == Resolved(found, 1)
            assert s.preferences.resolve(()).properties["b"] == "instance"
            assert s.preferences.resolve(("system",)).properties["b"] == "instance"
            assert s.preferences.get(program) == Preferences({"d": 4}, 1)
            assert s.preferences.get(program[:3]) == Preferences({}, 0)

    def test_seq_never_goes_back(self, begin: Begin) -> None:
        with begin() as s:
            assert s.preferences.put(("default",), {"a": 1}) == 1
            assert s.preferences.put(("default",), {"a": 2}, seq=1) == 2
        with begin() as s:
            assert s.preferences.delete(("default",)) == 3
            assert s.preferences.get(("default",)) == Preferences({}, 3)
            assert s.preferences.resolve(("default", "shop")) == Resolved({}, 3)
            assert s.preferences.put(("default",), {}, seq=3) == 4

    def test_stale_changes_are_refused(self, begin: Begin) -> None:
        with begin() as s:
            s.preferences.put((), {"a": 1})
            with pytest.raises(StaleGenerationError) as error:
                s.preferences.put((), {"a": 2}, seq=0)
            assert (error.value.expected, error.value.found) == (0, 1)
            with pytest.raises(NotFoundError):
                s.preferences.put(("absent",), {})
            assert s.preferences.get(()) == Preferences({"a": 1}, 1)

    def test_overlapping_changes_of_a_scope_conflict(self, begin: Begin) -> None:
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.preferences.get(())
            with begin() as other:
                other.preferences.put((), {"a": 1})
            s.preferences.put((), {"a": 2})

    @pytest.mark.parametrize("scope", [("",), ("a", "b", "c", "d", "e"), "default"])
    def test_bad_scopes_are_refused(self, begin: Begin, scope: tuple[str, ...]) -> None:
        with begin() as s, pytest.raises(ValueError, match="scope"):
            s.preferences.put(scope, {})


class TestConfigs:
    def test_kinds_are_apart(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            made = s.configs.put("default", "dashboard", "a", properties={"x": 1})
            s.configs.put("default", "dashboard", "b", properties={})
            s.configs.put("default", "console", "a", properties={})
            with pytest.raises(NotFoundError):
                s.configs.put("absent", "console", "a", properties={})
        with begin() as s:
            assert s.configs.get("default", "dashboard", "a") == made
            assert made.updated == clock.time
            assert [one.name for one in s.configs.page("default", "dashboard").items] == ["a", "b"]
            s.configs.delete("default", "dashboard", "a")
            assert s.configs.get("default", "dashboard", "a") is None
            with pytest.raises(NotFoundError):
                s.configs.require("default", "dashboard", "a")
