"""Invariants of preferences, sealed values, operations, lineage, metadata, and what else stands alone."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final

from structable.datasets import OperationStatus, PeerState, RecordTable, SecretError
from structable.datasets.secrets.envelope import Sealed, open_sealed
from structable.datasets.tables.catalog import (
    DATASET_INSTANCES,
    DATASET_KINDS,
    DATASET_MODULES,
    METADATA,
    METADATA_TERMS,
)
from structable.datasets.tables.lineage import (
    LINEAGE_BY_DATASET,
    LINEAGE_BY_PROGRAM,
    USAGE_BY_DATASET,
    USAGE_BY_PROGRAM,
)
from structable.datasets.tables.namespaces import PREFERENCES
from structable.datasets.tables.platform import CAPABILITY_OPERATIONS, EXTERNAL_POSITIONS, OPERATIONS, PEERS
from structable.datasets.tables.runs import PROVISIONING_TASKS, WORKFLOW_NODES, WORKFLOW_STATISTICS
from structable.datasets.tables.secrets import (
    CREDENTIAL_IDENTITIES,
    CREDENTIAL_PROFILES,
    OWNERS,
    SECRET_VALUES,
    SECRETS,
    SecretValue,
)

from .keys import RotatingKeys
from .rows import Rows, path_problems


def preferences_count_their_changes(rows: Rows) -> list[str]:
    problems = []
    noted = rows.noted("preferred")
    for one in rows.of(PREFERENCES):
        scope = tuple(name for name in (one.namespace, one.application, one.program_type, one.program) if name)
        if repr(scope) in noted:
            seqs = _numbers(noted[repr(scope)], "seq")
            if sorted(seqs) != list(range(1, one.seq + 1)):
                problems.append(f"{one}: changes {sorted(seqs)}")
    return problems


def secrets_have_the_value_of_their_version(rows: Rows) -> list[str]:
    secrets = {(one.namespace, one.secret, one.version) for one in rows.of(SECRETS)}
    values = {(one.namespace, one.secret, one.version) for one in rows.of(SECRET_VALUES)}
    return [f"only one of both: {one}" for one in secrets ^ values]


def secrets_open_to_what_was_put(rows: Rows) -> list[str]:
    noted = rows.noted("secret put")
    tags = {(one.namespace, one.secret): str(one.properties.get("tag")) for one in rows.of(SECRETS)}
    versions = {(one.namespace, one.secret): one.version for one in rows.of(SECRETS)}
    problems = []
    for value in rows.of(SECRET_VALUES):
        puts = noted.get(tags.get((value.namespace, value.secret), ""))
        if puts is None:
            continue
        wanted = {one["number"]: one["value"] for one in puts}
        if sorted(_numbers(puts)) != list(range(1, versions[value.namespace, value.secret] + 1)):
            problems.append(f"{value.secret}: values of the versions {sorted(_numbers(puts))}")
        if _opened(value) != wanted.get(value.version):
            problems.append(f"{value.secret} version {value.version} has another value")
    return problems


def identities_have_their_credential_profile(rows: Rows) -> list[str]:
    profiles = {f"{one.namespace}/{one.profile}" for one in rows.of(CREDENTIAL_PROFILES)}
    return [f"{one.identity}: {one.profile}" for one in rows.of(CREDENTIAL_IDENTITIES) if one.profile not in profiles]


def operations_went_where_they_were_moved(rows: Rows) -> list[str]:
    statuses = {one.operation: one.status for one in rows.of(OPERATIONS)}
    problems = []
    for operation, moves in rows.noted("operation moved").items():
        steps = [(one["before"], one["after"]) for one in moves]
        problems += [f"{operation}: {one}" for one in path_problems(steps, statuses.get(operation))]
        if any(before in _ENDED for before, _ in steps):
            problems.append(f"{operation} left an end: {steps}")
    return problems


_ENDED = {OperationStatus.SUCCEEDED, OperationStatus.FAILED, OperationStatus.KILLED}


def tasks_went_where_they_were_moved(rows: Rows) -> list[str]:
    states = {one.kind: one.state for one in rows.of(PROVISIONING_TASKS)}
    return [
        f"{kind}: {problem}"
        for kind, moves in rows.noted("task moved").items()
        for problem in path_problems([(one["before"], one["after"]) for one in moves], states.get(kind))
    ]


def workflow_nodes_have_the_latest_message(rows: Rows) -> list[str]:
    sources = {one.node: one.source for one in rows.of(WORKFLOW_NODES)}
    return [
        f"{node}: {sources.get(node)} is stored, of {sorted(_numbers(messages, 'source'))}"
        for node, messages in rows.noted("node changed").items()
        if sources.get(node) != max(_numbers(messages, "source"))
    ]


def workflow_statistics_are_those_recorded(rows: Rows) -> list[str]:
    stored = {f"{one.version}/{one.run}": one.seconds for one in rows.of(WORKFLOW_STATISTICS)}
    noted = rows.noted("recorded")
    problems = [f"only one of both: {one}" for one in stored.keys() ^ noted.keys()]
    problems += [
        f"{one} took {seconds} seconds, which was not recorded"
        for one, seconds in stored.items()
        if seconds not in _numbers(noted.get(one, []), "seconds")
    ]
    return problems


def lineage_is_the_same_in_both_directions(rows: Rows) -> list[str]:
    return _both(rows, LINEAGE_BY_DATASET, LINEAGE_BY_PROGRAM)


def usage_is_the_same_in_both_directions(rows: Rows) -> list[str]:
    return _both(rows, USAGE_BY_DATASET, USAGE_BY_PROGRAM)


def metadata_is_found_by_its_words(rows: Rows) -> list[str]:
    wanted = set()
    for one in rows.of(METADATA):
        texts = [*one.tags, *one.properties.keys(), *one.properties.values()]
        wanted |= {(word, one.entity, one.scope) for text in texts for word in re.findall(r"\w+", text.lower())}
    found = {(one.term, one.entity, one.scope) for one in rows.of(METADATA_TERMS)}
    return [f"only one of both: {one}" for one in wanted ^ found]


def metadata_counts_its_changes(rows: Rows) -> list[str]:
    noted = rows.noted("metadata changed")
    return [
        f"{one}: generations {numbers}"
        for one in rows.of(METADATA)
        if one.properties.get("tag") in noted
        and (numbers := sorted(_numbers(noted[one.properties["tag"]]))) != list(range(1, one.generation + 1))
    ]


def no_added_tag_is_lost(rows: Rows) -> list[str]:
    stored = {tag for one in rows.of(METADATA) if one.entity == "grown" for tag in one.tags}
    noted = {str(one["tag"]) for one in rows.noted("tagged").get("grown", [])}
    return [f"only one of both: {one}" for one in stored ^ noted]


def datasets_have_their_kind_and_kinds_their_module(rows: Rows) -> list[str]:
    kinds = {(one.namespace, one.kind) for one in rows.of(DATASET_KINDS)}
    modules = {(one.namespace, one.module) for one in rows.of(DATASET_MODULES)}
    problems = [str(one) for one in rows.of(DATASET_INSTANCES) if (one.namespace, one.kind) not in kinds]
    return problems + [str(one) for one in rows.of(DATASET_KINDS) if (one.namespace, one.module) not in modules]


def each_position_is_consumed_once(rows: Rows) -> list[str]:
    stored = {one.topic: int(one.position) for one in rows.of(EXTERNAL_POSITIONS)}
    return [
        f"{topic}: {stored.get(topic)} is stored, of {numbers}"
        for topic, facts in rows.noted("consumed position").items()
        if (numbers := sorted(int(str(one["position"])) for one in facts)) != list(range(1, stored.get(topic, 0) + 1))
    ]


def one_operation_of_a_capability_is_open(rows: Rows) -> list[str]:
    opened = {one.capability for one in rows.of(CAPABILITY_OPERATIONS)}
    return _balances(rows, "capability", opened)


def owners_are_those_that_were_set(rows: Rows) -> list[str]:
    return _balances(rows, "owner", {one.entity for one in rows.of(OWNERS)})


def peers_are_decided_once(rows: Rows) -> list[str]:
    decided = rows.noted("decided")
    problems = [f"{tag} was decided {len(facts)} times" for tag, facts in decided.items() if len(facts) > 1]
    for peer in rows.of(PEERS):
        tag = str(peer.metadata["tag"]) if isinstance(peer.metadata, dict) else ""
        state = decided[tag][0]["state"] if tag in decided else PeerState.PENDING
        if peer.state != state:
            problems.append(f"{peer}: decided {state}")
    return problems


def peers_were_last_seen_at_the_latest_time(rows: Rows) -> list[str]:
    seen = rows.noted("seen")
    problems = []
    for peer in rows.of(PEERS):
        tag = str(peer.metadata["tag"]) if isinstance(peer.metadata, dict) else ""
        times = [dt.datetime.fromisoformat(str(one["at"])) for one in seen.get(tag, [])]
        if peer.last_seen != max(times, default=None):
            problems.append(f"{peer}: seen {sorted(times)}")
    return problems


def _numbers(facts: list[dict[str, object]], name: str = "number") -> list[int]:
    return [number for one in facts if isinstance(number := one[name], int)]


def _opened(value: SecretValue) -> str | None:
    key = (value.namespace, value.secret, value.version)
    sealed = Sealed(value.key_id, value.wrapped, value.nonce, value.data)
    try:
        return open_sealed(RotatingKeys(), "sys_secret_values", key, sealed).decode()
    except SecretError:
        return None


def _both(rows: Rows, one: RecordTable[Any], other: RecordTable[Any]) -> list[str]:
    first, second = set(map(repr, rows.of(one))), set(map(repr, rows.of(other)))
    return [f"only one of both: {record}" for record in first ^ second]


def _balances(rows: Rows, kind: str, present: set[str]) -> list[str]:
    """Return the subjects that were added and taken away other than once after the other."""
    sums = {subject: sum(_numbers(facts, "change")) for subject, facts in rows.noted(kind).items()}
    subjects = sums.keys() | present
    return [f"{one}: balance {sums.get(one, 0)}" for one in subjects if sums.get(one, 0) != (one in present)]


INVARIANTS: Final = (
    preferences_count_their_changes,
    secrets_have_the_value_of_their_version,
    secrets_open_to_what_was_put,
    identities_have_their_credential_profile,
    operations_went_where_they_were_moved,
    tasks_went_where_they_were_moved,
    workflow_nodes_have_the_latest_message,
    workflow_statistics_are_those_recorded,
    lineage_is_the_same_in_both_directions,
    usage_is_the_same_in_both_directions,
    metadata_is_found_by_its_words,
    metadata_counts_its_changes,
    no_added_tag_is_lost,
    datasets_have_their_kind_and_kinds_their_module,
    each_position_is_consumed_once,
    one_operation_of_a_capability_is_open,
    owners_are_those_that_were_set,
    peers_are_decided_once,
    peers_were_last_seen_at_the_latest_time,
)
