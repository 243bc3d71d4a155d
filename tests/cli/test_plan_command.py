"""`structable plan`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.pipelines.support import page_views

MODULE = "tests.pipelines.support.page_views"


def test_command(structable: Command) -> None:
    plan = page_views.pipeline.plan()
    assert structable("plan", f"{MODULE}:pipeline") == (0, plan.explain() + "\n", "")
    assert structable("plan", f"{MODULE}:pipeline", "--json") == (0, plan.to_json() + "\n", "")
    assert structable("plan", f"{MODULE}:pipeline", "--dot") == (0, plan.to_dot() + "\n", "")
    broken = page_views.broken.plan(strict=False)
    problems = "".join(f"{problem}\n" for problem in broken.problems)
    assert structable("plan", f"{MODULE}:broken", "--mermaid") == (1, broken.to_mermaid() + "\n", problems)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pages"], "'pages' must be MODULE:PIPELINE"),
        ([".pages:pipeline"], "'.pages:pipeline' must be MODULE:PIPELINE"),
        (["no_such_module:pipeline"], "there is no module 'no_such_module'"),
        ([f"{MODULE}:other"], f"{MODULE} has no Pipeline 'other'; it has broken, pipeline"),
        ([f"{MODULE}:pipeline", "--json", "--dot"], "--json and --dot exclude one another"),
    ],
)
def test_command_misused(structable: Command, arguments: list[str], message: str) -> None:
    found = structable("plan", *arguments)
    assert (found.code, found.out) == (2, "")
    assert message in found.err


def test_svg_without_graphviz(structable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = structable("plan", f"{MODULE}:pipeline", "--svg", str(tmp_path / "pages.svg"))
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith("structable: dot: Graphviz' program dot is not in PATH; install graphviz")


def test_svg(structable: Command, tmp_path: Path) -> None:
    if shutil.which("dot") is None:
        pytest.skip("Graphviz is not installed")
    assert structable("plan", f"{MODULE}:pipeline", "--svg", str(tmp_path / "pages.svg")) == (0, "", "")
    drawn = (tmp_path / "pages.svg").read_text(encoding="utf-8")
    assert "by_country" in drawn
    page_views.broken.plan(strict=False).to_svg(tmp_path / "broken.svg")
    assert "#c62828" in (tmp_path / "broken.svg").read_text(encoding="utf-8")
