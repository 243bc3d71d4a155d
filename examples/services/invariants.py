"""What must hold after any number of processes have worked."""

from __future__ import annotations

from collections import Counter

from structable.datasets import RunStatus, SystemData

from .service import APPLICATIONS, NAMESPACE

__all__ = ["check"]


def check(system: SystemData, done: Counter[str]) -> str:
    """Check that applications, versions and runs agree with one another and with what the processes did.

    Raises
    ------
    AssertionError
        If they do not.
    """
    with system.transaction(read_only=True) as s:
        heads = s.applications.page(NAMESPACE, limit=1_000).items
        for name in APPLICATIONS:
            versions = s.applications.versions(NAMESPACE, name)
            latest = s.applications.latest(NAMESPACE, name)
            assert (latest is None) == (not versions), f"{name}: {len(versions)} versions, latest {latest}"
            assert latest is None or latest in versions, f"{name}: the latest version was deleted"
        active = list(s.runs.active(NAMESPACE))
        assert all(run.status is RunStatus.RUNNING for run in active)
        assert len(active) == done["started"] - done["stopped"], f"{len(active)} active runs; {done}"
        for run in active:
            version = s.applications.get(NAMESPACE, run.application, run.version or "")
            assert version is not None, f"run {run.run} belongs to a version that was deleted"
    return f"{len(heads)} applications, {len(active)} active runs: all agree"
