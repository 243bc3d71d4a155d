"""The tables of a platform's own upkeep: peers, capabilities, long operations, source control, log files, positions."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated

from structable.datasets.records import Int, Json, Record, RecordTable


class PeerState(enum.StrEnum):
    """Whether a peer was accepted."""

    PENDING = "PENDING"
    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"


class OperationStatus(enum.StrEnum):
    """The status of a long operation; SUCCEEDED, FAILED and KILLED are final."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"


class Side(enum.StrEnum):
    """The copy of an entity that a state of synchronisation describes."""

    STORE = "STORE"
    REPOSITORY = "REPOSITORY"


class Peer(Record):
    """Another platform that is tethered to this one."""

    peer: str
    uri: str
    state: PeerState
    requested: dt.datetime
    last_seen: dt.datetime | None = None
    metadata: Annotated[object, Json] | None = None


class Capability(Record):
    """A capability of the platform, by its status."""

    capability: str
    status: str
    config: Annotated[object, Json] | None = None
    updated: dt.datetime


class CapabilityOperation(Record):
    """The open change of a capability."""

    capability: str
    action: str
    config: Annotated[object, Json] | None = None


class Operation(Record):
    """A long operation."""

    namespace: str
    operation: str
    kind: str
    status: OperationStatus
    started: dt.datetime
    updated: dt.datetime
    details: Annotated[object, Json] | None = None
    error: Annotated[object, Json] | None = None


class Repository(Record):
    """The repository with which a namespace is synchronised."""

    namespace: str
    config: Annotated[object, Json] | None = None
    updated: dt.datetime


class SyncState(Record):
    """The state of an entity's copy in the store, or in the repository."""

    namespace: str
    side: Side
    kind: str
    name: str
    hash: str | None = None
    commit: str | None = None
    modified: dt.datetime | None = None
    synced: bool | None = None


class LogFile(Record):
    """A file of logs of a context, whose first event has the time `event`; `created_on` is the UTC day of `created`."""

    context: str
    event: dt.datetime
    created: dt.datetime
    file: str
    created_on: dt.date


class LogCheckpoint(Record):
    """The position up to which the logs of a partition were processed."""

    prefix: str
    partition: Annotated[int, Int]
    checkpoint: Annotated[object, Json] | None = None
    updated: dt.datetime


class ExternalPosition(Record):
    """The position up to which a subscriber has read a topic of another system."""

    topic: str
    subscriber: str
    position: str
    updated: dt.datetime


PEERS = RecordTable(Peer, "peers", key=("peer",))
CAPABILITIES = RecordTable(Capability, "capabilities", key=("capability",))
CAPABILITY_OPERATIONS = RecordTable(CapabilityOperation, "capability_operations", key=("capability",))
OPERATIONS = RecordTable(Operation, "operations", key=("namespace", "operation"), indexes=("kind", "status", "started"))
REPOSITORIES = RecordTable(Repository, "repositories", key=("namespace",))
SYNC_STATES = RecordTable(
    SyncState, "sync_states", key=("namespace", "side", "kind", "name"), indexes=("modified", "synced")
)
LOG_FILES = RecordTable(LogFile, "log_files", key=("context", "event", "created"), indexes=("created_on",))
LOG_CHECKPOINTS = RecordTable(LogCheckpoint, "log_checkpoints", key=("prefix", "partition"))
EXTERNAL_POSITIONS = RecordTable(ExternalPosition, "external_positions", key=("topic", "subscriber"))

TABLES = (
    PEERS,
    CAPABILITIES,
    CAPABILITY_OPERATIONS,
    OPERATIONS,
    REPOSITORIES,
    SYNC_STATES,
    LOG_FILES,
    LOG_CHECKPOINTS,
    EXTERNAL_POSITIONS,
)
