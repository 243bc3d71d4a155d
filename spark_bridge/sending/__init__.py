"""Rows and partial updates from DataFrames to tables, batch and streaming; each micro-batch is one atomic job.

`rows` and `updates` check their arguments, `arrangement` brings the rows of a key into one task and their order,
`grouping` and `folding` turn them into the batches of a write job, and `jobs` stages and commits these.
"""

from .jobs import WriteSummary
from .rows import send_to
from .updates import send_update_to

__all__ = ["WriteSummary", "send_to", "send_update_to"]
