"""The pages for Spark's users run as they are shown."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from structable.spark_bridge.jvm.format_lookup import session_active
from tests.page_code import ROOT, Block, blocks_of, run_blocks
from tests.spark.conftest import every_store


@pytest.fixture(autouse=True)
def own_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a page get a session that knows nothing of structable yet, and whose catalogs no other test has used."""
    session = spark.newSession()
    with session_active(spark):  # in the end again
        monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
        yield
        for query in session.streams.active:  # of a page that failed
            query.stop()


def blocks_for_spark(text: str) -> list[Block]:
    """Return all blocks of a page; each is for Spark, and each text is what one prints."""
    blocks = blocks_of(text)
    assert [block.line for block in blocks if block.language == "python" and block.how != "executed with Spark"] == []
    assert len(blocks) == text.count("\n```python\n") + text.count("\n```sql\n")
    assert len([block for block in blocks if block.output is not None]) == text.count("\n```text\n")
    return blocks


@every_store
def test_spark_page(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "spark.md"
    text = page.read_text(encoding="utf-8")
    shown = 'f"leveldb://{Path.cwd()}/tables"'
    assert text.count(shown) == 1
    run_blocks(page, blocks_for_spark(text.replace(shown, repr(url))))


def test_streaming_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "streaming.md"
    monkeypatch.chdir(tmp_path)
    run_blocks(page, blocks_for_spark(page.read_text(encoding="utf-8")))


def test_joins_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "joins.md"
    blocks = [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.how == "executed with Spark"]
    monkeypatch.chdir(tmp_path)
    run_blocks(page, blocks)


def test_pipelines_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "pipelines.md"
    blocks = [one for one in blocks_of(page.read_text(encoding="utf-8")) if one.how == "executed with Spark"]
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    run_blocks(page, blocks)


def test_first_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "first-hour-spark.md"
    monkeypatch.chdir(tmp_path)
    run_blocks(page, blocks_for_spark(page.read_text(encoding="utf-8")))
