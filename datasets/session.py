"""`Session`: all datasets in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeVar

from structable.spi import Transaction

from .system.applications import Applications, ApplicationStates
from .system.artifacts import Artifacts
from .system.capabilities import PlatformCapabilities
from .system.context import Context, SessionFences
from .system.credentials import Credentials
from .system.dataset_catalog import DatasetCatalog
from .system.field_lineage import FieldLineages
from .system.jobs import Jobs
from .system.lineage import Lineage, Usages
from .system.messages import Topic
from .system.metadata import MetadataSets
from .system.namespaces import Namespaces
from .system.operations import Operations
from .system.owners import Owners
from .system.peers import Peers
from .system.preferences import Configs, PreferenceSets
from .system.profiles import Profiles
from .system.progress import ExternalPositions, LogFiles
from .system.provisioning import Heartbeats, Provisioning, RemoteRuntimes
from .system.publishing import publish
from .system.runs import Runs
from .system.schedule_jobs import ScheduleJobs
from .system.schedules import Schedules
from .system.secrets import Secrets
from .system.source_control import SourceControl
from .system.workflow_statistics import WorkflowStatistics
from .system.workflows import Workflows

Body = TypeVar("Body")


class Session:
    """The system datasets and the user's tables in one transaction; it ends with the transaction.

    Attributes
    ----------
    tx : Transaction
        The transaction.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.tx: Transaction = context.tx

    def publish(
        self, topic: Topic[Body], body: Body, *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish a message. It exists if and only if the transaction commits, and conflicts with nothing.

        Parameters
        ----------
        body : record or bytes
            Of the topic's type; at most 1 MiB when stored.
        key : str, optional
            Free text for the readers.
        headers : mapping of str to str, optional
            Free texts for the readers; names that begin with "structable-" are rejected.

        Raises
        ------
        NotFoundError
            If there is no such topic; the transaction continues.
        RecordTypeError, DocumentError
            If the body is not of the topic's type, or the headers are not texts.
        FieldSizeLimitError
            If the body is too large.
        ValueError
            If a header has such a name.
        """
        publish(self._context, topic, body, key, headers)

    @cached_property
    def application_state(self) -> ApplicationStates:
        """Values that applications keep."""
        return ApplicationStates(self._context)

    @cached_property
    def applications(self) -> Applications:
        """Applications and their versions."""
        return Applications(self._context)

    @cached_property
    def artifacts(self) -> Artifacts:
        """Artifacts, with their plugins and application classes."""
        return Artifacts(self._context)

    @cached_property
    def capabilities(self) -> PlatformCapabilities:
        """Capabilities of the platform."""
        return PlatformCapabilities(self._context)

    @cached_property
    def configs(self) -> Configs:
        """Named configurations."""
        return Configs(self._context)

    @cached_property
    def credentials(self) -> Credentials:
        """Credential profiles and identities."""
        return Credentials(self._context)

    @cached_property
    def dataset_catalog(self) -> DatasetCatalog:
        """Datasets, kinds and modules."""
        return DatasetCatalog(self._context)

    @cached_property
    def external_positions(self) -> ExternalPositions:
        """Positions in topics of other systems."""
        return ExternalPositions(self._context)

    @cached_property
    def fences(self) -> SessionFences:
        """Fences, shared and excluded in this transaction."""
        return SessionFences(self._context)

    @cached_property
    def field_lineage(self) -> FieldLineages:
        """The fields from which others were made."""
        return FieldLineages(self._context)

    @cached_property
    def heartbeats(self) -> Heartbeats:
        """Heartbeats of runs."""
        return Heartbeats(self._context)

    @cached_property
    def jobs(self) -> Jobs:
        """Jobs of queues."""
        return Jobs(self._context)

    @cached_property
    def lineage(self) -> Lineage:
        """The datasets that each run used."""
        return Lineage(self._context)

    @cached_property
    def log_files(self) -> LogFiles:
        """Log files and checkpoints."""
        return LogFiles(self._context)

    @cached_property
    def metadata(self) -> MetadataSets:
        """Metadata of entities, and search."""
        return MetadataSets(self._context)

    @cached_property
    def namespaces(self) -> Namespaces:
        """Namespaces."""
        return Namespaces(self._context)

    @cached_property
    def operations(self) -> Operations:
        """Long operations."""
        return Operations(self._context)

    @cached_property
    def owners(self) -> Owners:
        """Owners of entities."""
        return Owners(self._context)

    @cached_property
    def peers(self) -> Peers:
        """Tethered platforms."""
        return Peers(self._context)

    @cached_property
    def preferences(self) -> PreferenceSets:
        """Preferences by scope."""
        return PreferenceSets(self._context)

    @cached_property
    def profiles(self) -> Profiles:
        """Compute profiles."""
        return Profiles(self._context)

    @cached_property
    def provisioning(self) -> Provisioning:
        """Tasks that provision clusters."""
        return Provisioning(self._context)

    @cached_property
    def remote_runtimes(self) -> RemoteRuntimes:
        """Runs that remote runtimes execute."""
        return RemoteRuntimes(self._context)

    @cached_property
    def runs(self) -> Runs:
        """Runs of programs."""
        return Runs(self._context)

    @cached_property
    def schedule_jobs(self) -> ScheduleJobs:
        """Jobs that wait for schedules."""
        return ScheduleJobs(self._context)

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules and their triggers."""
        return Schedules(self._context)

    @cached_property
    def secrets(self) -> Secrets:
        """Sealed secrets."""
        return Secrets(self._context)

    @cached_property
    def source_control(self) -> SourceControl:
        """Repositories and synchronisation."""
        return SourceControl(self._context)

    @cached_property
    def usage(self) -> Usages:
        """The datasets that each program uses."""
        return Usages(self._context)

    @cached_property
    def workflow_statistics(self) -> WorkflowStatistics:
        """The durations of workflows."""
        return WorkflowStatistics(self._context)

    @cached_property
    def workflows(self) -> Workflows:
        """Tokens and nodes of workflows."""
        return Workflows(self._context)
