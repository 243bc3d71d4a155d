"""A process of the platform: deploys applications, runs and stops their programs; as the leader it deletes some."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from structable.datasets import (
    AlreadyExistsError,
    Changed,
    Leader,
    Lease,
    LeaseLostError,
    NotFoundError,
    ProgramRef,
    RunStatus,
    Session,
    SystemData,
    new_run_id,
)
from structable.spi import TransactionConflictError, connect

__all__ = ["NAMESPACE", "serve"]

NAMESPACE = "shop"
APPLICATIONS = ("orders", "stock", "mail")
_DELETIONS_OF_A_TERM = 2


def serve(url: str, name: str, seconds: float) -> Counter[str]:
    """Work for some seconds, and return how often each thing was done."""
    done: Counter[str] = Counter()
    led: Counter[str] = Counter()  # by the other thread
    end = time.monotonic() + seconds
    with connect(url) as storage, SystemData.open(storage) as system:
        candidate = threading.Thread(target=_candidate, args=(system, name, end, led), name="candidate")
        candidate.start()
        chance = random.Random(name)
        while time.monotonic() < end:
            action = chance.choice((_deploy, _start, _start, _stop, _stop))
            try:
                done[action(system, chance)] += 1
            except TransactionConflictError:
                done["gave up after conflicts"] += 1
        candidate.join()
    return done + led


def _deploy(system: SystemData, chance: random.Random) -> str:
    version = f"1.{chance.randrange(1_000_000)}"
    application = chance.choice(APPLICATIONS)

    def deploy(s: Session) -> None:
        s.applications.deploy(NAMESPACE, application, version, {"programs": ["main"]}, author="example")

    try:
        system.run(deploy)
    except AlreadyExistsError:
        return "deployed before"
    return "deployed"


def _start(system: SystemData, chance: random.Random) -> str:
    program = ProgramRef(NAMESPACE, chance.choice(APPLICATIONS), "service", "main")
    run = new_run_id()

    def start(s: Session) -> bool:
        latest = s.applications.latest(NAMESPACE, program.application)
        if latest is None:
            return False
        s.runs.provision(program, run, version=latest.version, source=1)
        s.runs.provisioned(program, run, nodes=1, source=2)
        s.runs.starting(program, run, source=3)
        return isinstance(s.runs.running(program, run, source=4), Changed)

    return "started" if system.run(start) else "nothing to start"


def _stop(system: SystemData, chance: random.Random) -> str:
    def stop(s: Session) -> bool:
        active = list(s.runs.active(NAMESPACE))
        if not active:
            return False
        run = chance.choice(active)
        s.runs.deprovisioned(run.ref, run.run, source=run.source + 1)
        stopped = s.runs.stop(run.ref, run.run, status=RunStatus.COMPLETED, source=run.source + 1)
        return isinstance(stopped, Changed)

    return "stopped" if system.run(stop) else "nothing to stop"


def _candidate(system: SystemData, name: str, end: float, done: Counter[str]) -> None:
    """Lead whenever elected: delete some applications under the lease, then let another process lead."""

    def lead(lease: Lease) -> None:
        done["terms as leader"] += 1
        for _ in range(_DELETIONS_OF_A_TERM):
            time.sleep(min(0.2, max(0.0, end - time.monotonic())))
            if time.monotonic() < end:
                _delete(system, lease, done)

    while time.monotonic() < end:
        try:
            Leader(system.storage, "janitor", owner=name, ttl=2).run(lead)
        except LeaseLostError:
            done["leases lost"] += 1


def _delete(system: SystemData, lease: Lease, done: Counter[str]) -> None:
    application = random.choice(APPLICATIONS)

    def delete(s: Session) -> int:
        lease.check(s.tx)  # a leader that was stopped for too long deletes nothing
        running = list(s.runs.active(NAMESPACE, application))
        for run in running:
            s.runs.stop(run.ref, run.run, status=RunStatus.KILLED, source=run.source + 1)
        s.applications.delete(NAMESPACE, application)
        return len(running)

    try:
        stopped = system.run(delete)
    except NotFoundError:
        done["nothing to delete"] += 1
    else:
        done["stopped"] += stopped
        done["deleted"] += 1
