"""A folder whose files arrive as micro-batches, and queries that read it; a checkpoint that forgets its last commit."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


class Arrivals:
    """Rows that arrive in files, one micro-batch each."""

    def __init__(self, session: SparkSession, folder: Path, schema: str) -> None:
        self._session = session
        self._folder = folder
        self._schema = schema
        self._files = 0
        folder.mkdir()

    def add(self, *rows: Mapping[str, object]) -> None:
        """Let rows arrive together, in their order."""
        hidden = self._folder / f".{self._files:05}"  # Spark lists no hidden files
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(hidden, (self._files, self._files))  # Spark reads them in the order of their times
        hidden.rename(self._folder / f"{self._files:05}.json")
        self._files += 1

    def stream(self) -> DataFrame:
        return self._session.readStream.schema(self._schema).option("maxFilesPerTrigger", 1).json(str(self._folder))

    def batch(self) -> DataFrame:
        return self._session.read.schema(self._schema).json(str(self._folder))


def ended(query: StreamingQuery | object) -> list[int]:
    """Wait for the end of a query with the trigger availableNow; return the numbers of its micro-batches."""
    assert isinstance(query, StreamingQuery)
    assert query.awaitTermination(120)
    return [int(progress["batchId"]) for progress in query.recentProgress]


def forget_commits(checkpoints: Iterable[Path], last: int) -> None:
    """Remove the last commit of Spark's own log, as if the driver had been killed before it was written."""
    for checkpoint in checkpoints:
        for name in (f"{last}", f".{last}.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=name.startswith("."))
