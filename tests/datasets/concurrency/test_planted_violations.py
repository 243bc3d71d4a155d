"""Each invariant can fail: one violation is planted into good rows, and reported."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from structable.datasets import (
    DatasetRef,
    FieldLineage,
    FieldOperation,
    MetadataScope,
    OperationStatus,
    PeerState,
    ProfileStatus,
    ProgramRef,
    ProvidedClass,
    ProvidedPlugin,
    Record,
    RecordTable,
    RunStatus,
    ScheduleStatus,
    Session,
    version_order,
)
from structable.datasets.tables.applications import (
    APPLICATION_HISTORY,
    APPLICATION_STATE,
    APPLICATIONS,
    ApplicationEdit,
    ApplicationState,
)
from structable.datasets.tables.artifacts import APPLICATION_CLASSES, ARTIFACTS
from structable.datasets.tables.catalog import DATASET_INSTANCES, METADATA, METADATA_TERMS, DatasetInstance
from structable.datasets.tables.coordination import LEASES
from structable.datasets.tables.field_lineage import LINEAGE_OPERATIONS
from structable.datasets.tables.jobs import JOB_KEYS, JobKey
from structable.datasets.tables.lineage import LINEAGE_BY_PROGRAM, USAGE_BY_DATASET
from structable.datasets.tables.namespaces import CONFIGS, NAMESPACES, PROFILE_ASSIGNMENTS, Config, ProfileAssignment
from structable.datasets.tables.platform import CAPABILITY_OPERATIONS, EXTERNAL_POSITIONS, OPERATIONS, PEERS
from structable.datasets.tables.runs import PROVISIONING_TASKS, RUN_COUNTS, RUNS, WORKFLOW_NODES, WORKFLOW_STATISTICS
from structable.datasets.tables.schedules import (
    SCHEDULE_JOBS,
    SCHEDULE_TRIGGERS,
    ScheduleJobRow,
    ScheduleJobState,
    ScheduleTrigger,
)
from structable.datasets.tables.secrets import CREDENTIAL_PROFILES, OWNERS, SECRET_VALUES

from .conftest import Place
from .support.application_workloads import RUN_IDS, RUNNING, deploy
from .support.invariants import INVARIANTS, violations
from .support.ledger import note
from .support.rows import Rows
from .support.schedule_workloads import dropped_trigger
from .support.workloads import open_system

NS = "default"
NOW = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
BATCH = ProgramRef(NS, RUNNING, "service", "p")
RUN = RUN_IDS[0]
Plant = Callable[[Session], object]


def change(s: Session, table: RecordTable[Any], key: tuple[object, ...], **changes: object) -> None:
    table.named(f"sys_{table.name}")(s.tx).change(key, **changes)


def put(s: Session, table: RecordTable[Any], record: Record) -> None:
    table.named(f"sys_{table.name}")(s.tx).put(record)


def delete(s: Session, table: RecordTable[Any], *key: object) -> None:
    table.named(f"sys_{table.name}")(s.tx).delete(*key)


def application(s: Session) -> None:
    deploy(s, NS, RUNNING, "1")


def run(s: Session) -> None:
    application(s)
    made = s.runs.provision(BATCH, RUN, version="1", source=1, arguments={"tag": "t"})
    state = [made.after.status, made.after.cluster] if hasattr(made, "after") else None
    note(s.tx, "run moved", "t", before=None, after=state)
    note(s.tx, "provisioned", "/".join((*BATCH, "1")))


def schedule(s: Session) -> None:
    application(s)
    s.schedules.add(NS, RUNNING, "s", {"tag": "t"}, triggers=["cron", dropped_trigger(7)])


def member_without_namespace(s: Session) -> None:
    put(s, CONFIGS, Config(namespace="gone", kind="k", name="n", updated=NOW))


def namespace_with_a_lost_change(s: Session) -> None:
    s.namespaces.create("n0", description="t")
    for _ in range(2):
        note(s.tx, "namespace changed", "t", number=s.namespaces.change("n0").generation)
    change(s, NAMESPACES, ("n0",), generation=2)


def head_of_a_deleted_version(s: Session) -> None:
    application(s)
    change(s, APPLICATIONS, (NS, RUNNING), latest="2")


def state_without_application(s: Session) -> None:
    put(s, APPLICATION_STATE, ApplicationState(namespace=NS, application="gone", state_key="x", value=b""))


def history_of_a_deleted_version(s: Session) -> None:
    application(s)
    put(s, APPLICATION_HISTORY, ApplicationEdit(namespace=NS, application=RUNNING, ordinal=2, version="2"))


def ordinal_given_twice(s: Session) -> None:
    application(s)
    tag = s.applications.versions(NS, RUNNING)[0].artifact
    assert isinstance(tag, dict)
    note(s.tx, "deployed", tag["tag"], ordinal=1, version="2")


def rest_of_a_removed_application(s: Session) -> None:
    s.namespaces.create("c0")
    s.preferences.put(("c0", "a0"), {})


def active_run_of_a_deleted_version(s: Session) -> None:
    run(s)
    change(s, RUNS, (*BATCH, RUN), version="2")


def active_run_that_ended(s: Session) -> None:
    run(s)
    change(s, RUNS, (*BATCH, RUN), status=RunStatus.KILLED)


def run_that_was_moved_by_nobody(s: Session) -> None:
    run(s)
    s.runs.starting(BATCH, RUN, source=2)


def run_counted_twice(s: Session) -> None:
    run(s)
    RUN_COUNTS.named("sys_run_counts")(s.tx).increment((*BATCH, "1", 0), "runs")


def assignment_of_a_deleted_profile(s: Session) -> None:
    put(s, PROFILE_ASSIGNMENTS, ProfileAssignment(namespace=NS, profile="gone", entity="e", created=NOW))


def assignment_of_a_disabled_profile(s: Session) -> None:
    s.profiles.create(NS, "f0", provisioner={"tag": "t"})
    s.profiles.set_status(NS, "f0", ProfileStatus.DISABLED)
    note(s.tx, "disabled", "t", entities=["e0"])
    put(s, PROFILE_ASSIGNMENTS, ProfileAssignment(namespace=NS, profile="f0", entity="e1", created=NOW))


def trigger_without_schedule(s: Session) -> None:
    put(
        s,
        SCHEDULE_TRIGGERS,
        ScheduleTrigger(namespace=NS, application=RUNNING, schedule="gone", sequence=0, trigger="cron"),
    )


def trigger_of_a_dropped_program(s: Session) -> None:
    schedule(s)
    note(s.tx, "dropped", "7")


def schedule_with_a_lost_change(s: Session) -> None:
    schedule(s)
    s.schedules.update(NS, RUNNING, "s", {"tag": "t"}, triggers=[])


def two_waiting_jobs(s: Session) -> None:
    waiting(s)
    found = next(job for partition in range(16) for job in s.schedule_jobs.jobs(partition))
    put(
        s,
        SCHEDULE_JOBS,
        ScheduleJobRow(
            partition=found.partition,
            schedule=found.schedule,
            generation=1,
            part="JOB",
            state=ScheduleJobState.PENDING_TRIGGER,
            notifications=[],
            schedule_generation=1,
            created=NOW,
            at=NOW,
        ),
    )


def waiting(s: Session) -> None:
    schedule(s)
    s.schedules.set_status(NS, RUNNING, "s", ScheduleStatus.SCHEDULED)
    found = s.schedules.get(NS, RUNNING, "s")
    assert found is not None
    s.schedule_jobs.notify(found, "one")


def job_in_another_partition(s: Session) -> None:
    put(s, SCHEDULE_JOBS, ScheduleJobRow(partition=14, schedule="n/a/s", generation=0, part="DELETE"))
    put(s, SCHEDULE_JOBS, ScheduleJobRow(partition=15, schedule="n/a/s", generation=0, part="DELETE"))


def notification_that_was_not_noted(s: Session) -> None:
    waiting(s)


def preferences_with_a_lost_change(s: Session) -> None:
    note(s.tx, "preferred", repr((NS,)), seq=s.preferences.put((NS,), {}))
    s.preferences.delete((NS,))


def secret(s: Session) -> None:
    version = s.secrets.put(NS, "s0", b"value", properties={"tag": "t"})
    note(s.tx, "secret put", "t", number=version, value="value")


def secret_without_value(s: Session) -> None:
    secret(s)
    delete(s, SECRET_VALUES, NS, "s0", 1)


def secret_that_was_tampered_with(s: Session) -> None:
    secret(s)
    change(s, SECRET_VALUES, (NS, "s0", 1), data=b"x" * 30)


def identity_of_a_deleted_profile(s: Session) -> None:
    s.credentials.put_profile(NS, "c0", provisioner="p", data=b"")
    s.credentials.put_identity(NS, "i0", profile=f"{NS}/c0", data=b"")
    delete(s, CREDENTIAL_PROFILES, NS, "c0")


def operation_that_was_moved_by_nobody(s: Session) -> None:
    made = s.operations.create(NS, "o1", kind="k")
    note(s.tx, "operation moved", "o1", before=None, after=made.status)
    change(s, OPERATIONS, (NS, "o1"), status=OperationStatus.RUNNING)


def task_that_was_moved_by_nobody(s: Session) -> None:
    key = (*BATCH, RUN, "k0")
    s.provisioning.put(*key, state="A")
    note(s.tx, "task moved", "k0", before=None, after="A")
    change(s, PROVISIONING_TASKS, key, state="B")


def node_of_an_earlier_message(s: Session) -> None:
    s.workflows.node(BATCH, RUN, "n0", "x", source=2)
    note(s.tx, "node changed", "n0", source=2)
    change(s, WORKFLOW_NODES, (*BATCH, RUN, "n0"), source=1)


def statistics_of_a_lost_run(s: Session) -> None:
    s.workflow_statistics.record(NS, "flows", "1", "w", NOW, RUN, seconds=1)
    note(s.tx, "recorded", f"1/{RUN}", seconds=1)
    delete(s, WORKFLOW_STATISTICS, NS, "flows", "1", "w", NOW, RUN)


def lineage_in_one_direction(s: Session) -> None:
    s.lineage.access(BATCH.run(RUN), DatasetRef(NS, "d"))
    delete(s, LINEAGE_BY_PROGRAM, *BATCH, RUN, NS, "d", "UNKNOWN")


def usage_in_one_direction(s: Session) -> None:
    s.usage.register(BATCH, DatasetRef(NS, "d"))
    delete(s, USAGE_BY_DATASET, NS, "d", *BATCH)


def metadata(s: Session) -> None:
    s.metadata.set("e0", MetadataScope.USER, {"tag": "t"}, ["red"])
    note(s.tx, "metadata changed", "t", number=1)


def metadata_without_a_word(s: Session) -> None:
    metadata(s)
    delete(s, METADATA_TERMS, "red", "e0", MetadataScope.USER)


def metadata_with_a_lost_change(s: Session) -> None:
    metadata(s)
    change(s, METADATA, ("e0", MetadataScope.USER), generation=2)


def lost_tag(s: Session) -> None:
    note(s.tx, "tagged", "grown", tag="t")


def dataset_of_a_deleted_kind(s: Session) -> None:
    put(s, DATASET_INSTANCES, DatasetInstance(namespace=NS, dataset="d", kind="gone"))


def position_consumed_twice(s: Session) -> None:
    s.external_positions.put("t0", "subscriber", "1")
    for _ in range(2):
        note(s.tx, "consumed position", "t0", position="1")
    change(s, EXTERNAL_POSITIONS, ("t0", "subscriber"), position="1")


def operation_of_a_capability_lost(s: Session) -> None:
    s.capabilities.begin("c0", "ENABLE")
    note(s.tx, "capability", "c0", change=1)
    delete(s, CAPABILITY_OPERATIONS, "c0")


def owner_set_by_nobody(s: Session) -> None:
    s.owners.set("n0/a", "somebody")


def owner_lost(s: Session) -> None:
    owner_set_by_nobody(s)
    note(s.tx, "owner", "n0/a", change=1)
    delete(s, OWNERS, "n0/a")


def peer(s: Session) -> None:
    s.peers.add("p0", uri="u", metadata={"tag": "t"})


def peer_decided_otherwise(s: Session) -> None:
    peer(s)
    note(s.tx, "decided", "t", state=PeerState.ACCEPTED)
    change(s, PEERS, ("p0",), state=PeerState.REJECTED)


def peer_seen_earlier(s: Session) -> None:
    peer(s)
    for day in (1, 2):
        note(s.tx, "seen", "t", at=(NOW + dt.timedelta(days=day)).isoformat())
    s.peers.seen("p0", NOW + dt.timedelta(days=1))


def artifact(s: Session) -> None:
    s.artifacts.add(NS, "a", "1", plugins=[ProvidedPlugin("t", "p")], application_classes=[ProvidedClass("C")])


def plugin_of_a_deleted_artifact(s: Session) -> None:
    artifact(s)
    delete(s, ARTIFACTS, NS, "a", version_order("1"))


def class_lost(s: Session) -> None:
    artifact(s)
    delete(s, APPLICATION_CLASSES, NS, "C", NS, "a", version_order("1"))


def field_operations_lost(s: Session) -> None:
    operations = [FieldOperation("read", outputs=("f",), source=DatasetRef(NS, "d"))]
    checksum = s.field_lineage.add(BATCH.run(RUN), FieldLineage([DatasetRef(NS, "d")], [], operations))
    delete(s, LINEAGE_OPERATIONS, checksum)


def lease_written_by_two_at_once(s: Session) -> None:
    for token in (1, 2):
        note(s.tx, "leased", "job", token=token, owner=str(token), number=0)


def token_that_went_back(s: Session) -> None:
    note(s.tx, "leased", "job", token=2, owner="x", number=0)
    delete(s, LEASES, "job")


def too_many_permits(s: Session) -> None:
    note(s.tx, "held", "pool", number=4, slot=0)


def job_that_nobody_enqueued(s: Session) -> None:
    s.jobs.enqueue("q", None)


def work_of_an_open_job(s: Session) -> None:
    note(s.tx, "worked", s.jobs.enqueue("q", None).id, claims=1)


def key_without_a_job(s: Session) -> None:
    put(s, JOB_KEYS, JobKey(queue="q", unique_key="k", id=RUN))


def message_received_twice(s: Session) -> None:
    note(s.tx, "published", "m")
    for _ in range(2):
        note(s.tx, "received", "g/m")


PLANTS: dict[str, tuple[Plant, ...]] = {
    "members_have_their_namespace": (member_without_namespace,),
    "namespaces_count_their_changes": (namespace_with_a_lost_change,),
    "applications_have_their_latest_version": (head_of_a_deleted_version,),
    "versions_and_state_have_their_application": (state_without_application,),
    "history_is_that_of_the_versions": (history_of_a_deleted_version,),
    "ordinals_count_the_deployments": (ordinal_given_twice,),
    "parts_of_removed_applications_are_gone": (rest_of_a_removed_application,),
    "active_runs_have_their_version": (active_run_of_a_deleted_version,),
    "runs_are_active_until_they_end": (active_run_that_ended,),
    "runs_went_where_they_were_moved": (run_that_was_moved_by_nobody,),
    "run_counts_are_the_provisioned_runs": (run_counted_twice,),
    "runs_and_assignments_have_their_profile": (assignment_of_a_deleted_profile,),
    "disabled_profiles_get_no_assignment": (assignment_of_a_disabled_profile,),
    "triggers_have_their_schedule": (trigger_without_schedule,),
    "dropped_programs_trigger_nothing": (trigger_of_a_dropped_program,),
    "schedules_count_their_changes": (schedule_with_a_lost_change,),
    "one_job_of_a_schedule_waits": (two_waiting_jobs,),
    "schedule_jobs_stand_in_their_partition": (job_in_another_partition,),
    "no_notification_is_lost": (notification_that_was_not_noted,),
    "preferences_count_their_changes": (preferences_with_a_lost_change,),
    "secrets_have_the_value_of_their_version": (secret_without_value,),
    "secrets_open_to_what_was_put": (secret_that_was_tampered_with,),
    "identities_have_their_credential_profile": (identity_of_a_deleted_profile,),
    "operations_went_where_they_were_moved": (operation_that_was_moved_by_nobody,),
    "tasks_went_where_they_were_moved": (task_that_was_moved_by_nobody,),
    "workflow_nodes_have_the_latest_message": (node_of_an_earlier_message,),
    "workflow_statistics_are_those_recorded": (statistics_of_a_lost_run,),
    "lineage_is_the_same_in_both_directions": (lineage_in_one_direction,),
    "usage_is_the_same_in_both_directions": (usage_in_one_direction,),
    "metadata_is_found_by_its_words": (metadata_without_a_word,),
    "metadata_counts_its_changes": (metadata_with_a_lost_change,),
    "no_added_tag_is_lost": (lost_tag,),
    "datasets_have_their_kind_and_kinds_their_module": (dataset_of_a_deleted_kind,),
    "each_position_is_consumed_once": (position_consumed_twice,),
    "one_operation_of_a_capability_is_open": (operation_of_a_capability_lost,),
    "owners_are_those_that_were_set": (owner_set_by_nobody, owner_lost),
    "peers_are_decided_once": (peer_decided_otherwise,),
    "peers_were_last_seen_at_the_latest_time": (peer_seen_earlier,),
    "plugins_are_those_of_the_artifacts": (plugin_of_a_deleted_artifact,),
    "application_classes_are_those_of_the_artifacts": (class_lost,),
    "field_operations_are_those_of_the_endpoints": (field_operations_lost,),
    "owners_of_a_lease_write_one_after_the_other": (lease_written_by_two_at_once,),
    "tokens_of_a_lease_grow": (token_that_went_back,),
    "permits_are_held_up_to_their_limit": (too_many_permits,),
    "each_job_is_in_one_state": (job_that_nobody_enqueued,),
    "work_is_done_exactly_once": (work_of_an_open_job,),
    "a_unique_key_has_one_open_job": (key_without_a_job,),
    "messages_are_received_once": (message_received_twice,),
}


def test_each_invariant_has_a_plant() -> None:
    assert PLANTS.keys() == INVARIANTS.keys()


@pytest.mark.parametrize("shared_place", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("name", "plant"),
    [pytest.param(name, plant, id=plant.__name__) for name, plants in PLANTS.items() for plant in plants],
)
def test_planted_violation_is_reported(shared_place: Place, name: str, plant: Plant) -> None:
    with open_system(shared_place.storage, "secrets").transaction() as s:
        plant(s)
        assert INVARIANTS[name](Rows(s.tx)) != []
        s.tx.rollback()


@pytest.mark.parametrize("shared_place", ["memory"], indirect=True)
def test_good_rows_violate_nothing(shared_place: Place) -> None:
    with open_system(shared_place.storage, "secrets") as system:
        assert violations(system) == []
        with system.transaction() as s:
            for make in (run, secret, metadata, artifact):
                make(s)
            rows = Rows(s.tx)
            assert [problem for invariant in INVARIANTS.values() for problem in invariant(rows)] == []
            s.tx.rollback()
