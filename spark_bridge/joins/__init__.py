"""Foreign-key joins: a table that is the join of two others at every commit.

`definition` defines a join, `binding` checks it against the tables, `kernel` joins and compares rows, `step` holds
the protocol that makes each step atomic, and `worker` runs it. None of these needs PySpark. `query`, `distributed`,
`spark_tasks` and `feed_moves` do: they are imported when a name of `query` is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .definition import ForeignKeyJoin
from .progress import JoinProgress
from .worker import JoinWorker

if TYPE_CHECKING:
    from .query import join_available, open_join, start_join

__all__ = ["ForeignKeyJoin", "JoinProgress", "JoinWorker", "join_available", "open_join", "start_join"]

_ON_SPARK = ("join_available", "open_join", "start_join")


def __getattr__(name: str) -> object:
    if name not in _ON_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from structable.spi.authors import needing

    with needing("joins on Spark need", "spark"):
        import pyspark  # noqa: F401
    return getattr(import_module(".query", __name__), name)
