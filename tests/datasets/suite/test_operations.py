"""The datasets `operations`, `provisioning_tasks` and `remote_runtimes`."""

from __future__ import annotations

import itertools

import pytest

from structable.datasets import (
    AlreadyExistsError,
    IllegalTransitionError,
    InvalidCursorError,
    NotFoundError,
    ProgramRef,
    new_run_id,
)
from structable.datasets.tables.platform import OperationStatus
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock

PROGRAM = ProgramRef("default", "shop", "service", "web")
LEGAL = {
    ("STARTING", "RUNNING"),
    ("STARTING", "STOPPING"),
    ("STARTING", "KILLED"),
    ("STARTING", "FAILED"),
    ("RUNNING", "STOPPING"),
    ("RUNNING", "SUCCEEDED"),
    ("RUNNING", "FAILED"),
    ("RUNNING", "KILLED"),
    ("STOPPING", "KILLED"),
    ("STOPPING", "FAILED"),
    ("STOPPING", "SUCCEEDED"),
}
WAYS = {
    "STARTING": [],
    "RUNNING": ["RUNNING"],
    "STOPPING": ["STOPPING"],
    "SUCCEEDED": ["RUNNING", "SUCCEEDED"],
    "FAILED": ["FAILED"],
    "KILLED": ["KILLED"],
}


class TestOperations:
    def test_only_states_that_follow_are_accepted(self, begin: Begin, clock: Clock) -> None:
        for number, (before, after) in enumerate(itertools.product(WAYS, WAYS)):
            name = f"op-{number}"
            with begin() as s:
                s.operations.create("default", name, kind="import")
                for step in WAYS[before]:
                    s.operations.move("default", name, OperationStatus(step))
            clock.tick()
            with begin() as s:
                if (before, after) in LEGAL:
                    moved = s.operations.move("default", name, OperationStatus(after), error={"code": 1})
                    assert (moved.status, moved.updated, moved.error) == (after, clock.time, {"code": 1})
                else:
                    with pytest.raises(IllegalTransitionError):
                        s.operations.move("default", name, OperationStatus(after))
                    found = s.operations.get("default", name)
                    assert found is not None
                    assert found.status == before

    def test_pages_are_newest_first(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            s.namespaces.create("sales")
            s.operations.create("sales", "z", kind="pull")
            for name, kind in (("z", "pull"), ("y", "push"), ("b", "pull"), ("a", "pull")):
                s.operations.create("default", name, kind=kind, at=clock.time)
                clock.tick(name != "b")
            s.operations.move("default", "b", OperationStatus.FAILED)
        with begin() as s:
            assert [one.operation for one in s.operations.page("default").items] == ["b", "a", "y", "z"]
            first = s.operations.page("default", "pull", limit=1)
            rest = s.operations.page("default", "pull", limit=5, cursor=first.next)
            assert [one.operation for one in first.items + rest.items] == ["b", "a", "z"]
            assert rest.next is None
            starting = s.operations.page("default", "pull", OperationStatus.STARTING)
            assert [one.operation for one in starting.items] == ["a", "z"]
            with pytest.raises(InvalidCursorError):
                s.operations.page("default", "push", cursor=first.next)
            assert s.operations.count_open() == 4

    def test_operations_belong_to_a_namespace(self, begin: Begin) -> None:
        with begin() as s, pytest.raises(NotFoundError):
            s.operations.create("absent", "1", kind="pull")
        with begin() as s:
            s.operations.create("default", "1", kind="pull")
            with pytest.raises(AlreadyExistsError):
                s.operations.create("default", "1", kind="push")
            with pytest.raises(NotFoundError):
                s.operations.move("default", "2", OperationStatus.RUNNING)


class TestProvisioning:
    def test_tasks_move_from_the_state_that_is_expected(self, begin: Begin, clock: Clock) -> None:
        run = PROGRAM.run(new_run_id())
        with begin() as s:
            s.provisioning.put(*run, "PROVISION", state="REQUESTING", task={"size": 2})
            s.provisioning.put(*run, "DEPROVISION", state="DONE")
        clock.tick()
        with begin() as s:
            assert s.provisioning.move((*run, "PROVISION"), "REQUESTING", "POLLING", attempts=1)
            assert not s.provisioning.move((*run, "PROVISION"), "REQUESTING", "FAILED")
            task = s.provisioning.get(*run, "PROVISION")
            assert task is not None
            assert (task.state, task.attempts, task.task, task.updated) == ("POLLING", 1, {"size": 2}, clock.time)
            assert s.provisioning.unfinished() == [task]
            with pytest.raises(TypeError, match="state"):
                s.provisioning.move((*run, "PROVISION"), "POLLING", "DONE", state="x")
        with begin() as s:
            s.provisioning.delete(*run, "PROVISION")
            assert s.provisioning.unfinished() == []
            with pytest.raises(NotFoundError):
                s.provisioning.move((*run, "PROVISION"), "POLLING", "DONE")


class TestRemoteRuntimes:
    def test_pages_begin_behind_a_run(self, begin: Begin, clock: Clock) -> None:
        runs = [PROGRAM.run(new_run_id(clock.tick())) for _ in range(4)]
        with begin() as s:
            for run in runs:
                s.remote_runtimes.write(*run, options={"host": run.run})
        with begin() as s:
            s.remote_runtimes.delete(*runs[1])
            found = s.remote_runtimes.page(runs[0])
            assert [one.run for one in found.items] == [runs[2].run, runs[3].run]
            kept = s.remote_runtimes.get(*runs[2])
            assert kept is not None
            assert (kept.options, kept.added) == ({"host": runs[2].run}, clock.time)
            assert s.remote_runtimes.get(*runs[1]) is None
            first = s.remote_runtimes.page(limit=2)
            assert len(first.items) == 2
            assert len(s.remote_runtimes.page(limit=2, cursor=first.next).items) == 1

    def test_bad_run_ids_are_refused(self, begin: Begin) -> None:
        with begin() as s, pytest.raises(ValueError, match="UUIDv7"):
            s.remote_runtimes.write(*PROGRAM.run("1"))
