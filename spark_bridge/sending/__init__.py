"""Rows and partial updates from DataFrames to tables, batch and streaming; each micro-batch is one atomic job.

`rows` and `updates` check what they are given, `arrangement` brings the rows of a key into one task and their order,
`grouping` and `folding` make of them what a write job takes, and `jobs` stages and commits it.
"""

from .jobs import WriteSummary
from .rows import send_to
from .updates import send_update_to

__all__ = ["WriteSummary", "send_to", "send_update_to"]
