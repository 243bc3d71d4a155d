"""Jobs that act on requests to the platform; each publishes what it did in the same transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from structable.datasets import (
    AlreadyExistsError,
    Changed,
    Job,
    NotFoundError,
    ProgramRef,
    RunStatus,
    Session,
    Topic,
    new_run_id,
)
from structable.datasets.jobs import Handler
from structable.datasets.records import Record
from structable.spi import Field, TableSpecification

NAMESPACE = "shop"
APPLICATIONS = ("orders", "stock", "mail")


class Event(Record):
    """Something that was done: by which service, and on behalf of which job."""

    what: str
    service: str
    job: str | None = None
    runs: int = 1
    """How many runs were started or stopped."""


EVENTS = Topic("shop-events", Event)
EFFECTS = TableSpecification(
    "shop_effects", [Field.string("service"), Field.string("what"), Field.long("times")], ["service", "what"]
)
"""How often each service did each thing, as counted by a group of the topic, and the requests of those services."""

_SECONDS = 2
"""Without a beat of its worker, after which a job is taken from a process that was killed."""


def count(s: Session, service: str, what: str, times: int = 1) -> None:
    """Add to the number of times that a service did something, in the transaction of a session."""
    s.tx.table(EFFECTS.name).increment((service, what), "times", times)


def request(s: Session, queue: str, service: str, kind: str, *, unique_key: str | None = None) -> None:
    """Ask for a deployment, a start, a stop or a deletion, of an application that chance chooses."""
    args = {"application": random.choice(APPLICATIONS), "version": f"1.{random.randrange(1_000_000)}"}
    if s.jobs.enqueue(queue, args, kind=kind, unique_key=unique_key, timeout=_SECONDS).created:
        count(s, service, "requested")


def handlers_of(service: str) -> Mapping[str, Handler]:
    """Return the handlers of the jobs, for the worker of a service."""

    def handler(act: Callable[[Session, Any], tuple[str, int]]) -> Handler:
        def handle(s: Session, job: Job) -> None:
            what, runs = act(s, job.args)
            s.publish(EVENTS, Event(what=what, service=service, job=job.id, runs=runs), key=service)

        return handle

    return {"deploy": handler(_deploy), "start": handler(_start), "stop": handler(_stop), "delete": handler(_delete)}


def _deploy(s: Session, args: Mapping[str, str]) -> tuple[str, int]:
    try:
        s.applications.deploy(NAMESPACE, args["application"], args["version"], {"programs": ["main"]}, author="example")
    except AlreadyExistsError:
        return "deployed before", 0
    return "deployed", 0


def _start(s: Session, args: Mapping[str, str]) -> tuple[str, int]:
    program, run = ProgramRef(NAMESPACE, args["application"], "service", "main"), new_run_id()
    latest = s.applications.latest(NAMESPACE, program.application)
    if latest is None:
        return "nothing to start", 0
    s.runs.provision(program, run, version=latest.version, source=1)
    s.runs.provisioned(program, run, nodes=1, source=2)
    s.runs.starting(program, run, source=3)
    assert isinstance(s.runs.running(program, run, source=4), Changed)
    return "started", 1


def _stop(s: Session, args: Mapping[str, str]) -> tuple[str, int]:
    active = list(s.runs.active(NAMESPACE))
    if not active:
        return "nothing to stop", 0
    run = random.choice(active)
    s.runs.deprovisioned(run.ref, run.run, source=run.source + 1)
    stopped = s.runs.stop(run.ref, run.run, status=RunStatus.COMPLETED, source=run.source + 1)
    return ("stopped", 1) if isinstance(stopped, Changed) else ("nothing to stop", 0)


def _delete(s: Session, args: Mapping[str, str]) -> tuple[str, int]:
    running = list(s.runs.active(NAMESPACE, args["application"]))
    for run in running:
        s.runs.stop(run.ref, run.run, status=RunStatus.KILLED, source=run.source + 1)
    try:
        s.applications.delete(NAMESPACE, args["application"])
    except NotFoundError:
        return "nothing to delete", 0
    return "deleted", len(running)
