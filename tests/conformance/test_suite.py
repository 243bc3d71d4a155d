"""The suite itself: its parts do not hide one another, its hook is demanded, and its checks can fail."""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from structable.testing.conformance import BackendConformance, run
from structable.testing.conformance.case import ConformanceCase
from tests.conformance.support.planted_rules import ALLOWED, CAUGHT, rules_of

TOPICS = [topic for topic in BackendConformance.__mro__ if issubclass(topic, ConformanceCase)]
TESTS = [
    (topic.__name__, name)
    for topic in TOPICS
    for name, value in vars(topic).items()
    if name.startswith("test_") and inspect.isfunction(value)
]


def test_no_topic_hides_what_another_defines() -> None:
    names = Counter(name for topic in TOPICS for name in vars(topic) if not name.startswith("__"))
    assert [name for name, times in names.items() if times > 1] == []


def test_every_topic_belongs_to_the_suite() -> None:
    folder = Path(inspect.getfile(ConformanceCase)).parent
    found = {
        node.name
        for module in folder.glob("*.py")
        for node in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        and not {
            "ConformanceCase",
            "FeedCase",
            "FieldRuleCase",
            "JobCase",
            "MergeCase",
            "PatchCase",
            "SharedCase",
            "WritingCase",
        }.isdisjoint(map(ast.unparse, node.bases))
    }
    assert found == {topic.__name__ for topic in TOPICS} - {"BackendConformance", "ConformanceCase"}


@pytest.mark.parametrize(("topic", "name"), TESTS)
def test_every_test_states_its_rule(topic: str, name: str) -> None:
    assert inspect.getdoc(getattr(BackendConformance, name)), f"{topic}.{name} has no docstring"


@pytest.fixture(scope="module")
def planted_outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = Path(__file__).parent.parent.parent
    report = tmp_path_factory.mktemp("planted") / "report.xml"
    wanted = [f"Test_{store}::{name}" for store in {**ALLOWED, **CAUGHT} for name in rules_of(store)]
    nodes = [
        f"tests/conformance/support/planted_suite.py::{one}" for one in [*wanted, "TestWithoutHook::test_count[both]"]
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *nodes]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        results = [
            (child.tag, str(child.get("message"))) for child in case if child.tag in ("failure", "error", "skipped")
        ]
        tag, message = results[0] if results else ("passed", "")
        outcomes[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = f"{tag} {message}"
    return outcomes


@pytest.mark.every_variant
@pytest.mark.xdist_group("planted")
@pytest.mark.parametrize(("bug", "name"), [(bug, name) for bug, names in CAUGHT.items() for name in names])
def test_planted_bug_is_caught(planted_outcomes: dict[str, str], bug: str, name: str) -> None:
    assert planted_outcomes[f"Test_nothing::{name}"].startswith("passed")
    assert planted_outcomes[f"Test_{bug}::{name}"].startswith("failure")


@pytest.mark.every_variant
@pytest.mark.xdist_group("planted")
@pytest.mark.parametrize(("store", "name"), [(store, name) for store, names in ALLOWED.items() for name in names])
def test_allowed_behaviour_passes(planted_outcomes: dict[str, str], store: str, name: str) -> None:
    assert planted_outcomes[f"Test_{store}::{name}"] == "passed "


@pytest.mark.xdist_group("planted")
def test_missing_hook_raises(planted_outcomes: dict[str, str]) -> None:
    outcome = planted_outcomes["TestWithoutHook::test_count[both]"]
    assert outcome.startswith("error")
    assert "TestWithoutHook must override the fixture `storage_url`" in outcome


def told_by_run(pattern: str) -> str:
    """Return what the suite tells of the rules of a pattern, on stores in memory."""
    program = (
        "import sys; from structable.testing.conformance import run; sys.exit(run('memory://{fresh}', sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "-q", "-rs", "-k", pattern]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_run_takes_a_pattern() -> None:
    told = told_by_run("test_read_only or test_counters_in_processes")
    assert re.search(r"\b\d+ passed, 1 skipped, \d{4} deselected", told)
    assert "capability multi_process is not declared" in told


def test_run_finds_every_capability_of_a_store() -> None:
    told = told_by_run("without_the_capability or test_rows_are_counted")
    assert re.search(r"\b1 passed, 3 skipped", told)
    assert "is not declared" not in told


SECRETS = ["pa%20ss%27w0rd", "pa ss'w0rd", "t%2Fk3n", "t/k3n"]
PLANTED_RUN = """
import sys
import tests.conformance.support.planted
from structable.testing.conformance import run
sys.exit(run(sys.argv[1], sys.argv[2:]))
"""


def test_run_shows_no_secrets(tmp_path: Path) -> None:
    url = "planted-leaks://me:pa%20ss%27w0rd@{fresh}?api_token=t%2Fk3n"
    report = tmp_path / "report.xml"
    options = [
        "-l",
        "-vv",
        f"--junitxml={report}",
        "-k",
        "test_transaction_without_operations or test_close_ends_what_is_open",
    ]
    command = [sys.executable, "-c", PLANTED_RUN, url, *options]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent.parent, capture_output=True, text=True, check=False)
    assert "2 failed" in done.stdout, done.stdout + done.stderr
    assert "storage_url = 'planted-leaks://me:***@" in done.stdout
    assert "the server refuses" in done.stdout
    for text in (done.stdout, done.stderr, report.read_text(encoding="utf-8")):
        assert [secret for secret in SECRETS if secret in text] == []


def test_run_refuses_a_url_without_a_place_for_names() -> None:
    with pytest.raises(ValueError, match=r"must contain \{fresh\}"):
        run("memory://all")
