"""The datasets `runs`, `run_counts` and `heartbeats`."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from structable.datasets import ProgramRef, Session, SystemData, new_run_id
from structable.datasets.system.runs import Changed, Ignored, IgnoredReason
from structable.datasets.tables.runs import RUNS, ClusterStatus, Run, RunStatus
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock
from tests.datasets.support.run_states import NEXT_CLUSTER, NEXT_STATUS

WEB = ProgramRef("default", "shop", "service", "web")
DAY = dt.timedelta(days=1)


def deploy(s: Session, version: str = "1") -> None:
    s.applications.deploy("default", "shop", version, {})


def provision(s: Session, *, version: str = "1", source: int = 0, **more: object) -> str:
    run = new_run_id(s._context.now())  # the time of the test's clock
    made = s.runs.provision(WEB, run, version=version, source=source, **more)  # type: ignore[arg-type] # of a test
    assert isinstance(made, Changed)
    return run


def send(s: Session, run: str, wanted: str, source: int) -> Changed | Ignored:
    """Send the message that asks for a status."""
    match wanted:
        case "STARTING":
            return s.runs.starting(WEB, run, source=source)
        case "RUNNING":
            return s.runs.running(WEB, run, source=source)
        case "SUSPENDED":
            return s.runs.suspend(WEB, run, source=source)
        case "STOPPING":
            return s.runs.stopping(WEB, run, source=source)
        case "REJECTED":
            return s.runs.reject(WEB, run, source=source, reason="no room")
        case "COMPLETED" | "FAILED" | "KILLED":
            return s.runs.stop(WEB, run, status=RunStatus(wanted), source=source)
        case "PROVISIONED":
            return s.runs.provisioned(WEB, run, nodes=3, source=source)
        case "WAITING":
            return s.runs.waiting(WEB, run, source=source)
        case "DEPROVISIONING":
            return s.runs.deprovisioning(WEB, run, source=source)
        case "DEPROVISIONED":
            return s.runs.deprovisioned(WEB, run, source=source)
        case "ORPHANED":
            return s.runs.orphaned(WEB, run, source=source)
    raise AssertionError(wanted)


def put(system: SystemData, **fields: object) -> str:
    """Put a run in any state."""
    run = new_run_id()
    started: dict[str, object] = {**WEB._asdict(), "run": run, "version": "1", "source": 5, "active": True}
    RUNS.named("sys_runs")(system.storage).put(Run(**{**started, **fields}))  # type: ignore[arg-type] # of a test
    return run


class TestRuns:
    def test_life_of_a_run(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            deploy(s)
            parent = new_run_id()
            run = provision(s, arguments={"a": "1"}, system={"user": "ada"}, profile="small", parent_run=parent)
        sent = [
            ("PROVISIONED", None),
            ("STARTING", "started"),
            ("RUNNING", "running"),
            ("SUSPENDED", "suspended"),
            ("STOPPING", "stopping"),
            ("COMPLETED", "stopped"),
            ("DEPROVISIONING", None),
            ("DEPROVISIONED", None),
        ]
        for source, (wanted, time) in enumerate(sent, 1):
            clock.tick()
            with begin() as s:
                changed = send(s, run, wanted, source)
                assert isinstance(changed, Changed)
                assert time is None or getattr(changed.after, time) == clock.time
            with begin() as s:
                assert s.runs.get(WEB, run) == changed.after
        with begin() as s:
            ended = s.runs.get(WEB, run)
        assert ended is not None
        assert (ended.status, ended.cluster) == (RunStatus.COMPLETED, ClusterStatus.DEPROVISIONED)
        assert (ended.active, ended.cluster_open, ended.ended_on, ended.nodes) == (None, None, clock.time.date(), 3)
        assert (ended.arguments, ended.system, ended.profile) == ({"a": "1"}, {"user": "ada"}, "small")
        with begin() as s:
            assert s.runs.children(parent) == [ended]

    def test_only_states_that_follow_are_accepted(self, begin: Begin, system: SystemData) -> None:
        for before, wanted in itertools.product(RunStatus, RunStatus):
            if wanted is RunStatus.PENDING:
                continue
            run = put(system, status=before)
            with begin() as s:
                answer = send(s, run, wanted.value, 5)
            if wanted in NEXT_STATUS.get(before.value, ()):
                assert isinstance(answer, Changed), (before, wanted)
                assert answer.before is not None
                assert answer.before.status is before
                assert answer.after.status is wanted
                assert answer.after.active is (True if wanted.value in NEXT_STATUS else None)
            else:
                reason = IgnoredReason.DUPLICATE if before is wanted else IgnoredReason.ILLEGAL
                assert isinstance(answer, Ignored), (before, wanted)
                assert answer.reason is reason, (before, wanted)

    def test_only_states_of_clusters_that_follow_are_accepted(self, begin: Begin, system: SystemData) -> None:
        for before, wanted in itertools.product(ClusterStatus, ClusterStatus):
            if wanted is ClusterStatus.PROVISIONING:
                continue
            run = put(system, status=RunStatus.RUNNING, cluster=before, cluster_open=True)
            with begin() as s:
                answer = send(s, run, wanted.value, 5)
            if wanted in NEXT_CLUSTER.get(before.value, ()):
                assert isinstance(answer, Changed), (before, wanted)
                assert answer.after.cluster is wanted
                assert answer.after.cluster_open is (True if wanted.value in NEXT_CLUSTER else None)
            else:
                reason = IgnoredReason.DUPLICATE if before is wanted else IgnoredReason.ILLEGAL
                assert isinstance(answer, Ignored), (before, wanted)
                assert answer.reason is reason, (before, wanted)

    def test_reasons_come_in_their_order(self, begin: Begin, system: SystemData) -> None:
        run = put(system, status=RunStatus.COMPLETED)
        with begin() as s:
            missing = s.runs.running(WEB, new_run_id(), source=9)
            assert missing == Ignored(IgnoredReason.MISSING, None)
            current = s.runs.get(WEB, run)
            assert s.runs.running(WEB, run, source=4) == Ignored(IgnoredReason.STALE, current)
            stop = s.runs.stop(WEB, run, status=RunStatus.COMPLETED, source=4)
            assert stop == Ignored(IgnoredReason.STALE, current)
            stop = s.runs.stop(WEB, run, status=RunStatus.COMPLETED, source=5)
            assert stop == Ignored(IgnoredReason.DUPLICATE, current)
            assert s.runs.running(WEB, run, source=6) == Ignored(IgnoredReason.ILLEGAL, current)
            again = s.runs.provision(WEB, run, version="absent", source=1)
            assert again == Ignored(IgnoredReason.EXISTS, current)
            other = s.runs.provision(WEB, new_run_id(), version="absent", source=1)
            assert other == Ignored(IgnoredReason.MISSING, None)
        with begin() as s:
            assert s.runs.get(WEB, run) == current

    def test_rejected_run_was_never_provisioned(self, begin: Begin, clock: Clock) -> None:
        run = new_run_id()
        with begin() as s:
            made = s.runs.reject(WEB, run, source=1, reason={"code": 7})
            assert isinstance(made, Changed)
            assert (made.before, made.after.version, made.after.cluster) == (None, None, None)
            assert (made.after.stopped, made.after.failure) == (clock.time, {"code": 7})
        with begin() as s:
            assert list(s.runs.active()) == []
            again = s.runs.reject(WEB, run, source=1, reason="x")
            assert isinstance(again, Ignored)
            assert again.reason is IgnoredReason.DUPLICATE
            assert s.runs.count(WEB) == 0

    def test_counts_stay_by_version(self, begin: Begin) -> None:
        with begin() as s:
            deploy(s, "1")
            deploy(s, "2")
            for version in ("1", "2", "1"):
                provision(s, version=version)
        with begin() as s:
            assert (s.runs.count(WEB), s.runs.count(WEB, "1"), s.runs.count(WEB, "3")) == (3, 2, 0)

    def test_history_is_newest_first(self, begin: Begin, clock: Clock) -> None:
        times, runs = [], []
        with begin() as s:
            deploy(s)
            for _ in range(4):
                times.append(clock.tick())
                runs.append(provision(s))
            s.runs.starting(WEB, runs[1], source=1)
        with begin() as s:
            first = s.runs.history(WEB, limit=3)
            rest = s.runs.history(WEB, limit=3, cursor=first.next)
            assert [one.run for one in first.items + rest.items] == runs[::-1]
            some = s.runs.history(WEB, after=times[1], before=times[3])
            assert [one.run for one in some.items] == [runs[2], runs[1]]
            after = s.runs.history(WEB, after=times[1] + dt.timedelta(microseconds=1))
            assert [one.run for one in after.items] == [runs[3], runs[2]]
            assert [one.run for one in s.runs.history(WEB, status=RunStatus.STARTING).items] == [runs[1]]
            assert [one.run for one in s.runs.get_many([WEB.run(runs[2]), WEB.run(runs[0])])] == [runs[0], runs[2]]

    def test_active_runs_within_a_prefix(self, begin: Begin) -> None:
        with begin() as s:
            deploy(s)
            runs = [provision(s) for _ in range(3)]
            s.runs.stop(WEB, runs[0], status=RunStatus.KILLED, source=1)
        with begin() as s:
            assert {one.run for one in s.runs.active("default")} == set(runs[1:])
            assert [s.runs.count_active(*WEB[:length]) for length in range(5)] == [2] * 5
            assert s.runs.count_active("default", limit=1) == 1
            assert s.runs.count_active("other") == 0
            assert {one.run for one in s.runs.open_clusters()} == set(runs)

    def test_overlapping_runs(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        with begin() as s:
            deploy(s)
            for number in range(3):
                run = provision(s)
                s.runs.starting(WEB, run, source=1, at=start + number * DAY)
                if number < 2:
                    s.runs.stop(WEB, run, status=RunStatus.FAILED, source=2, at=start + (number + 0.5) * DAY)
        with begin() as s:
            found = s.runs.overlapping("default", start + DAY, start + 2 * DAY)
            assert [one.started for one in found] == [start + DAY]
            assert len(s.runs.overlapping("default", start, start + 9 * DAY)) == 3
            assert len(s.runs.overlapping("default", start + 8 * DAY, start + 9 * DAY)) == 1

    def test_ended_runs_expire(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            deploy(s)
            for number in range(5):
                run = provision(s)
                if number:
                    at = clock.time + number * DAY
                    s.runs.stop(WEB, run, status=RunStatus.KILLED, source=1, at=at)
        day = (clock.time + 4 * DAY).date()
        with begin() as s:
            assert s.runs.expire(day, limit=2) == 2
        with begin() as s:
            assert s.runs.expire(day, limit=2) == 1
            assert s.runs.expire(day, limit=2) == 0
        with begin() as s:
            assert len(s.runs.history(WEB).items) == 2
            assert s.runs.delete_history("default") == 1
            assert s.runs.count_active() == 1

    def test_runs_of_many_keys_children_and_open_clusters(self, begin: Begin) -> None:
        with begin() as s:
            deploy(s)
            parent, other = provision(s), provision(s)
            child = provision(s, parent_run=parent)
            assert isinstance(s.runs.deprovisioned(WEB, other, source=1), Changed)
        with begin() as s:
            found = s.runs.get_many([WEB.run(run) for run in (child, parent, new_run_id())])
            assert [one.run for one in found] == sorted([parent, child])
            assert [one.run for one in s.runs.children(parent)] == [child]
            assert s.runs.children(child) == []
            assert {one.run for one in s.runs.open_clusters()} == {parent, child}

    def test_history_of_ended_runs_is_deleted(self, begin: Begin) -> None:
        with begin() as s:
            deploy(s)
            active, ended = provision(s), provision(s)
            s.runs.stop(WEB, ended, status=RunStatus.KILLED, source=1)
        with begin() as s:
            assert s.runs.delete_history("default", "other") == 0
            assert s.runs.delete_history("default", "shop") == 1
            assert s.runs.delete_history() == 0
        with begin() as s:
            assert [one.run for one in s.runs.history(WEB).items] == [active]
            assert s.runs.count(WEB) == 2

    def test_provisioning_and_deletion_exclude_each_other(self, begin: Begin) -> None:
        with begin() as s:
            deploy(s)
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.applications.latest("default", "shop")
            with begin() as other:
                provision(other)
            s.applications.delete("default", "shop")

    def test_bad_arguments_are_refused(self, begin: Begin) -> None:
        with begin() as s:
            with pytest.raises(ValueError, match="UUIDv7"):
                s.runs.provision(WEB, "1", version="1", source=1)
            with pytest.raises(ValueError, match="RUNNING"):
                s.runs.stop(WEB, new_run_id(), status=RunStatus.RUNNING, source=1)
            with pytest.raises(ValueError, match="aware"):
                s.runs.reject(WEB, new_run_id(), source=1, reason=None, at=dt.datetime(2026, 1, 1))


class TestHeartbeats:
    def test_newest_record_of_each_run(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        with begin() as s:
            deploy(s)
            one, two = provision(s), provision(s)
            s.heartbeats.beat(s.runs.get(WEB, one), start + dt.timedelta(seconds=90))  # type: ignore[arg-type]
            s.runs.starting(WEB, one, source=1)
            s.heartbeats.beat(s.runs.get(WEB, one), start + dt.timedelta(seconds=150))  # type: ignore[arg-type]
            s.heartbeats.beat(s.runs.get(WEB, two), start + dt.timedelta(hours=2))  # type: ignore[arg-type]
        with begin() as s:
            found = s.heartbeats.between(["default", "other"], start, start + dt.timedelta(hours=1))
            assert list(found) == [WEB.run(one)]
            assert found[WEB.run(one)].status is RunStatus.STARTING
            assert s.heartbeats.expire("default", start + dt.timedelta(hours=1)) == 2
            assert list(s.heartbeats.between(["default"], start, start + DAY)) == [WEB.run(two)]
