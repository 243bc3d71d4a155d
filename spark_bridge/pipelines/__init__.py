"""Pipelines: streams and tables in one graph, planned and verified without Spark, then run by it.

Read in this order: `graph` (what is declared), `planned` (what planning finds), and the modules that find it.
"""

from .partitioners import Partitioner, partition_of
from .planned import Group, Member, Planned, Problem, Stage, Step, StepKind
from .windows import JoinWindow

__all__ = [
    "Group",
    "JoinWindow",
    "Member",
    "Partitioner",
    "Planned",
    "Problem",
    "Stage",
    "Step",
    "StepKind",
    "partition_of",
]
