"""Workloads that remove applications and namespaces with all that belongs to them, while others add to them."""

from __future__ import annotations

import random

from structable.datasets import DatasetRef, ProfileStatus, ProgramRef, ProvidedPlugin, Session, Side, SystemData

from .application_workloads import RUN_IDS, deploy, new_tag

CASCADED = ("c0", "c1")
"""The namespaces that are removed. What has one of their names exists only if they do."""
_APPLICATIONS = ("a0", "a1")


def create_namespace(system: SystemData, chance: random.Random) -> None:
    name = chance.choice(CASCADED)
    system.run(lambda s: s.namespaces.create(name, description=new_tag()))


def add_application(system: SystemData, chance: random.Random) -> None:
    name, application, version = chance.choice(CASCADED), chance.choice(_APPLICATIONS), chance.choice("12")
    system.run(lambda s: deploy(s, name, application, version))


def add_to_application(s: Session, namespace: str, application: str, what: int, run: str) -> None:
    """Add what shares the fence of the application, and is removed with it."""
    version = s.applications.latest(namespace, application)
    if version is None:
        return
    ref = ProgramRef(namespace, application, "service", "p")
    match what % 4:
        case 0:
            s.runs.provision(ref, run, version=version.version, source=1, arguments={"tag": new_tag()})
        case 1:
            s.application_state.put(namespace, application, "x", b"1")
        case 2:
            s.preferences.put((namespace, application), {"a": 1})
        case 3:
            s.schedules.add(namespace, application, "s", {"tag": new_tag()}, triggers=["cron"])


def add_to_namespace(s: Session, namespace: str, what: int) -> None:
    """Add what becomes a member of the namespace, and is removed with it."""
    match what % 9:
        case 0:
            s.preferences.put((namespace,), {"a": 1})
        case 1:
            s.configs.put(namespace, "kind", "name", properties={})
        case 2:
            s.profiles.create(namespace, "p", provisioner={"tag": new_tag()})
        case 3:
            s.secrets.put(namespace, "s", b"value", properties={"tag": new_tag()})
        case 4:
            s.operations.create(namespace, new_tag(), kind="k")
        case 5:
            s.dataset_catalog.add_module(namespace, "m")
            s.dataset_catalog.add_kind(namespace, "k", module="m")
        case 6:
            s.dataset_catalog.add_instance(namespace, "d", kind="k")
        case 7:
            s.source_control.set_repository(namespace, config={})
            s.source_control.write(namespace, Side.STORE, "kind", "name")
        case 8:
            s.artifacts.add(namespace, "a", "1", plugins=[ProvidedPlugin("t", "p")])


def add_part(system: SystemData, chance: random.Random) -> None:
    name, application = chance.choice(CASCADED), chance.choice(_APPLICATIONS)
    what, run = chance.randrange(4), chance.choice(RUN_IDS)
    system.run(lambda s: add_to_application(s, name, application, what, run))


def add_member(system: SystemData, chance: random.Random) -> None:
    name, what = chance.choice(CASCADED), chance.randrange(9)
    system.run(lambda s: add_to_namespace(s, name, what))


def add_lineage(system: SystemData, chance: random.Random) -> None:
    """Both directions of what an application used go with it."""
    ref = ProgramRef(chance.choice(CASCADED), chance.choice(_APPLICATIONS), "service", "p")
    run, dataset = chance.choice(RUN_IDS), DatasetRef("default", "d")

    def add(s: Session) -> None:
        s.lineage.access(ref.run(run), dataset)
        s.usage.register(ref, dataset)

    system.run(add)


def assign_profile(system: SystemData, chance: random.Random) -> None:
    """Make sure of a profile in one transaction, and assign it in another one."""
    name = chance.choice(CASCADED)

    def create(s: Session) -> None:
        if s.profiles.get(name, "p") is None:
            s.profiles.create(name, "p", provisioner={"tag": new_tag()})

    system.run(create)
    system.run(lambda s: s.profiles.assign(name, "p", "entity"))


def delete_profile(system: SystemData, chance: random.Random) -> None:
    name = chance.choice(CASCADED)

    def delete(s: Session) -> None:
        s.profiles.set_status(name, "p", ProfileStatus.DISABLED)
        s.profiles.unassign(name, "p", "entity")
        s.profiles.delete(name, "p")

    system.run(delete)


def remove_application(system: SystemData, chance: random.Random) -> None:
    system.remove_application(chance.choice(CASCADED), chance.choice(_APPLICATIONS))


def remove_namespace(system: SystemData, chance: random.Random) -> None:
    system.remove_namespace(chance.choice(CASCADED))


CASCADES = (
    *(create_namespace,) * 3,
    *(add_application,) * 3,
    *(add_part,) * 6,
    *(add_member,) * 6,
    add_lineage,
    *(assign_profile,) * 3,
    delete_profile,
    remove_application,
    remove_namespace,
)
