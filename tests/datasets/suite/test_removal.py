"""`SystemData.remove_application` and `remove_namespace`."""

from __future__ import annotations

import pytest

from structable.datasets import NotFoundError, ProgramRef, ScheduleStatus, SystemData, new_run_id
from structable.datasets.system import removal
from structable.datasets.tables.runs import RUNS, Run, RunStatus
from structable.spi import Storage, TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock

WEB = ProgramRef("sales", "shop", "service", "web")


def fill(begin: Begin, runs: int = 3) -> None:
    """Make a namespace with two applications, and things of theirs in several tables."""
    with begin() as s:
        s.namespaces.create("sales")
        for application in ("shop", "mail"):
            program = WEB._replace(application=application)
            s.applications.deploy("sales", application, "1", {})
            s.application_state.put("sales", application, "offset", b"1")
            for _ in range(runs):
                run = new_run_id()
                s.runs.provision(program, run, version="1", source=1)
                s.workflows.set_token(program, run, {"a": 1})
                beating = s.runs.get(program, run)
                assert beating is not None
                s.heartbeats.beat(beating)
        s.applications.deploy("default", "shop", "1", {})


def counts(storage: Storage) -> dict[str, int]:
    """Return the rows of each table that has some, fences left out."""
    found = {name: storage.table(name).count() for name in storage.admin.list() if name != "sys_fences"}
    return {name: count for name, count in found.items() if count}


def test_application_goes_with_all_that_is_its_own(begin: Begin, system: SystemData) -> None:
    fill(begin)
    before = counts(system.storage)
    system.remove_application("sales", "shop")
    after = counts(system.storage)
    own = {"sys_applications": 1, "sys_application_versions": 1, "sys_application_history": 1}
    own |= {"sys_application_state": 1, "sys_runs": 3, "sys_workflow_tokens": 3, "sys_heartbeats": 3}
    changed = {name: before[name] - after.get(name, 0) for name in before}
    shards = changed.pop("sys_run_counts")
    assert shards >= 1
    assert {name: count for name, count in changed.items() if count} == own
    with begin() as s:
        assert s.applications.latest("default", "shop") is not None
    system.remove_application("sales", "shop")
    assert counts(system.storage) == after


@pytest.mark.parametrize("cascade", ["application", "namespace"])
def test_jobs_of_schedules_go_too(begin: Begin, system: SystemData, cascade: str) -> None:
    fill(begin)
    made = {}
    with begin() as s:
        for application in ("shop", "mail"):
            made[application] = s.schedules.add("sales", application, "nightly", {}, triggers=[])
            s.schedules.set_status("sales", application, "nightly", ScheduleStatus.SCHEDULED)
            assert s.schedule_jobs.notify(made[application], 1) is not None
    if cascade == "application":
        system.remove_application("sales", "shop")
    else:
        system.remove_namespace("sales")
    with begin() as s:
        left = [job.schedule for partition in range(16) for job in s.schedule_jobs.jobs(partition)]
        assert left == (["sales/mail/nightly"] if cascade == "application" else [])
        assert s.schedule_jobs.notify(made["shop"], 2) is None


def test_namespace_goes_with_all_that_is_its_own(begin: Begin, system: SystemData) -> None:
    fill(begin)
    system.remove_namespace("sales")
    left = {"sys_namespaces": 2, "sys_applications": 1, "sys_application_versions": 1, "sys_application_history": 1}
    assert counts(system.storage) == left
    system.remove_namespace("sales")
    assert counts(system.storage) == left


@pytest.mark.parametrize("adding", ["run", "state", "preferences"])
def test_what_an_application_gets_and_its_removal_exclude_each_other(
    begin: Begin, system: SystemData, adding: str
) -> None:
    fill(begin, runs=0)
    with pytest.raises((TransactionConflictError, NotFoundError)), begin() as s:  # noqa: PT012 - at the commit, or before
        s.applications.latest("sales", "shop")
        system.remove_namespace("sales")
        if adding == "run":
            s.runs.provision(WEB, new_run_id(), version="1", source=1)
        elif adding == "state":
            s.application_state.put("sales", "shop", "x", b"1")
        else:
            s.preferences.put(("sales", "shop"), {"a": 1})
    assert "sys_runs" not in counts(system.storage)
    assert "sys_preferences" not in counts(system.storage)


@pytest.mark.parametrize("name", ["", "A", None])
def test_bad_names_remove_nothing(begin: Begin, system: SystemData, name: str) -> None:
    with begin() as s:
        s.preferences.put((), {"a": 1})
    before = counts(system.storage)
    with pytest.raises(ValueError, match="namespace"):
        system.remove_namespace(name)
    with pytest.raises(ValueError, match="namespace"):
        system.remove_application(name, "shop")
    with pytest.raises(ValueError, match="application"):
        system.remove_application("default", "")
    assert counts(system.storage) == before


def test_second_call_completes_one_that_ended(
    begin: Begin, system: SystemData, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old runs go first, in chunks; the newest, and everything else, in the last transaction."""
    monkeypatch.setattr(removal, "KEPT_FOR_LAST", 2)
    monkeypatch.setattr(removal, "_CHUNK", 2)
    fill(begin, runs=0)
    runs = [new_run_id(clock.tick()) for _ in range(7)]
    kept = RUNS.named("sys_runs")(system.storage)
    kept.put_many(Run(**WEB._asdict(), run=run, status=RunStatus.KILLED, source=1) for run in runs)
    ended = RuntimeError("killed before the last transaction")

    def end(*_: object) -> None:
        raise ended

    with monkeypatch.context() as patched:
        patched.setattr(removal, "_remove_all", end)
        with pytest.raises(RuntimeError) as error:
            system.remove_namespace("sales")
    assert error.value is ended
    assert [run.run for run in kept.scan()] == runs[5:]
    with begin() as s:
        assert s.namespaces.get("sales") is not None
    system.remove_namespace("sales")
    assert kept.count() == 0
    with begin() as s:
        assert s.namespaces.get("sales") is None
