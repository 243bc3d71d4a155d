"""Random calls of the datasets, valid and not, that can be made on every store alike."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

from structable.datasets import (
    Access,
    Direction,
    MetadataScope,
    OperationStatus,
    PeerState,
    ProfileStatus,
    RunStatus,
    ScheduleJobState,
    ScheduleStatus,
    Side,
)

from .dataset_arguments import BEGIN, NAMES, Call, Maker, Read


def _makers(m: Maker) -> dict[str, list[Callable[[], Call]]]:
    """Return, for each dataset, functions that make a call of it."""
    table: dict[str, list[Callable[[], Call]]] = {}

    def add(
        dataset: str, method: str, arguments: Callable[[], tuple[Any, ...]], /, **options: Callable[[], Any]
    ) -> None:
        def make() -> Call:
            given = {name: value() for name, value in options.items() if name != "more"}
            more = options["more"]() if "more" in options else {}
            return Call(dataset, method, arguments(), {**given, **more})

        table.setdefault(dataset, []).append(make)

    add("namespaces", "create", lambda: (m.namespace(),), description=m.text, config=m.properties, more=m.maybe_at)
    add("namespaces", "create", lambda: (m.one("sales", "team-1", "Bad!", ""),))
    add("namespaces", "get", lambda: (m.namespace(),))
    add("namespaces", "require", lambda: (m.namespace(),))
    add("namespaces", "page", lambda: (), limit=m.limit)
    add("namespaces", "change", lambda: (m.namespace(),), generation=lambda: m.one(None, 1, 2), config=m.properties)
    add("namespaces", "delete", lambda: (m.one("sales", "team-1", "team-1", "absent"),))

    for _ in range(3):
        add(
            "applications",
            "deploy",
            lambda: (m.namespace(), m.application(), m.version(), m.document()),
            artifact=m.document,
            author=lambda: m.one(None, "ada"),
            latest=lambda: m.one(True, False),
            parent=lambda: m.one(None, None, "1"),
            more=m.maybe_at,
        )
    add("applications", "get", lambda: (m.namespace(), m.application(), m.version()))
    add("applications", "latest", lambda: (m.namespace(), m.application()))
    add("applications", "versions", lambda: (m.namespace(), m.application()))
    add(
        "applications",
        "page",
        lambda: (m.namespace(),),
        prefix=lambda: m.one("", "shop", "l"),
        reverse=lambda: m.one(True, False),
        limit=m.limit,
    )
    add("applications", "count", lambda: m.one((), (m.namespace(),)))
    add("applications", "mark_latest", lambda: (m.namespace(), m.application(), m.version()))
    add("applications", "set_source", lambda: (m.namespace(), m.application(), m.version(), m.document()))
    add("applications", "delete_version", lambda: (m.namespace(), m.application(), m.version()))
    add("applications", "delete", lambda: (m.namespace(), m.application()))

    add(
        "application_state",
        "put",
        lambda: (m.namespace(), m.application(), m.name(), m.one(b"", b"\0\xff", b"x" * 5_000)),
    )
    add("application_state", "get", lambda: (m.namespace(), m.application(), m.name()))
    add("application_state", "delete", lambda: (m.namespace(), m.application(), m.name()))
    add("application_state", "delete_all", lambda: (m.namespace(), m.application()))

    for _ in range(4):
        add(
            "runs",
            "provision",
            m.run_key,
            version=m.version,
            source=m.source,
            arguments=m.properties,
            system=m.properties,
            profile=lambda: m.one(None, "a"),
            parent_run=lambda: m.one(None, m.run()),
            artifact=m.document,
            more=m.maybe_at,
        )
    for method in ("starting", "running", "suspend", "resume", "stopping", "waiting", "deprovisioning", "orphaned"):
        add("runs", method, m.run_key, source=m.source, more=m.maybe_at)
    add("runs", "provisioned", m.run_key, nodes=lambda: m.one(0, 3, 2**31 - 1), source=m.source)
    add("runs", "deprovisioned", m.run_key, source=m.source, more=m.maybe_at)
    add("runs", "reject", m.run_key, source=m.source, reason=m.document, more=m.maybe_at)
    ends = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.KILLED, RunStatus.RUNNING)
    for _ in range(2):
        add(
            "runs",
            "stop",
            m.run_key,
            status=lambda: m.one(*ends),
            source=m.source,
            failure=m.document,
            more=m.maybe_at,
        )
    add("runs", "get", m.run_key)
    add("runs", "get_many", lambda: ([m.run_ref() for _ in range(4)],))
    add(
        "runs",
        "history",
        lambda: (m.ref(),),
        status=lambda: m.one(None, RunStatus.PENDING),
        after=lambda: m.one(None, m.at()),
        before=lambda: m.one(None, m.at()),
        limit=m.limit,
    )
    add("runs", "active", lambda: m.ref()[: m.one(0, 1, 2, 3, 4)])
    add("runs", "count_active", lambda: m.ref()[: m.one(0, 1, 2, 3, 4)], limit=lambda: m.one(None, 1))
    add("runs", "children", lambda: (m.run(),))
    add("runs", "count", lambda: (m.ref(),), version=lambda: m.one(None, m.version()))
    add("runs", "overlapping", lambda: (m.namespace(), m.at(), m.at()))
    add("runs", "open_clusters", lambda: ())
    add("runs", "delete_history", lambda: m.ref()[: m.one(1, 2, 4)])
    add("runs", "expire", lambda: (m.day(),))

    add("heartbeats", "beat", lambda: (Read("runs", "get", (m.ref(), m.run())), m.at()))
    add("heartbeats", "between", lambda: (["default", "sales"], m.at(), m.at()))
    add("heartbeats", "expire", lambda: (m.namespace(), m.at()))

    add("workflows", "set_token", lambda: (*m.run_key(), m.properties()))
    add("workflows", "token", m.run_key)
    add(
        "workflows",
        "node",
        lambda: (*m.run_key(), m.name(), m.one("RUNNING", "DONE")),
        source=m.source,
        failure=m.document,
        more=m.maybe_at,
    )
    add("workflows", "nodes", m.run_key)

    add(
        "workflow_statistics",
        "record",
        lambda: (m.one("default", "sales"), m.application(), m.version(), "web", m.at(), m.run()),
        seconds=lambda: m.chance.randint(-1, 100),
        programs=m.document,
    )
    add("workflow_statistics", "summary", lambda: (m.ref(), BEGIN - dt.timedelta(days=2), m.at()))
    add("workflow_statistics", "between", lambda: (m.ref(), BEGIN - dt.timedelta(days=2), m.at()))
    add("workflow_statistics", "neighbours", lambda: (m.ref(), m.run(), m.one(0, 2)))

    add("preferences", "put", lambda: (m.scope(), m.properties()), seq=lambda: m.one(None, 0, 1))
    add("preferences", "get", lambda: (m.scope(),))
    add("preferences", "delete", lambda: (m.scope(),))
    add("preferences", "resolve", lambda: (m.scope(),))

    add("configs", "put", lambda: (m.namespace(), "kind", m.name()), properties=m.properties, more=m.maybe_at)
    add("configs", "get", lambda: (m.namespace(), "kind", m.name()))
    add("configs", "require", lambda: (m.namespace(), "kind", m.name()))
    add("configs", "page", lambda: (m.namespace(), "kind"), limit=m.limit)
    add("configs", "delete", lambda: (m.namespace(), "kind", m.name()))

    for method in ("add", "update"):
        add(
            "schedules",
            method,
            lambda: (*m.schedule(), m.one({"triggers": "or"}, m.document())),
            triggers=lambda: [m.trigger() for _ in range(m.one(0, 1, 3))],
            more=m.maybe_at,
        )
    add("schedules", "set_status", lambda: (*m.schedule(), m.one(*ScheduleStatus)))
    add("schedules", "triggers", m.schedule)
    add("schedules", "get", m.schedule)
    add("schedules", "delete", m.schedule)
    add("schedules", "delete_of", lambda: m.schedule()[:2])
    add("schedules", "by_trigger", lambda: (m.trigger(),))
    add("schedules", "page", lambda: m.schedule()[:2], limit=m.limit)
    add("schedules", "drop_program", lambda: (m.ref(),))

    for _ in range(3):
        add("schedule_jobs", "notify", lambda: (m.scheduled(), m.document()), more=m.maybe_at)
    add("schedule_jobs", "advance", lambda: (m.job(), m.one(*ScheduleJobState)))
    add("schedule_jobs", "mark_deleted", lambda: (m.scheduled(),))
    add("schedule_jobs", "jobs", lambda: (m.chance.randint(0, 16),))
    add("schedule_jobs", "delete", lambda: (m.job(),))

    add("profiles", "create", m.ns_name, provisioner=m.document)
    add("profiles", "get", m.ns_name)
    add("profiles", "page", lambda: (m.namespace(),), limit=m.limit)
    add("profiles", "set_status", lambda: (*m.ns_name(), m.one(*ProfileStatus)))
    add("profiles", "assign", lambda: (*m.ns_name(), m.name()))
    add("profiles", "unassign", lambda: (*m.ns_name(), m.name()))
    add("profiles", "assignments", m.ns_name)
    add("profiles", "delete", m.ns_name)

    add("secrets", "put", lambda: (*m.ns_name(), m.one(b"", b"secret")), version=lambda: m.one(None, 0, 1))
    add("secrets", "put", lambda: (*m.ns_name(), b"x"), description=m.text, properties=m.properties)
    add("secrets", "get", m.ns_name)
    add("secrets", "require", m.ns_name)
    add("secrets", "describe", m.ns_name)
    add("secrets", "page", lambda: (m.namespace(),), limit=m.limit)
    add("secrets", "delete", m.ns_name)
    add("secrets", "rewrap", lambda: (m.limit(),))

    add("owners", "set", lambda: (m.entity(), m.name(), m.one(None, b"tab")))
    add("owners", "principal", lambda: (m.entity(),))
    add("owners", "keytab", lambda: (m.entity(),))
    add("owners", "effective", lambda: (m.entity(),))
    add("owners", "delete", lambda: (m.entity(),))

    add("credentials", "put_profile", m.ns_name, provisioner=lambda: "p", data=lambda: b"data", description=m.text)
    add("credentials", "put_identity", m.ns_name, profile=lambda: "/".join(m.ns_name()), data=lambda: b"more")
    for what in ("profile", "identity"):
        for method in (f"get_{what}", f"{what}_data", f"delete_{what}"):
            add("credentials", method, m.ns_name)
    add("credentials", "page_identities", lambda: (m.namespace(),), limit=m.limit)

    add("provisioning", "put", m.task_key, state=m.task_state, task=m.document, attempts=lambda: m.one(0, 7))
    add("provisioning", "get", m.task_key)
    add("provisioning", "move", lambda: (m.task_key(), m.task_state(), m.task_state()), attempts=lambda: 2)
    add("provisioning", "unfinished", lambda: ())
    add("provisioning", "delete", m.task_key)

    add("remote_runtimes", "write", m.run_ref, options=m.document)
    add("remote_runtimes", "get", m.run_ref)
    add("remote_runtimes", "page", lambda: m.one((), (m.run_ref(),)), limit=m.limit)
    add("remote_runtimes", "delete", m.run_ref)

    add("operations", "create", m.operation, kind=lambda: m.one("push", "pull"), details=m.document)
    add("operations", "get", m.operation)
    for _ in range(2):
        add("operations", "move", lambda: (*m.operation(), m.one(*OperationStatus)), error=m.document)
    add("operations", "page", lambda: (m.namespace(), m.one(None, "push"), m.one(None, *OperationStatus)))
    add("operations", "count_open", lambda: ())

    add("lineage", "access", lambda: (m.run_ref(), m.dataset(), m.one(*Access), m.at()))
    add("lineage", "of_dataset", lambda: (m.dataset(), m.at(), m.at()))
    add("lineage", "of_program", lambda: (m.ref(), m.at(), m.at()))
    add("lineage", "of_run", lambda: (m.run_ref(),))
    add("lineage", "expire", lambda: (m.day(),))

    for _ in range(2):
        add("artifacts", "add", lambda: (*m.ns_name(), m.version_number()), more=m.brought)
    add("artifacts", "get", lambda: (*m.ns_name(), m.version_number()))
    add("artifacts", "versions", lambda: (*m.ns_name(), m.one(None, "1.9.0"), m.one(None, "2"), m.one(True, False)))
    add("artifacts", "latest", m.ns_name)
    add("artifacts", "page", lambda: (m.namespace(),), limit=m.limit)
    add("artifacts", "plugins_of", lambda: (*m.ns_name(), m.version_number(), m.one(None, "sink"), m.one(None, "a")))
    add("artifacts", "applications_of", m.ns_name)
    add("artifacts", "set_properties", lambda: (*m.ns_name(), m.version_number(), m.texts()))
    add("artifacts", "delete", lambda: (*m.ns_name(), m.version_number()))

    for _ in range(2):
        add("field_lineage", "add", lambda: (m.run_ref(), m.field_lineage()))
    add("field_lineage", "fields", lambda: (m.dataset(), m.at(), m.at()))
    add("field_lineage", "incoming", lambda: (m.endpoint_field(), m.at(), m.at()))
    add("field_lineage", "outgoing", lambda: (m.endpoint_field(), m.at(), m.at()))
    add("field_lineage", "operations", lambda: (m.one(*Direction), m.dataset(), m.at(), m.at()))
    add("field_lineage", "expire", lambda: (m.day(),))

    add("usage", "register", lambda: (m.ref(), m.dataset()))
    add("usage", "unregister", lambda: (m.ref(),))
    add("usage", "datasets_of", lambda: (m.ref(),))
    add("usage", "programs_of", lambda: (m.dataset(),))

    add("metadata", "set", lambda: (*m.described(), m.texts(), m.tags()), generation=lambda: m.one(None, None, 0, 1))
    add("metadata", "add_tags", lambda: (*m.described(), m.tags()))
    add("metadata", "remove", m.described)
    add("metadata", "get", m.described)
    add("metadata", "search", lambda: (m.one("r", "GRÖ", "a", "größe", ""), m.one(None, *MetadataScope)))

    add("dataset_catalog", "add_module", m.ns_name, definition=m.document)
    add("dataset_catalog", "add_kind", m.ns_name, module=m.name, definition=m.document)
    add("dataset_catalog", "add_instance", m.ns_name, kind=m.name, definition=m.document)
    for what in ("module", "kind", "instance"):
        add("dataset_catalog", f"get_{what}", m.ns_name)
        add("dataset_catalog", f"page_{what}", lambda: (m.namespace(),), limit=m.limit)
        add("dataset_catalog", f"delete_{what}", m.ns_name)

    add("peers", "add", lambda: (m.name(),), uri=m.text, metadata=m.document)
    add("peers", "get", lambda: (m.name(),))
    add("peers", "decide", lambda: (m.name(), m.one(*PeerState)))
    add("peers", "seen", lambda: (m.name(), m.at()))
    add("peers", "page", lambda: (), limit=m.limit)
    add("peers", "delete", lambda: (m.name(),))

    add("capabilities", "begin", lambda: (m.name(), m.one("enable", "update"), m.document()))
    add("capabilities", "finish", lambda: (m.name(), m.one("ENABLED", "DISABLED")))
    add("capabilities", "get", lambda: (m.name(),))
    add("capabilities", "operation", lambda: (m.name(),))
    add("capabilities", "enabled", lambda: (list(NAMES),))

    add("source_control", "set_repository", lambda: (m.namespace(),), config=m.document)
    add("source_control", "repository", lambda: (m.namespace(),))
    add("source_control", "delete_repository", lambda: (m.namespace(),))
    add("source_control", "write", m.synced, hash=m.text, modified=m.at, synced=lambda: m.one(True, False))
    add("source_control", "get", m.synced)
    add("source_control", "mark_unsynced", lambda: (m.namespace(),))
    add("source_control", "page", lambda: (m.namespace(), m.one(*Side), m.one(None, True, False)), limit=m.limit)

    add("log_files", "add", lambda: (m.context(), m.at(), m.at()), file=m.text)
    add("log_files", "files", lambda: (m.context(), m.at(), m.at()))
    add("log_files", "expired", lambda: (m.day(),))
    add("log_files", "forget", lambda: (Read("log_files", "expired", (m.day(),)),))
    add("log_files", "set_checkpoint", lambda: (m.name(), m.one(0, 1), m.document()))
    add("log_files", "checkpoint", lambda: (m.name(), m.one(0, 1)))

    add("external_positions", "put", lambda: (m.name(), "s", m.text()), expected=lambda: m.one(None, "a"))
    add("external_positions", "get", lambda: (m.name(), "s"))
    return table


class RandomCalls:
    """Random calls of all datasets, with names that are few, so that calls meet.

    Parameters
    ----------
    chance : random.Random
        Decides everything.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._maker = Maker(chance)
        self._makers = _makers(self._maker)
        more = ["applications", *["runs"] * 5, "heartbeats", *["schedules"] * 2, *["schedule_jobs"] * 2]
        self._datasets = [*self._makers, *more]

    def first(self) -> list[Call]:
        """Return calls that make what many datasets need: namespaces and applications."""
        applications = [
            Call("applications", "deploy", (namespace, application, "1", {}), {})
            for namespace in ("default", "sales")
            for application in self._maker.applications
        ]
        return [Call("namespaces", "create", ("sales",), {}), *applications]

    def next(self) -> Call:
        """Return a call of any dataset; of those with many states, more often."""
        return self._chance.choice(self._makers[self._chance.choice(self._datasets)])()
