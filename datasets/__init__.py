"""Typed records, and the system data of a platform on them: namespaces, applications, runs, secrets, leases.

`Record`, `RecordTable` and `Records` make any table typed; `SystemData` is a set of datasets that stands on them, on
every store. The errors are also in `structable.datasets.errors`.
"""

from __future__ import annotations

from structable.spi.authors import needing

with needing("datasets need", "datasets"):
    import msgspec  # noqa: F401

from .coordination.leader import Leader
from .coordination.leases import Lease
from .coordination.permits import Permit
from .errors import (
    AlreadyExistsError,
    DatasetError,
    DocumentError,
    IllegalTransitionError,
    InUseError,
    InvalidCursorError,
    LeaseLostError,
    MessagesLostError,
    NotEmptyError,
    NotFoundError,
    RecordShapeError,
    RecordTypeError,
    SchemaMissingError,
    SecretError,
    StaleGenerationError,
    StaleParentError,
)
from .identifiers import DatasetRef, ProgramRef, RunRef, new_run_id, version_order
from .jobs import Worker
from .messaging.consumer import Batch, Consumer
from .messaging.status import GroupStatus, TopicStatus
from .messaging.topics import DeadLetter, Topics
from .records import Byte, Digits, Int, Json, Local, Page, Record, RecordIterator, Records, RecordTable, Short, Single
from .secrets.key_providers import EnvironmentKeys, FileKeys, KeyProvider
from .session import Session
from .system.field_lineage import RunOperations
from .system.jobs import Enqueued
from .system.messages import Feed, Message, Topic
from .system.preferences import Preferences, Resolved
from .system.queues import Queue
from .system.runs import Changed, Ignored, IgnoredReason
from .system.schedule_jobs import ScheduleJob
from .system.schedules import program_trigger
from .system.workflow_statistics import Statistics
from .system_data import SystemData
from .tables.applications import ApplicationVersion
from .tables.artifacts import (
    ApplicationClass,
    Artifact,
    ArtifactDetail,
    ArtifactRange,
    Plugin,
    ProvidedClass,
    ProvidedPlugin,
)
from .tables.catalog import DatasetInstance, DatasetKind, DatasetModule, Metadata, MetadataScope
from .tables.field_lineage import Direction, EndpointField, FieldLineage, FieldOperation
from .tables.jobs import Job, JobState
from .tables.lineage import Access, DatasetAccess
from .tables.namespaces import Config, Namespace, Profile, ProfileAssignment, ProfileStatus
from .tables.platform import (
    Capability,
    CapabilityOperation,
    LogCheckpoint,
    LogFile,
    Operation,
    OperationStatus,
    Peer,
    PeerState,
    Repository,
    Side,
    SyncState,
)
from .tables.runs import ClusterStatus, ProvisioningTask, RemoteRuntime, Run, RunStatus, WorkflowNode, WorkflowRun
from .tables.schedules import Schedule, ScheduleJobState, ScheduleStatus
from .tables.secrets import CredentialIdentity, CredentialProfile, Owner, Secret

__all__ = [
    # Typed records
    "Byte",
    "Digits",
    "Int",
    "Json",
    "Local",
    "Page",
    "Record",
    "RecordIterator",
    "RecordTable",
    "Records",
    "Short",
    "Single",
    # The system datasets
    "Access",
    "ApplicationClass",
    "ApplicationVersion",
    "Artifact",
    "ArtifactDetail",
    "ArtifactRange",
    "Batch",
    "Capability",
    "CapabilityOperation",
    "Changed",
    "ClusterStatus",
    "Config",
    "Consumer",
    "CredentialIdentity",
    "CredentialProfile",
    "DatasetAccess",
    "DatasetInstance",
    "DatasetKind",
    "DatasetModule",
    "DatasetRef",
    "DeadLetter",
    "Direction",
    "EndpointField",
    "EnvironmentKeys",
    "Enqueued",
    "Feed",
    "FieldLineage",
    "FieldOperation",
    "FileKeys",
    "GroupStatus",
    "Ignored",
    "IgnoredReason",
    "Job",
    "JobState",
    "KeyProvider",
    "Leader",
    "Lease",
    "LogCheckpoint",
    "LogFile",
    "Message",
    "Metadata",
    "MetadataScope",
    "Namespace",
    "Operation",
    "OperationStatus",
    "Owner",
    "Peer",
    "PeerState",
    "Permit",
    "Plugin",
    "Preferences",
    "Profile",
    "ProfileAssignment",
    "ProfileStatus",
    "ProgramRef",
    "ProvidedClass",
    "ProvidedPlugin",
    "ProvisioningTask",
    "Queue",
    "RemoteRuntime",
    "Repository",
    "Resolved",
    "Run",
    "RunOperations",
    "RunRef",
    "RunStatus",
    "Schedule",
    "ScheduleJob",
    "ScheduleJobState",
    "ScheduleStatus",
    "Secret",
    "Session",
    "Side",
    "Statistics",
    "SyncState",
    "SystemData",
    "Topic",
    "TopicStatus",
    "Topics",
    "WorkflowNode",
    "Worker",
    "WorkflowRun",
    "new_run_id",
    "program_trigger",
    "version_order",
    # Errors
    "AlreadyExistsError",
    "DatasetError",
    "DocumentError",
    "IllegalTransitionError",
    "InUseError",
    "InvalidCursorError",
    "LeaseLostError",
    "MessagesLostError",
    "NotEmptyError",
    "NotFoundError",
    "RecordShapeError",
    "RecordTypeError",
    "SchemaMissingError",
    "SecretError",
    "StaleGenerationError",
    "StaleParentError",
]
