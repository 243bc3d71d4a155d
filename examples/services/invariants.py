"""What must hold after any number of processes have worked, and any of them was killed at any moment."""

from __future__ import annotations

from collections import Counter

from structable.datasets import JobState, Message, RunStatus, SystemData

from .requests import APPLICATIONS, EFFECTS, EVENTS, NAMESPACE, Event


def done_by(system: SystemData) -> dict[str, Counter[str]]:
    """Return how often each service did what, as the group has counted it."""
    done: dict[str, Counter[str]] = {}
    with system.storage.table(EFFECTS.name).scan() as rows:
        for row in rows:
            done.setdefault(row.service, Counter())[row.what] = row.times
    return done


def check(system: SystemData, queue: str) -> str:
    """Check that applications, versions, runs, jobs, events and what was counted of them agree.

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
        for run in active:
            version = s.applications.get(NAMESPACE, run.application, run.version or "")
            assert version is not None, f"run {run.run} belongs to a version that was deleted"
        jobs = s.jobs.counts(queue)
    events = _events(system)
    done = sum(done_by(system).values(), Counter[str]())
    stopped = done["runs stopped"] + done["runs deleted"]
    assert len(active) == done["runs started"] - stopped, f"{len(active)} active runs; {done}"
    # Each request was done once, and told once; what was told was counted once.
    assert {state for state, number in jobs.items() if number} <= {JobState.DONE}, f"{jobs}"
    assert jobs[JobState.DONE] == done["requested"], f"{jobs}, {done['requested']} requests"
    told = [event.body.job for event in events if event.body.job is not None]
    assert len(told) == len(set(told)) == done["requested"], f"{len(told)} events of {len(set(told))} jobs; {done}"
    counted = {what: number for what, number in done.items() if what != "requested" and not what.startswith("runs ")}
    assert counted == Counter(event.body.what for event in events), f"{counted} of {len(events)} events"
    return f"{len(heads)} applications, {len(active)} active runs, {len(told)} jobs, {len(events)} events: all agree"


def _events(system: SystemData) -> list[Message[Event]]:
    """Return all events, by a group of their own."""
    found: list[Message[Event]] = []
    with system.consumer(EVENTS, group="checkers") as consumer:
        while batch := consumer.poll(limit=1_000, wait=0):
            found += batch.messages
            batch.commit()
    return found
