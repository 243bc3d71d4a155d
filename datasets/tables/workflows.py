"""The tables of workflows: tokens, nodes, and statistics of completed runs."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from structable.datasets.records import Json, Record, RecordTable

from .runs import RUN_KEY

__all__ = [
    "TABLES",
    "WORKFLOW_NODES",
    "WORKFLOW_STATISTICS",
    "WORKFLOW_TOKENS",
    "WorkflowNode",
    "WorkflowRun",
    "WorkflowToken",
]


class WorkflowToken(Record):
    """A value that nodes of a workflow's run pass to one another."""

    namespace: str
    application: str
    program_type: str
    program: str
    run: str
    token: dict[str, object] = {}


class WorkflowNode(Record):
    """The state of a node of a workflow's run; `source` orders the messages that changed it."""

    namespace: str
    application: str
    program_type: str
    program: str
    run: str
    node: str
    status: str
    child_run: str | None = None
    failure: Annotated[object, Json] | None = None
    source: int
    updated: dt.datetime


class WorkflowRun(Record):
    """How long a completed run of a workflow took, in seconds, and what its programs took."""

    namespace: str
    application: str
    version: str
    program: str
    started: dt.datetime
    run: str
    seconds: int
    programs: Annotated[object, Json] | None = None


WORKFLOW_TOKENS = RecordTable(WorkflowToken, "workflow_tokens", key=RUN_KEY)
WORKFLOW_NODES = RecordTable(WorkflowNode, "workflow_nodes", key=(*RUN_KEY, "node"))
WORKFLOW_STATISTICS = RecordTable(
    WorkflowRun,
    "workflow_statistics",
    key=("namespace", "application", "version", "program", "started", "run"),
)

TABLES = (WORKFLOW_TOKENS, WORKFLOW_NODES, WORKFLOW_STATISTICS)
