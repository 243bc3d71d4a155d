"""The plan as text, JSON and pictures, each the same again; files in `snapshots` have what is expected.

After a change that is meant: STRUCTABLE_TEST_SNAPSHOTS=write pytest tests/pipelines/test_descriptions.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from structable.spark_bridge import TableRef
from tests.page_code import ROOT, blocks_of
from tests.pipelines.support import page_views
from tests.pipelines.support.declared import declare, lines, load, write

SNAPSHOTS = Path(__file__).parent / "snapshots"


def expect(name: str, text: str) -> None:
    path = SNAPSHOTS / name
    if os.environ.get("STRUCTABLE_TEST_SNAPSHOTS") == "write":
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


def test_descriptions() -> None:
    plan = page_views.pipeline.plan()
    expect("pages.txt", plan.explain())
    expect("pages.json", plan.to_json())
    expect("pages.mmd", plan.to_mermaid())
    expect("pages.dot", plan.to_dot())


def test_descriptions_of_problems() -> None:
    plan = page_views.broken.plan(strict=False)
    expect("broken.txt", plan.explain())
    expect("broken.mmd", plan.to_mermaid())
    assert json.loads(plan.to_json())["stages"] == {}


def test_what_has_a_problem_is_red() -> None:
    """Also a side input, which the picture has as an arrow, and a stream that has no place between stages."""
    pipeline = declare(lines("A source 8\nB source 8\nJ join A A\nI by J 16\nK join I I\nO sink K"))
    disordered = pipeline.source("C", load, partitions=8).partition_by("id", name="by_id")
    table = pipeline.table("T", TableRef("leveldb:///tmp/x", "t"), side_inputs=[disordered])
    pipeline.source("D", load, partitions=8).join_table(table, "id").sink("P", write)
    dot = pipeline.plan(strict=False).to_dot()
    red = re.findall(r'label="(\w+)[^\n]*fontcolor', dot)
    assert sorted(red) == ["B", "J", "T"]


PROGRAM = """
from tests.pipelines.support import page_views
for plan in (page_views.pipeline.plan(), page_views.broken.plan(strict=False)):
    print(plan.to_json(), plan.to_mermaid(), plan.to_dot(), plan.explain())
"""


def test_descriptions_do_not_depend_on_the_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1


def test_json_does_not_depend_on_the_order_of_streams() -> None:
    one = lines("A source 8\nB source 8\nJ join A B\nO sink J\nP sink A")
    other = [one[1], one[0], one[2], one[4], one[3]]
    first, second = (json.loads(declare(case).plan().to_json()) for case in (one, other))
    for fact in ("streams", "tables", "groups"):
        assert first[fact] == second[fact]


def test_a_password_is_not_shown() -> None:
    pipeline = declare(lines("A source 8"))
    table = pipeline.table("T", TableRef("postgresql://app:secret@db/app", "t"))
    pipeline.changes("C", TableRef("postgresql://app:secret@db/app", "c"), partitions=8).send_to(table)
    plan = pipeline.plan(strict=False)
    assert "secret" not in plan.to_json() + plan.explain() + plan.to_dot() + plan.to_mermaid() + repr(plan)


def test_svg_without_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="program dot is not in PATH"):
        page_views.pipeline.plan().to_svg(tmp_path / "pages.svg")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_the_picture_of_the_page_is_that_of_its_code(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    code = next(block.code for block in blocks_of(page) if "pages.plan()" in block.code)
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # noqa: S102
    namespace["plan"].to_svg(tmp_path / "pages.svg")
    drawn, shown = (
        sorted(re.findall("<(?:title|text)[^>]*>([^<]*)<|(stroke-dasharray)", path.read_text(encoding="utf-8")))
        for path in (tmp_path / "pages.svg", ROOT / "docs" / "pipelines.svg")
    )
    assert drawn == shown, "docs/pipelines.svg is another picture: write it again by plan.to_svg"
