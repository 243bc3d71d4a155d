"""The tables of runs and workflows, and which states of runs, and of their clusters, may follow which."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated

from structable.datasets.identifiers import ProgramRef, RunRef
from structable.datasets.records import Int, Json, Record, RecordTable

RUN_KEY = ("namespace", "application", "program_type", "program", "run")


class RunStatus(enum.StrEnum):
    """The status of a run; COMPLETED, FAILED, KILLED and REJECTED are final."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    STOPPING = "STOPPING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    REJECTED = "REJECTED"


class ClusterStatus(enum.StrEnum):
    """The status of the cluster that a run has; DEPROVISIONED and ORPHANED are final."""

    PROVISIONING = "PROVISIONING"
    PROVISIONED = "PROVISIONED"
    WAITING = "WAITING"
    DEPROVISIONING = "DEPROVISIONING"
    DEPROVISIONED = "DEPROVISIONED"
    ORPHANED = "ORPHANED"


class Run(Record):
    """A run of a program.

    `active` is True until the run's end and then None, `cluster_open` is the same for its cluster, and `ended_on` the
    day of `stopped` in UTC. `source` orders the messages that changed it. A rejected run that was never provisioned has
    no version and no cluster.
    """

    namespace: str
    application: str
    program_type: str
    program: str
    run: str
    version: str | None = None
    status: RunStatus
    cluster: ClusterStatus | None = None
    active: bool | None = None
    cluster_open: bool | None = None
    ended_on: dt.date | None = None
    profile: str | None = None
    parent_run: str | None = None
    source: int
    started: dt.datetime | None = None
    running: dt.datetime | None = None
    suspended: dt.datetime | None = None
    resumed: dt.datetime | None = None
    stopping: dt.datetime | None = None
    terminate_by: dt.datetime | None = None
    stopped: dt.datetime | None = None
    nodes: Annotated[int, Int] | None = None
    principal: str | None = None
    peer: str | None = None
    artifact: Annotated[object, Json] | None = None
    arguments: dict[str, object] = {}
    system: dict[str, object] = {}
    failure: Annotated[object, Json] | None = None

    @property
    def ref(self) -> ProgramRef:
        """The program."""
        return ProgramRef(self.namespace, self.application, self.program_type, self.program)

    @property
    def run_ref(self) -> RunRef:
        """The run, as a key."""
        return RunRef(self.namespace, self.application, self.program_type, self.program, self.run)


class RunCount(Record):
    """A share of the number of runs of a program's version; the shards of one version are added up."""

    namespace: str
    application: str
    program_type: str
    program: str
    version: str
    shard: Annotated[int, Int]
    runs: int = 0


class Heartbeat(Record):
    """A run's record in a minute in which it was alive."""

    namespace: str
    minute: dt.datetime
    application: str
    program_type: str
    program: str
    run: str
    record: Run


class ProvisioningTask(Record):
    """A task that provisions or deprovisions the cluster of a run."""

    namespace: str
    application: str
    program_type: str
    program: str
    run: str
    kind: str
    state: str
    task: Annotated[object, Json] | None = None
    attempts: Annotated[int, Int] = 0
    updated: dt.datetime


class RemoteRuntime(Record):
    """A run that a remote runtime executes and a monitor follows."""

    namespace: str
    application: str
    program_type: str
    program: str
    run: str
    options: Annotated[object, Json] | None = None
    added: dt.datetime


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
    """The time of a completed run of a workflow, in seconds, and the times of its programs."""

    namespace: str
    application: str
    version: str
    program: str
    started: dt.datetime
    run: str
    seconds: int
    programs: Annotated[object, Json] | None = None


_S, _C = RunStatus, ClusterStatus

NEXT_STATUS: dict[RunStatus, frozenset[RunStatus]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.KILLED, _S.FAILED, _S.REJECTED, _S.STOPPING}),
    _S.STARTING: frozenset({_S.RUNNING, _S.SUSPENDED, _S.STOPPING, _S.COMPLETED, _S.KILLED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.SUSPENDED, _S.STOPPING, _S.COMPLETED, _S.KILLED, _S.FAILED}),
    _S.SUSPENDED: frozenset({_S.RUNNING, _S.STOPPING, _S.KILLED, _S.FAILED}),
    _S.STOPPING: frozenset({_S.COMPLETED, _S.KILLED, _S.FAILED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.KILLED: frozenset(),
    _S.REJECTED: frozenset(),
}

NEXT_CLUSTER: dict[ClusterStatus, frozenset[ClusterStatus]] = {
    _C.PROVISIONING: frozenset({_C.PROVISIONED, _C.DEPROVISIONING, _C.DEPROVISIONED, _C.ORPHANED}),
    _C.PROVISIONED: frozenset({_C.WAITING, _C.DEPROVISIONING}),
    _C.WAITING: frozenset({_C.DEPROVISIONING, _C.ORPHANED}),
    _C.DEPROVISIONING: frozenset({_C.DEPROVISIONED, _C.ORPHANED}),
    _C.DEPROVISIONED: frozenset(),
    _C.ORPHANED: frozenset(),
}

ENDS = frozenset(status for status, following in NEXT_STATUS.items() if not following)

RUNS = RecordTable(Run, "runs", key=RUN_KEY, indexes=("active", "cluster_open", "ended_on", "profile", "parent_run"))
RUN_COUNTS = RecordTable(RunCount, "run_counts", key=(*RUN_KEY[:-1], "version", "shard"))
HEARTBEATS = RecordTable(Heartbeat, "heartbeats", key=("namespace", "minute", *RUN_KEY[1:]))
PROVISIONING_TASKS = RecordTable(ProvisioningTask, "provisioning_tasks", key=(*RUN_KEY, "kind"))
REMOTE_RUNTIMES = RecordTable(RemoteRuntime, "remote_runtimes", key=RUN_KEY)
WORKFLOW_TOKENS = RecordTable(WorkflowToken, "workflow_tokens", key=RUN_KEY)
WORKFLOW_NODES = RecordTable(WorkflowNode, "workflow_nodes", key=(*RUN_KEY, "node"))
WORKFLOW_STATISTICS = RecordTable(
    WorkflowRun,
    "workflow_statistics",
    key=("namespace", "application", "version", "program", "started", "run"),
)

TABLES = (
    RUNS,
    RUN_COUNTS,
    HEARTBEATS,
    PROVISIONING_TASKS,
    REMOTE_RUNTIMES,
    WORKFLOW_TOKENS,
    WORKFLOW_NODES,
    WORKFLOW_STATISTICS,
)
