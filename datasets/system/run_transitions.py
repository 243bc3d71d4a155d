"""Which states of runs, and of their clusters, may follow which."""

from __future__ import annotations

from structable.datasets.tables.runs import ClusterStatus, RunStatus

__all__ = ["ENDS", "NEXT_CLUSTER", "NEXT_STATUS", "OPEN_CLUSTER"]

_S, _C = RunStatus, ClusterStatus

NEXT_STATUS: dict[RunStatus, frozenset[RunStatus]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.KILLED, _S.FAILED, _S.REJECTED, _S.STOPPING}),
    _S.STARTING: frozenset({_S.RUNNING, _S.SUSPENDED, _S.STOPPING, _S.COMPLETED, _S.KILLED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.SUSPENDED, _S.STOPPING, _S.COMPLETED, _S.KILLED, _S.FAILED}),
    _S.SUSPENDED: frozenset({_S.RUNNING, _S.STOPPING, _S.KILLED, _S.FAILED}),
    _S.STOPPING: frozenset({_S.COMPLETED, _S.KILLED, _S.FAILED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.KILLED: frozenset(),
    _S.REJECTED: frozenset(),
}

NEXT_CLUSTER: dict[ClusterStatus, frozenset[ClusterStatus]] = {
    _C.PROVISIONING: frozenset({_C.PROVISIONED, _C.DEPROVISIONING, _C.DEPROVISIONED, _C.ORPHANED}),
    _C.PROVISIONED: frozenset({_C.WAITING, _C.DEPROVISIONING}),
    _C.WAITING: frozenset({_C.DEPROVISIONING, _C.ORPHANED}),
    _C.DEPROVISIONING: frozenset({_C.DEPROVISIONED, _C.ORPHANED}),
    _C.DEPROVISIONED: frozenset(),
    _C.ORPHANED: frozenset(),
}

ENDS = frozenset(status for status, following in NEXT_STATUS.items() if not following)
OPEN_CLUSTER = frozenset(status for status, following in NEXT_CLUSTER.items() if following)
