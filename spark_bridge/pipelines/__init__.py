"""Pipelines: streams and tables in one graph, planned and verified without Spark, then run by it.

Read in this order: `api` and `streams` (declarations, kept in a `graph`), `reach` (the one traversal), `groups`,
`counts`, `keys`, `orders` and `checks` (the agreement of streams), `cutting`, `clusters`, `stages` and `step_order`
(stages and steps), and `plan`. Only `running` needs Spark; its `runs` is imported when a pipeline is started.
"""

from __future__ import annotations

from structable.spi.authors import needing

with needing("planning needs", "spark"):
    import networkx  # noqa: F401

from structable.spi import PlanChangedError, PlanError

from .api import Pipeline
from .graph import StepKind
from .partitioners import Partitioner, partition_of
from .plan import Plan
from .planned import Group, Member, Problem, Stage, Step
from .streams import Stream, Table
from .windows import JoinWindow

__all__ = [
    "Group",
    "JoinWindow",
    "Member",
    "Partitioner",
    "Pipeline",
    "Plan",
    "PlanChangedError",
    "PlanError",
    "Problem",
    "Stage",
    "Step",
    "StepKind",
    "Stream",
    "Table",
    "partition_of",
]
