"""The suite itself: its parts do not hide one another, its hook is demanded, and its checks can fail."""

import ast
import inspect
from collections import Counter
from pathlib import Path

import pytest

from structable.spi.conformance import BackendConformance
from structable.spi.conformance.case import ConformanceCase

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
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "ConformanceCase" for base in node.bases)
    }
    assert found == {topic.__name__ for topic in TOPICS} - {"BackendConformance", "ConformanceCase"}


@pytest.mark.parametrize(("topic", "name"), TESTS)
def test_every_test_states_its_rule(topic: str, name: str) -> None:
    assert inspect.getdoc(getattr(BackendConformance, name)), f"{topic}.{name} has no docstring"
