"""Foreign-key joins: a table that is the join of two others at every commit. Neither this nor its parts need PySpark.

`definition` says what a join is, `binding` checks it against the tables, `kernel` joins and compares rows, `step` has
the protocol that makes each step atomic, and `worker` runs it.
"""

from .definition import ForeignKeyJoin
from .progress import JoinProgress
from .worker import JoinWorker

__all__ = ["ForeignKeyJoin", "JoinProgress", "JoinWorker"]
