"""Invariants of namespaces, applications, runs, profiles and schedules."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any, Final

from structable.datasets import (
    ApplicationVersion,
    ClusterStatus,
    ProfileStatus,
    RecordTable,
    RunStatus,
    ScheduleJobState,
)
from structable.datasets.tables.applications import (
    APPLICATION_HISTORY,
    APPLICATION_STATE,
    APPLICATION_VERSIONS,
    APPLICATIONS,
)
from structable.datasets.tables.artifacts import ARTIFACTS, PLUGINS
from structable.datasets.tables.catalog import DATASET_INSTANCES, DATASET_KINDS, DATASET_MODULES
from structable.datasets.tables.namespaces import CONFIGS, NAMESPACES, PREFERENCES, PROFILE_ASSIGNMENTS, PROFILES
from structable.datasets.tables.platform import OPERATIONS, REPOSITORIES, SYNC_STATES
from structable.datasets.tables.runs import RUN_COUNTS, RUNS
from structable.datasets.tables.schedules import SCHEDULE_JOBS, SCHEDULE_TRIGGERS, SCHEDULES
from structable.datasets.tables.secrets import CREDENTIAL_IDENTITIES, CREDENTIAL_PROFILES, SECRETS

from .application_workloads import RUNNING, run_tag
from .cascade_workloads import CASCADED
from .rows import Rows, path_problems
from .schedule_workloads import dropped_trigger

_MEMBERS: Final[tuple[RecordTable[Any], ...]] = (
    APPLICATIONS,
    PREFERENCES,
    CONFIGS,
    SCHEDULES,
    PROFILES,
    SECRETS,
    CREDENTIAL_PROFILES,
    CREDENTIAL_IDENTITIES,
    OPERATIONS,
    DATASET_MODULES,
    DATASET_KINDS,
    DATASET_INSTANCES,
    REPOSITORIES,
    SYNC_STATES,
    ARTIFACTS,
    PLUGINS,
)
_PARTS: Final[tuple[RecordTable[Any], ...]] = (
    APPLICATION_VERSIONS,
    APPLICATION_HISTORY,
    APPLICATION_STATE,
    RUNS,
    RUN_COUNTS,
    PREFERENCES,
    SCHEDULES,
)
_END_STATUSES = {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.KILLED, RunStatus.REJECTED}
_END_CLUSTERS = {ClusterStatus.DEPROVISIONED, ClusterStatus.ORPHANED}


def members_have_their_namespace(rows: Rows) -> list[str]:
    present = {one.namespace for one in rows.of(NAMESPACES)} | {""}
    return [f"{table.name}: {one}" for table in _MEMBERS for one in rows.of(table) if one.namespace not in present]


def namespaces_count_their_changes(rows: Rows) -> list[str]:
    changed = rows.noted("namespace changed")
    return [
        f"{one}: changed to generations {numbers}"
        for one in rows.of(NAMESPACES)
        if (numbers := sorted(_numbers(changed.get(str(one.description), [])))) != list(range(2, one.generation + 1))
    ]


def applications_have_their_latest_version(rows: Rows) -> list[str]:
    present = {(one.namespace, one.application, one.version) for one in rows.of(APPLICATION_VERSIONS)}
    return [str(one) for one in rows.of(APPLICATIONS) if (one.namespace, one.application, one.latest) not in present]


def versions_and_state_have_their_application(rows: Rows) -> list[str]:
    heads = {(one.namespace, one.application) for one in rows.of(APPLICATIONS)}
    tables: tuple[RecordTable[Any], ...] = (APPLICATION_VERSIONS, APPLICATION_STATE)
    return [str(one) for table in tables for one in rows.of(table) if (one.namespace, one.application) not in heads]


def history_is_that_of_the_versions(rows: Rows) -> list[str]:
    versions = {(one.namespace, one.application, one.ordinal, one.version) for one in rows.of(APPLICATION_VERSIONS)}
    history = {(one.namespace, one.application, one.ordinal, one.version) for one in rows.of(APPLICATION_HISTORY)}
    return [f"only one of both: {one}" for one in versions ^ history]


def ordinals_count_the_deployments(rows: Rows) -> list[str]:
    heads = {(one.namespace, one.application): one for one in rows.of(APPLICATIONS)}
    deployed = rows.noted("deployed")
    problems = []
    for version in rows.of(APPLICATION_VERSIONS):
        head = heads.get((version.namespace, version.application))
        ordinals = sorted(_numbers(deployed.get(_tag(version), []), "ordinal"))
        if head is not None and ordinals != list(range(1, head.edits + 1)):
            problems.append(f"{head}: deployments with the ordinals {ordinals}")
    return problems


def parts_of_removed_applications_are_gone(rows: Rows) -> list[str]:
    """Check namespaces of which `remove_application` alone removes applications."""
    heads = {(one.namespace, one.application) for one in rows.of(APPLICATIONS)}
    return [
        f"{table.name}: {one}"
        for table in _PARTS
        for one in rows.of(table)
        if one.namespace in CASCADED and one.application and (one.namespace, one.application) not in heads
    ]


def active_runs_have_their_version(rows: Rows) -> list[str]:
    present = {(one.namespace, one.application, one.version) for one in rows.of(APPLICATION_VERSIONS)}
    return [
        str(one) for one in rows.of(RUNS) if one.active and (one.namespace, one.application, one.version) not in present
    ]


def runs_are_active_until_they_end(rows: Rows) -> list[str]:
    return [
        str(one)
        for one in rows.of(RUNS)
        if (one.active is True) != (one.status not in _END_STATUSES)
        or (one.cluster_open is True) != (one.cluster is not None and one.cluster not in _END_CLUSTERS)
        or one.ended_on != (None if one.stopped is None else one.stopped.date())
        or (one.stopped is None) != (one.status not in _END_STATUSES)
    ]


def runs_went_where_they_were_moved(rows: Rows) -> list[str]:
    """Check that no move was lost: each begins where another one ended; deleted runs had ended."""
    runs = {run_tag(one): one for one in rows.of(RUNS) if one.application == RUNNING}
    problems = []
    for tag, moves in rows.noted("run moved").items():
        steps = [(_pair(one["before"]), _pair(one["after"])) for one in moves]
        last = Counter(after[0] for _, after in steps) - Counter(before[0] for before, _ in steps)
        status = runs[tag].status if tag in runs else next((one for one in last if one in _END_STATUSES), "an end")
        cluster = runs[tag].cluster if tag in runs else None
        problems += [f"status of {tag}: {one}" for one in path_problems([(a[0], b[0]) for a, b in steps], str(status))]
        if tag in runs and cluster is not None:
            problems += [
                f"cluster of {tag}: {one}" for one in path_problems([(a[1], b[1]) for a, b in steps], str(cluster))
            ]
    return problems + [
        f"{run} was never provisioned" for tag, run in runs.items() if tag not in rows.noted("run moved")
    ]


def run_counts_are_the_provisioned_runs(rows: Rows) -> list[str]:
    counted: Counter[str] = Counter()
    for one in rows.of(RUN_COUNTS):
        if one.application == RUNNING:
            counted["/".join((one.namespace, one.application, one.program_type, one.program, one.version))] += one.runs
    noted = {subject: len(facts) for subject, facts in rows.noted("provisioned").items()}
    subjects = noted.keys() | counted.keys()
    return [
        f"{one}: {noted.get(one, 0)} provisioned, {counted[one]} counted"
        for one in subjects
        if noted.get(one, 0) != counted[one]
    ]


def runs_and_assignments_have_their_profile(rows: Rows) -> list[str]:
    profiles = {(one.namespace, one.profile) for one in rows.of(PROFILES)}
    assigned = [one for one in rows.of(PROFILE_ASSIGNMENTS) if (one.namespace, one.profile) not in profiles]
    used = [one for one in rows.of(RUNS) if one.active and one.profile and (one.namespace, one.profile) not in profiles]
    return [*map(str, assigned), *map(str, used)]


def disabled_profiles_get_no_assignment(rows: Rows) -> list[str]:
    disabled = rows.noted("disabled")
    problems = []
    for profile in rows.of(PROFILES):
        tag = profile.provisioner["tag"] if isinstance(profile.provisioner, dict) else None
        if profile.status is not ProfileStatus.DISABLED or tag not in disabled:
            continue
        before = disabled[tag][0]["entities"]
        assert isinstance(before, list)
        problems += [
            f"{one} was not there when the profile was disabled, with {before}"
            for one in rows.of(PROFILE_ASSIGNMENTS)
            if (one.namespace, one.profile) == (profile.namespace, profile.profile) and one.entity not in before
        ]
    return problems


def triggers_have_their_schedule(rows: Rows) -> list[str]:
    schedules = {(one.namespace, one.application, one.schedule) for one in rows.of(SCHEDULES)}
    sequences: dict[tuple[str, str, str], list[int]] = {}
    for one in rows.of(SCHEDULE_TRIGGERS):
        sequences.setdefault((one.namespace, one.application, one.schedule), []).append(one.sequence)
    problems = [f"triggers of {key}, which is absent" for key in sequences.keys() - schedules]
    problems += [f"{key}: {found}" for key, found in sequences.items() if sorted(found) != list(range(len(found)))]
    return problems


def dropped_programs_trigger_nothing(rows: Rows) -> list[str]:
    dropped = {dropped_trigger(int(number)) for number in rows.noted("dropped")}
    return [f"{one} was dropped" for one in rows.of(SCHEDULE_TRIGGERS) if one.trigger in dropped]


def schedules_count_their_changes(rows: Rows) -> list[str]:
    changed = rows.noted("schedule changed")
    problems = []
    for one in rows.of(SCHEDULES):
        tag = one.definition.get("tag") if isinstance(one.definition, dict) else None
        numbers = sorted(_numbers(changed.get(str(tag), [])))
        if numbers != list(range(2, one.generation + 1)):
            problems.append(f"{one}: changed to generations {numbers}")
    return problems


def one_job_of_a_schedule_waits(rows: Rows) -> list[str]:
    marked = {(one.schedule, one.generation) for one in rows.of(SCHEDULE_JOBS) if one.part != "JOB"}
    waiting = Counter(
        one.schedule
        for one in rows.of(SCHEDULE_JOBS)
        if one.state is ScheduleJobState.PENDING_TRIGGER and (one.schedule, one.generation) not in marked
    )
    return [f"{schedule}: {count} jobs wait" for schedule, count in waiting.items() if count > 1]


def schedule_jobs_stand_in_their_partition(rows: Rows) -> list[str]:
    return [str(one) for one in rows.of(SCHEDULE_JOBS) if one.partition != zlib.crc32(one.schedule.encode()) % 16]


def no_notification_is_lost(rows: Rows) -> list[str]:
    found: Counter[tuple[str, object]] = Counter()
    for job in rows.of(SCHEDULE_JOBS):
        if isinstance(job.notifications, list):
            found.update((job.schedule, one) for one in job.notifications)
    for schedule, consumed in rows.noted("consumed").items():
        for facts in consumed:
            assert isinstance(facts["notifications"], list)
            found.update((schedule, one) for one in facts["notifications"])
    noted = Counter(
        (schedule, one["notification"]) for schedule, facts in rows.noted("notified").items() for one in facts
    )
    return [
        f"{one}: noted {noted[one]} times, found {found[one]} times"
        for one in noted.keys() | found.keys()
        if noted[one] != found[one]
    ]


def _numbers(facts: list[dict[str, object]], name: str = "number") -> list[int]:
    return [number for one in facts if isinstance(number := one[name], int)]


def _tag(version: ApplicationVersion) -> str:
    return str(version.artifact["tag"]) if isinstance(version.artifact, dict) else ""


def _pair(states: object) -> tuple[object, object]:
    if states is None:
        return (None, None)
    assert isinstance(states, list)
    return (states[0], states[1])


INVARIANTS = (
    members_have_their_namespace,
    namespaces_count_their_changes,
    applications_have_their_latest_version,
    versions_and_state_have_their_application,
    history_is_that_of_the_versions,
    ordinals_count_the_deployments,
    parts_of_removed_applications_are_gone,
    active_runs_have_their_version,
    runs_are_active_until_they_end,
    runs_went_where_they_were_moved,
    run_counts_are_the_provisioned_runs,
    runs_and_assignments_have_their_profile,
    disabled_profiles_get_no_assignment,
    triggers_have_their_schedule,
    dropped_programs_trigger_nothing,
    schedules_count_their_changes,
    one_job_of_a_schedule_waits,
    schedule_jobs_stand_in_their_partition,
    no_notification_is_lost,
)
