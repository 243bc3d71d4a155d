"""Random workloads by name, and how a worker, a thread or a process, runs its part of one."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from structable.datasets import DatasetError, SystemData
from structable.spi import Storage

from . import (
    application_workloads,
    cascade_workloads,
    content_workloads,
    coordination_workloads,
    job_workloads,
    message_workloads,
    platform_workloads,
    schedule_workloads,
)
from .consuming import JumpingClock
from .keys import RotatingKeys

Action = Callable[[SystemData, random.Random], None]
"""One operation on keys that all workers share. It may end in a `DatasetError` that another worker's work explains."""

WORKLOADS: Final[dict[str, tuple[Action, ...]]] = {
    "namespaces": application_workloads.NAMESPACES,
    "applications": application_workloads.APPLICATIONS,
    "runs": application_workloads.RUNS,
    "profiles": application_workloads.PROFILES,
    "schedules": schedule_workloads.SCHEDULES,
    "schedule_jobs": schedule_workloads.SCHEDULE_JOBS,
    "cascades": cascade_workloads.CASCADES,
    "preferences": platform_workloads.PREFERENCES,
    "secrets": platform_workloads.SECRETS,
    "credentials": platform_workloads.CREDENTIALS,
    "operations": platform_workloads.OPERATIONS,
    "provisioning": platform_workloads.PROVISIONING,
    "workflows": platform_workloads.WORKFLOWS,
    "lineage": platform_workloads.LINEAGE,
    "metadata": platform_workloads.METADATA,
    "dataset_catalog": platform_workloads.DATASET_CATALOG,
    "positions": platform_workloads.POSITIONS,
    "owners_and_peers": platform_workloads.OWNERS_AND_PEERS,
    "artifacts": content_workloads.ARTIFACTS,
    "field_lineage": content_workloads.FIELD_LINEAGE,
    "leases": coordination_workloads.LEASES,
    "permits": coordination_workloads.PERMITS,
    "jobs": job_workloads.JOBS,
    "messages": message_workloads.MESSAGES,
}
KEYLESS: Final = tuple(name for name in WORKLOADS if name not in {"namespaces", "cascades", "secrets", "credentials"})
"""The workloads that seal nothing."""
_FAST = {"leases", "permits", "jobs", "messages"}


def operations_of(store: str) -> int:
    """Return how many operations each worker does on a store: `STRUCTABLE_TEST_OPERATIONS`, or a small number."""
    given = os.environ.get("STRUCTABLE_TEST_OPERATIONS")
    return int(given) if given else {"hbase": 3}.get(store, 10)


def open_system(storage: Storage, workload: str) -> SystemData:
    """Return the datasets of a store whose tables were made, with the clock that a workload needs."""
    monotonic = coordination_workloads.fast_monotonic if workload in _FAST else time.monotonic
    clock = JumpingClock() if workload == "messages" else None
    return SystemData(storage, clock=clock, keys=RotatingKeys(), monotonic=monotonic)


def work(system: SystemData, workload: str, seed: str, operations: int) -> Counter[str]:
    """Do so many operations of a workload, and return how often each was done, and refused."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    for _ in range(operations):
        done[act(system, chance.choice(WORKLOADS[workload]), chance)] += 1
    return done


def act(system: SystemData, action: Action, chance: random.Random) -> str:
    """Do one operation, and return its name, with that of the error if it was refused."""
    try:
        action(system, chance)
    except DatasetError as error:
        return f"{action.__name__}: {type(error).__name__}"
    return action.__name__
