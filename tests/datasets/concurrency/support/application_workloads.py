"""Workloads on namespaces, applications, their runs, and profiles."""

from __future__ import annotations

import datetime as dt
import random
import uuid

from structable.datasets import Changed, Ignored, ProfileStatus, ProgramRef, Run, RunStatus, Session, SystemData

from .ledger import note

NS = "default"
RUN_IDS = tuple(f"01900000-0000-7000-8000-{number:012x}" for number in range(24))


def new_tag() -> str:
    """Return a text that tells a record from an earlier one of the same key."""
    return uuid.uuid4().hex


def deploy(s: Session, namespace: str, application: str, version: str, *, latest: bool = True) -> None:
    """Deploy a version; all versions of an application, until it is deleted, have one tag."""
    before = s.applications.latest(namespace, application)
    if before is None:
        tag = new_tag()
    else:
        assert isinstance(before.artifact, dict)
        tag = str(before.artifact["tag"])
    made = s.applications.deploy(namespace, application, version, {}, artifact={"tag": tag}, latest=latest)
    note(s.tx, "deployed", tag, ordinal=made.ordinal, version=version)


def ensure_application(s: Session, application: str, version: str = "1") -> None:
    """Deploy an application in the default namespace, unless it is there."""
    if s.applications.get(NS, application, version) is None:
        deploy(s, NS, application, version)


# Namespaces, and what keeps them from being deleted

_NAMESPACES = ("n0", "n1")


def create_namespace(system: SystemData, chance: random.Random) -> None:
    name = chance.choice(_NAMESPACES)
    system.run(lambda s: s.namespaces.create(name, description=new_tag()))


def change_namespace(system: SystemData, chance: random.Random) -> None:
    name, guess = chance.choice(_NAMESPACES), chance.choice([None, None, 1, 2])

    def change(s: Session) -> None:
        changed = s.namespaces.change(name, generation=guess, config={"by": new_tag()})
        note(s.tx, "namespace changed", str(changed.description), number=changed.generation)

    system.run(change)


def delete_namespace(system: SystemData, chance: random.Random) -> None:
    name = chance.choice(_NAMESPACES)
    system.run(lambda s: s.namespaces.delete(name))


def add_member(system: SystemData, chance: random.Random) -> None:
    name, member = chance.choice(_NAMESPACES), chance.randrange(5)

    def add(s: Session) -> None:
        if member == 0:
            deploy(s, name, "member", "1")
        elif member == 1:
            s.secrets.put(name, "member", b"value")
        elif member == 2:
            s.profiles.create(name, "member")
        elif member == 3:
            s.schedules.add(name, "member", "member", {}, triggers=["cron"])
        else:
            s.dataset_catalog.add_module(name, "member")
            s.dataset_catalog.add_kind(name, "member", module="member")
            s.dataset_catalog.add_instance(name, "member", kind="member")

    system.run(add)


def delete_members(system: SystemData, chance: random.Random) -> None:
    name = chance.choice(_NAMESPACES)

    def delete(s: Session) -> None:
        s.schedules.delete_of(name, "member")
        if s.applications.latest(name, "member") is not None:
            s.applications.delete(name, "member")
        if s.secrets.describe(name, "member") is not None:
            s.secrets.delete(name, "member")
        if s.profiles.get(name, "member") is not None:
            s.profiles.set_status(name, "member", ProfileStatus.DISABLED)
            s.profiles.delete(name, "member")
        if s.dataset_catalog.get_module(name, "member") is not None:
            s.dataset_catalog.delete_instance(name, "member")
            s.dataset_catalog.delete_kind(name, "member")
            s.dataset_catalog.delete_module(name, "member")

    system.run(delete)


NAMESPACES = (create_namespace, create_namespace, change_namespace, delete_namespace, add_member, delete_members)


# Applications

_APPLICATIONS = ("a0", "a1")
_VERSIONS = ("1", "2", "3", "4", "5")


def deploy_version(system: SystemData, chance: random.Random) -> None:
    application, version, latest = chance.choice(_APPLICATIONS), chance.choice(_VERSIONS), chance.random() < 0.7
    system.run(lambda s: deploy(s, NS, application, version, latest=latest))


def mark_latest(system: SystemData, chance: random.Random) -> None:
    application, version = chance.choice(_APPLICATIONS), chance.choice(_VERSIONS)
    system.run(lambda s: s.applications.mark_latest(NS, application, version))


def set_source(system: SystemData, chance: random.Random) -> None:
    application, version = chance.choice(_APPLICATIONS), chance.choice(_VERSIONS)
    system.run(lambda s: s.applications.set_source(NS, application, version, {"commit": new_tag()}))


def put_state(system: SystemData, chance: random.Random) -> None:
    application, key = chance.choice(_APPLICATIONS), chance.choice("xy")
    system.run(lambda s: s.application_state.put(NS, application, key, b"1"))


def delete_version(system: SystemData, chance: random.Random) -> None:
    application, version = chance.choice(_APPLICATIONS), chance.choice(_VERSIONS)
    system.run(lambda s: s.applications.delete_version(NS, application, version))


def delete_application(system: SystemData, chance: random.Random) -> None:
    application = chance.choice(_APPLICATIONS)
    system.run(lambda s: s.applications.delete(NS, application))


APPLICATIONS = (
    *(deploy_version,) * 4,
    *(mark_latest,) * 2,
    set_source,
    put_state,
    *(delete_version,) * 2,
    delete_application,
)


# Runs

RUNNING = "batch"
_PROGRAMS = tuple(ProgramRef(NS, RUNNING, "service", name) for name in ("p0", "p1"))
_TWO_VERSIONS = ("1", "2")


def run_tag(run: Run) -> str:
    """Return what tells a run from an earlier one of the same id."""
    tag = run.arguments.get("tag")
    if tag is None and isinstance(run.failure, dict):
        tag = run.failure.get("tag")
    return str(tag)


def _note_move(s: Session, result: Changed | Ignored) -> bool:
    if isinstance(result, Ignored):
        return False
    before, after = result.before, result.after
    note(
        s.tx,
        "run moved",
        run_tag(after if before is None else before),
        before=None if before is None else [before.status, before.cluster],
        after=[after.status, after.cluster],
    )
    return True


def _program_of(run: str) -> ProgramRef:
    return _PROGRAMS[RUN_IDS.index(run) % len(_PROGRAMS)]


def deploy_running(system: SystemData, chance: random.Random) -> None:
    version = chance.choice(_TWO_VERSIONS)
    system.run(lambda s: ensure_application(s, RUNNING, version))


def delete_running(system: SystemData, chance: random.Random) -> None:
    version, all_of_it = chance.choice(_TWO_VERSIONS), chance.random() < 0.2

    def delete(s: Session) -> None:
        if all_of_it:
            s.applications.delete(NS, RUNNING)
        else:
            s.applications.delete_version(NS, RUNNING, version)

    system.run(delete)


def provision(system: SystemData, chance: random.Random) -> None:
    run, version = chance.choice(RUN_IDS), chance.choice(_TWO_VERSIONS)
    ref = _program_of(run)

    def create(s: Session) -> None:
        made = s.runs.provision(ref, run, version=version, source=1, arguments={"tag": new_tag()})
        if _note_move(s, made):
            note(s.tx, "provisioned", "/".join((*ref, version)))

    system.run(create)


def reject(system: SystemData, chance: random.Random) -> None:
    run = chance.choice(RUN_IDS)
    ref = _program_of(run)
    system.run(lambda s: _note_move(s, s.runs.reject(ref, run, source=2, reason={"tag": new_tag()})))


def move_run(system: SystemData, chance: random.Random) -> None:
    run, step, ahead = chance.choice(RUN_IDS), chance.randrange(10), chance.choice([0, 1, 1])
    end = chance.choice([RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.KILLED])
    ref = _program_of(run)

    def move(s: Session) -> None:
        current = s.runs.get(ref, run)
        source = ahead + (0 if current is None else current.source)
        simple = (
            s.runs.waiting,
            s.runs.deprovisioning,
            s.runs.deprovisioned,
            s.runs.orphaned,
            s.runs.starting,
            s.runs.running,
            s.runs.suspend,
            s.runs.stopping,
        )
        if step < len(simple):
            result = simple[step](ref, run, source=source)
        elif step == len(simple):
            result = s.runs.provisioned(ref, run, nodes=1, source=source)
        else:
            result = s.runs.stop(ref, run, status=end, source=source)
        _note_move(s, result)

    system.run(move)


def kill_runs(system: SystemData, chance: random.Random) -> None:
    """End all runs, so that versions can be deleted."""

    def kill(s: Session) -> None:
        for run in list(s.runs.active(NS, RUNNING)):
            _note_move(s, s.runs.stop(run.ref, run.run, status=RunStatus.KILLED, source=run.source))

    system.run(kill)


def delete_history(system: SystemData, chance: random.Random) -> None:
    prefix = chance.choice([(NS,), (NS, RUNNING), tuple(_PROGRAMS[0])])
    system.run(lambda s: s.runs.delete_history(*prefix))


def expire_runs(system: SystemData, chance: random.Random) -> None:
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    system.run(lambda s: s.runs.expire(tomorrow, limit=2))


RUNS = (
    deploy_running,
    deploy_running,
    delete_running,
    *(provision,) * 5,
    reject,
    *(move_run,) * 10,
    kill_runs,
    delete_history,
    expire_runs,
)


# Profiles

_PROFILES = ("f0", "f1")
_USING = ProgramRef(NS, "profiled", "service", "p")


def create_profile(system: SystemData, chance: random.Random) -> None:
    profile = chance.choice(_PROFILES)
    system.run(lambda s: s.profiles.create(NS, profile, provisioner={"tag": new_tag()}))


def disable_profile(system: SystemData, chance: random.Random) -> None:
    """Disable a profile, which then gets no further assignment until it is deleted; perhaps take back those it has."""
    profile, take_back = chance.choice(_PROFILES), chance.random() < 0.5

    def disable(s: Session) -> None:
        found = s.profiles.get(NS, profile)
        if found is None or found.status is ProfileStatus.DISABLED:
            return
        assert isinstance(found.provisioner, dict)
        s.profiles.set_status(NS, profile, ProfileStatus.DISABLED)
        assigned = [one.entity for one in s.profiles.assignments(NS, profile)]
        if take_back:
            for entity in assigned:
                s.profiles.unassign(NS, profile, entity)
            assigned = []
        note(s.tx, "disabled", str(found.provisioner["tag"]), entities=assigned)

    system.run(disable)


def assign_profile(system: SystemData, chance: random.Random) -> None:
    profile, entity = chance.choice(_PROFILES), chance.choice(["e0", "e1", "e2"])
    system.run(lambda s: s.profiles.assign(NS, profile, entity))


def unassign_profile(system: SystemData, chance: random.Random) -> None:
    profile = chance.choice(_PROFILES)

    def unassign(s: Session) -> None:
        for one in s.profiles.assignments(NS, profile):
            s.profiles.unassign(NS, profile, one.entity)

    system.run(unassign)


def delete_profile(system: SystemData, chance: random.Random) -> None:
    profile = chance.choice(_PROFILES)
    system.run(lambda s: s.profiles.delete(NS, profile))


def use_profile(system: SystemData, chance: random.Random) -> None:
    profile, run = chance.choice(_PROFILES), chance.choice(RUN_IDS)

    def use(s: Session) -> None:
        ensure_application(s, _USING.application)
        if s.profiles.get(NS, profile) is not None:
            s.runs.provision(_USING, run, version="1", source=1, profile=profile)

    system.run(use)


def end_uses(system: SystemData, chance: random.Random) -> None:
    def end(s: Session) -> None:
        for run in list(s.runs.active(NS, _USING.application)):
            s.runs.stop(run.ref, run.run, status=RunStatus.KILLED, source=2)
        s.runs.delete_history(NS, _USING.application)

    system.run(end)


PROFILES = (
    create_profile,
    create_profile,
    disable_profile,
    *(assign_profile,) * 3,
    unassign_profile,
    delete_profile,
    delete_profile,
    use_profile,
    end_uses,
)
