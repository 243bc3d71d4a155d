"""Workloads on the datasets of a platform's own upkeep, and on what describes data."""

from __future__ import annotations

import datetime as dt
import random

from structable.datasets import (
    Access,
    DatasetRef,
    MetadataScope,
    OperationStatus,
    PeerState,
    ProgramRef,
    Session,
    SystemData,
)

from .application_workloads import RUN_IDS, new_tag
from .ledger import note

NS = "default"
_MIDNIGHT = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
_DAY = dt.timedelta(days=1)


# Preferences

_SCOPES = ((), (NS,), (NS, "a"), (NS, "a", "service", "p"))


def put_preferences(system: SystemData, chance: random.Random) -> None:
    scope, seq = chance.choice(_SCOPES), chance.choice([None, None, 0, 1, 2, 3])
    system.run(lambda s: note(s.tx, "preferred", repr(scope), seq=s.preferences.put(scope, {"a": 1}, seq=seq)))


def delete_preferences(system: SystemData, chance: random.Random) -> None:
    scope = chance.choice(_SCOPES)
    system.run(lambda s: note(s.tx, "preferred", repr(scope), seq=s.preferences.delete(scope)))


PREFERENCES = (put_preferences, put_preferences, delete_preferences)


# Secrets and credentials

_SECRETS = ("s0", "s1")


def put_secret(system: SystemData, chance: random.Random) -> None:
    secret, value, guess = chance.choice(_SECRETS), new_tag(), chance.choice([None, None, 0, 1])

    def put(s: Session) -> None:
        before = s.secrets.describe(NS, secret)
        tag = new_tag() if before is None else str(before.properties["tag"])
        version = s.secrets.put(NS, secret, value.encode(), version=guess, properties={"tag": tag})
        note(s.tx, "secret put", tag, number=version, value=value)

    system.run(put)


def delete_secret(system: SystemData, chance: random.Random) -> None:
    secret = chance.choice(_SECRETS)
    system.run(lambda s: s.secrets.delete(NS, secret))


def rewrap_secrets(system: SystemData, chance: random.Random) -> None:
    system.run(lambda s: s.secrets.rewrap(2))


def read_secret(system: SystemData, chance: random.Random) -> None:
    secret = chance.choice(_SECRETS)
    system.run(lambda s: s.secrets.require(NS, secret), read_only=True)


SECRETS = (put_secret, put_secret, put_secret, delete_secret, rewrap_secrets, read_secret)

_CREDENTIALS = ("c0", "c1")


def put_credential_profile(system: SystemData, chance: random.Random) -> None:
    profile = chance.choice(_CREDENTIALS)
    system.run(lambda s: s.credentials.put_profile(NS, profile, provisioner="p", data=b"1"))


def put_identity(system: SystemData, chance: random.Random) -> None:
    identity, profile = chance.choice(["i0", "i1"]), f"{NS}/{chance.choice(_CREDENTIALS)}"
    system.run(lambda s: s.credentials.put_identity(NS, identity, profile=profile, data=b"1"))


def delete_credential_profile(system: SystemData, chance: random.Random) -> None:
    profile = chance.choice(_CREDENTIALS)
    system.run(lambda s: s.credentials.delete_profile(NS, profile))


def delete_identity(system: SystemData, chance: random.Random) -> None:
    identity = chance.choice(["i0", "i1"])
    system.run(lambda s: s.credentials.delete_identity(NS, identity))


CREDENTIALS = (put_credential_profile, put_identity, put_identity, delete_credential_profile, delete_identity)


# Operations and provisioning


def create_operation(system: SystemData, chance: random.Random) -> None:
    operation = f"o{chance.randrange(20)}"

    def create(s: Session) -> None:
        made = s.operations.create(NS, operation, kind="k")
        note(s.tx, "operation moved", operation, before=None, after=made.status)

    system.run(create)


def move_operation(system: SystemData, chance: random.Random) -> None:
    operation, status = f"o{chance.randrange(20)}", chance.choice(list(OperationStatus))

    def move(s: Session) -> None:
        before = s.operations.get(NS, operation)
        after = s.operations.move(NS, operation, status)
        assert before is not None
        note(s.tx, "operation moved", operation, before=before.status, after=after.status)

    system.run(move)


OPERATIONS = (create_operation, move_operation, move_operation)

_STATES = ("A", "B", "C")


def move_task(system: SystemData, chance: random.Random) -> None:
    key = (NS, "app", "service", "p", RUN_IDS[0], f"k{chance.randrange(2)}")
    before, after = chance.sample(_STATES, 2)

    def move(s: Session) -> None:
        if s.provisioning.get(*key) is None:
            s.provisioning.put(*key, state=before)
            note(s.tx, "task moved", key[-1], before=None, after=before)
        elif s.provisioning.move(key, before, after):
            note(s.tx, "task moved", key[-1], before=before, after=after)

    system.run(move)


PROVISIONING = (move_task,)


# Workflows

_WORKFLOW = ProgramRef(NS, "flows", "workflow", "w")


def set_node(system: SystemData, chance: random.Random) -> None:
    node, source = chance.choice(["n0", "n1"]), chance.randrange(100)

    def change(s: Session) -> None:
        if s.workflows.node(_WORKFLOW, RUN_IDS[0], node, str(source), source=source):
            note(s.tx, "node changed", node, source=source)

    system.run(change)


def record_statistics(system: SystemData, chance: random.Random) -> None:
    number, version, seconds = chance.randrange(10), chance.choice("12"), chance.randrange(1_000)
    started = _MIDNIGHT + number * _DAY

    def record(s: Session) -> None:
        s.workflow_statistics.record(NS, "flows", version, "w", started, RUN_IDS[number], seconds=seconds)
        note(s.tx, "recorded", f"{version}/{RUN_IDS[number]}", seconds=seconds)

    system.run(record)


WORKFLOWS = (set_node, record_statistics)


# Lineage and usage

_DATASETS = tuple(DatasetRef(NS, name) for name in ("d0", "d1"))
_PROGRAMS = tuple(ProgramRef(NS, "app", "service", name) for name in ("p0", "p1"))


def access(system: SystemData, chance: random.Random) -> None:
    run = chance.choice(_PROGRAMS).run(chance.choice(RUN_IDS[:4]))
    dataset, how = chance.choice(_DATASETS), chance.choice(list(Access))
    at = _MIDNIGHT + chance.randrange(3) * _DAY
    system.run(lambda s: s.lineage.access(run, dataset, how, at=at))


def expire_lineage(system: SystemData, chance: random.Random) -> None:
    before, limit = (_MIDNIGHT + chance.randrange(1, 4) * _DAY).date(), chance.choice([1, 3, 1_000])
    system.run(lambda s: s.lineage.expire(before, limit=limit))


def register(system: SystemData, chance: random.Random) -> None:
    program, dataset = chance.choice(_PROGRAMS), chance.choice(_DATASETS)
    system.run(lambda s: s.usage.register(program, dataset))


def unregister(system: SystemData, chance: random.Random) -> None:
    program = chance.choice(_PROGRAMS)
    system.run(lambda s: s.usage.unregister(program))


LINEAGE = (access, access, access, expire_lineage, register, register, unregister)


# Metadata

_ENTITIES = ("e0", "e1")
_WORDS = ("red", "Green", "dark blue", "red_wine", "Blue")


def set_metadata(system: SystemData, chance: random.Random) -> None:
    entity, scope, generation = chance.choice(_ENTITIES), chance.choice(list(MetadataScope)), chance.choice([None, 1])
    properties = {word: chance.choice(_WORDS) for word in chance.sample(_WORDS, 2)}
    tags = chance.sample(_WORDS, 2)

    def change(s: Session) -> None:
        before = s.metadata.get(entity, scope)
        tag = new_tag() if before is None else before.properties["tag"]
        after = s.metadata.set(entity, scope, properties | {"tag": tag}, tags, generation=generation)
        note(s.tx, "metadata changed", tag, number=after.generation)

    system.run(change)


def add_tags(system: SystemData, chance: random.Random) -> None:
    entity, scope, tags = chance.choice(_ENTITIES), chance.choice(list(MetadataScope)), chance.sample(_WORDS, 2)

    def add(s: Session) -> None:
        if s.metadata.get(entity, scope) is not None:
            after = s.metadata.add_tags(entity, scope, tags)
            note(s.tx, "metadata changed", after.properties["tag"], number=after.generation)

    system.run(add)


def grow_tags(system: SystemData, chance: random.Random) -> None:
    """Add tags to an entity that loses none."""
    tag = new_tag()

    def add(s: Session) -> None:
        s.metadata.add_tags("grown", MetadataScope.USER, [tag])
        note(s.tx, "tagged", "grown", tag=tag)

    system.run(add)


def remove_metadata(system: SystemData, chance: random.Random) -> None:
    entity, scope = chance.choice(_ENTITIES), chance.choice(list(MetadataScope))
    system.run(lambda s: s.metadata.remove(entity, scope))


METADATA = (set_metadata, set_metadata, add_tags, add_tags, grow_tags, remove_metadata)


# The catalog of datasets

_CATALOG = ("x0", "x1")


def add_to_catalog(system: SystemData, chance: random.Random) -> None:
    name, other, what = chance.choice(_CATALOG), chance.choice(_CATALOG), chance.randrange(3)

    def add(s: Session) -> None:
        if what == 0:
            s.dataset_catalog.add_module(NS, name)
        elif what == 1:
            s.dataset_catalog.add_kind(NS, name, module=other)
        else:
            s.dataset_catalog.add_instance(NS, name, kind=other)

    system.run(add)


def delete_from_catalog(system: SystemData, chance: random.Random) -> None:
    name, what = chance.choice(_CATALOG), chance.randrange(3)

    def delete(s: Session) -> None:
        if what == 0:
            s.dataset_catalog.delete_module(NS, name)
        elif what == 1:
            s.dataset_catalog.delete_kind(NS, name)
        else:
            s.dataset_catalog.delete_instance(NS, name)

    system.run(delete)


DATASET_CATALOG = (add_to_catalog, add_to_catalog, delete_from_catalog)


# Positions, capabilities, owners and peers


def move_position(system: SystemData, chance: random.Random) -> None:
    """Read a position, and put the next one if it is still the same."""
    topic, late = f"t{chance.randrange(2)}", chance.random() < 0.3

    def move(s: Session) -> None:
        stored = s.external_positions.get(topic, "subscriber")
        position = str(int(stored or "0") + 1)
        expected = str(int(stored) - 1) if late and stored else stored
        s.external_positions.put(topic, "subscriber", position, expected=expected)
        note(s.tx, "consumed position", topic, position=position)

    system.run(move)


def begin_capability(system: SystemData, chance: random.Random) -> None:
    capability = f"c{chance.randrange(2)}"

    def begin(s: Session) -> None:
        s.capabilities.begin(capability, "ENABLE")
        note(s.tx, "capability", capability, change=1)

    system.run(begin)


def finish_capability(system: SystemData, chance: random.Random) -> None:
    capability = f"c{chance.randrange(2)}"

    def finish(s: Session) -> None:
        s.capabilities.finish(capability, "ENABLED")
        note(s.tx, "capability", capability, change=-1)

    system.run(finish)


POSITIONS = (move_position, move_position, begin_capability, finish_capability)


def set_owner(system: SystemData, chance: random.Random) -> None:
    entity = f"n{chance.randrange(2)}/a"

    def set_one(s: Session) -> None:
        s.owners.set(entity, "somebody")
        note(s.tx, "owner", entity, change=1)

    system.run(set_one)


def delete_owner(system: SystemData, chance: random.Random) -> None:
    entity = f"n{chance.randrange(2)}/a"

    def delete(s: Session) -> None:
        s.owners.delete(entity)
        note(s.tx, "owner", entity, change=-1)

    system.run(delete)


def add_peer(system: SystemData, chance: random.Random) -> None:
    peer = f"p{chance.randrange(3)}"
    system.run(lambda s: s.peers.add(peer, uri="https://peer.example", metadata={"tag": new_tag()}))


def decide_peer(system: SystemData, chance: random.Random) -> None:
    peer, state = f"p{chance.randrange(3)}", chance.choice([PeerState.ACCEPTED, PeerState.REJECTED])

    def decide(s: Session) -> None:
        decided = s.peers.decide(peer, state)
        assert isinstance(decided.metadata, dict)
        note(s.tx, "decided", decided.metadata["tag"], state=state)

    system.run(decide)


def see_peer(system: SystemData, chance: random.Random) -> None:
    peer, at = f"p{chance.randrange(3)}", _MIDNIGHT + chance.randrange(100) * _DAY

    def see(s: Session) -> None:
        metadata = s.peers.require(peer).metadata
        assert isinstance(metadata, dict)
        s.peers.seen(peer, at)
        note(s.tx, "seen", metadata["tag"], at=at.isoformat())

    system.run(see)


def delete_peer(system: SystemData, chance: random.Random) -> None:
    peer = f"p{chance.randrange(3)}"
    system.run(lambda s: s.peers.delete(peer))


OWNERS_AND_PEERS = (set_owner, delete_owner, add_peer, add_peer, decide_peer, see_peer, delete_peer)
