"""The program of docs/streaming.md runs as it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "streaming.md"
CODE = re.compile(r"^<!-- executed with Spark -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_streaming_page(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "streaming"}
    blocks = list(CODE.finditer(text))
    assert len(blocks) == text.count("```python")
    for block in blocks:
        lines_above = text.count("\n", 0, block.start("code"))
        exec(compile("\n" * lines_above + block["code"], PAGE.name, "exec"), namespace)  # noqa: S102
