"""conformance: it runs the suite, and says in one line what it lacks."""

import builtins

import pytest

import structable.testing.conformance as suite
from tests.cli.conftest import Command, Fails


def test_rules_are_run_against_a_store(process: Command) -> None:
    outcome = process("conformance", "memory://{fresh}", "-k", "test_at_most_sixteen_key_fields")
    assert outcome.code == 0, outcome.out
    assert " passed" in outcome.out


def test_failures_are_an_exit_code(structable: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def run(url: str, arguments: list[str]) -> int:
        given.append((url, arguments))
        return 5

    monkeypatch.setattr(suite, "run", run)
    assert structable("conformance", "memory://{fresh}", "-x", "-k", "scan").code == 1
    assert given == [("memory://{fresh}", ["-k", "scan", "-x"])]


def test_a_url_that_names_one_store(fails: Fails) -> None:
    assert "must contain {fresh}" in fails(2, "conformance", "memory://x")


def test_an_unknown_backend(fails: Fails) -> None:
    assert "no backend for nosuch:// is installed" in fails(3, "conformance", "nosuch://{fresh}")


def test_without_pytest(fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_suite(name: str, *args: object, **options: object) -> object:
        if name == "structable.testing.conformance":
            raise ModuleNotFoundError("the conformance suite needs pytest", name="pytest")
        return real(name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_suite)
    message = fails(1, "conformance", "memory://{fresh}")
    assert message == "the conformance suite needs pytest"
