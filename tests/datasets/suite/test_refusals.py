"""An operation that raises has written nothing, whichever of its rows or arguments is refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from structable.datasets import (
    DatasetRef,
    FieldLineage,
    FieldOperation,
    MetadataScope,
    ProgramRef,
    ProvidedPlugin,
    Run,
    RunStatus,
    ScheduleStatus,
    Session,
    SystemData,
    new_run_id,
    program_trigger,
)
from structable.spi import Storage
from structable.spi.authors import MAX_ROW_SIZE
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock
from tests.datasets.support.keys import Keys

NAIVE = dt.datetime(2026, 1, 5, 12)
NOW = NAIVE.replace(tzinfo=dt.UTC)
NOT_JSON = {"a": float("nan")}
WEB = ProgramRef("default", "shop", "service", "web")
READ = FieldOperation("read", outputs=("a",), source=DatasetRef("default", "people"))
SCHEDULE = ("default", "shop", "nightly")
LONG = ProgramRef("default", "x" * 256, "service", "web").run(new_run_id())
EMPTY = ProgramRef("default", "shop", "service", "").run(new_run_id())


@pytest.fixture
def system(shared_store: Storage, system: SystemData, clock: Clock) -> SystemData:
    """Return the datasets with master keys, and what the refused operations are about."""
    system = SystemData.open(shared_store, clock=clock, keys=Keys())
    with system.transaction() as s:
        s.applications.deploy("default", "shop", "1", {})
        s.applications.deploy("default", "shop", "2", {})
        s.artifacts.add("default", "jdbc", "1-SNAPSHOT", plugins=[ProvidedPlugin("sink", "jdbc")])
        s.metadata.set("shop", MetadataScope.USER, {"owner": "ada"}, ["red"])
        s.secrets.put("default", "password", b"old")
        s.schedules.add(*SCHEDULE, {"triggers": "or"}, triggers=["time:nightly", program_trigger(WEB)])
        s.schedules.add("default", "shop", "after", {}, triggers=[program_trigger(WEB)])
        s.schedules.set_status(*SCHEDULE, ScheduleStatus.SCHEDULED)
        _notify(s, "first")
    return system


def _notify(s: Session, notification: object) -> object:
    schedule = s.schedules.get(*SCHEDULE)
    assert schedule is not None
    return s.schedule_jobs.notify(schedule, notification, timeout=dt.timedelta(hours=1))


def _lineage(properties: dict[str, str]) -> FieldLineage:
    return FieldLineage({DatasetRef("default", "people"): properties}, [], [READ])


def _wide_lineage() -> FieldLineage:
    """Return operations whose summary is larger than a row, although they are not."""
    source, fields = DatasetRef("default", "\1" * 255), tuple(map(str, range(5_500)))  # 6 bytes of JSON a character
    operations = [
        FieldOperation("read", outputs=fields, source=source),
        FieldOperation("sum", inputs=tuple(("read", field) for field in fields), outputs=("sum",)),
        FieldOperation("write", inputs=(("sum", "sum"),), destination=DatasetRef("default", "sums")),
    ]
    return FieldLineage([source], [DatasetRef("default", "sums")], operations)


REFUSED: dict[str, Callable[[Session], object]] = {
    "value of a secret": lambda s: s.secrets.put("default", "password", b"x" * MAX_ROW_SIZE),
    "properties of a secret": lambda s: s.secrets.put("default", "password", b"new", properties=NOT_JSON),
    "plugin of a snapshot": lambda s: s.artifacts.add(
        "default", "jdbc", "1-SNAPSHOT", plugins=[ProvidedPlugin("sink", "jdbc", NOT_JSON)]
    ),
    "trigger": lambda s: s.schedules.add("default", "shop", "new", {}, triggers=["time:x", "a\0b"]),
    "new trigger": lambda s: s.schedules.update(*SCHEDULE, {}, triggers=["a\0b"]),
    "time of a dropped program": lambda s: s.schedules.drop_program(WEB, at=NAIVE),
    "late notification": lambda s: _notify(s, NOT_JSON),
    "properties of an endpoint": lambda s: s.field_lineage.add(WEB.run(new_run_id()), _lineage({"a": "\ud800"})),
    "summary of lineage": lambda s: s.field_lineage.add(WEB.run(new_run_id()), _wide_lineage()),
    "profile of a run": lambda s: s.runs.provision(WEB, new_run_id(), version="1", source=1, profile="p" * 1_990),
    "time of a deleted version": lambda s: s.applications.delete_version("default", "shop", "2", at=NAIVE),
    "application of a token": lambda s: s.workflows.set_token(LONG.ref, LONG.run, {}),
    "program of a node": lambda s: s.workflows.node(EMPTY.ref, EMPTY.run, "load", "RUNNING", source=1),
    "application of statistics": lambda s: s.workflow_statistics.record(
        "default", LONG.application, "1", "web", NOW, LONG.run, seconds=1
    ),
    "program of statistics": lambda s: s.workflow_statistics.record(
        "default", "shop", "1", "", NOW, EMPTY.run, seconds=1
    ),
    "application of a task": lambda s: s.provisioning.put(*LONG, "PROVISION", state="NEW"),
    "program of a remote runtime": lambda s: s.remote_runtimes.write(*EMPTY),
    "application of a heartbeat": lambda s: s.heartbeats.beat(
        Run(**LONG._asdict(), status=RunStatus.RUNNING, source=1)
    ),
    "text of triggers": lambda s: s.schedules.update(*SCHEDULE, {}, triggers="time:nightly"),
    "text of tags": lambda s: s.metadata.set("shop", MetadataScope.USER, {}, "red"),
    "text of more tags": lambda s: s.metadata.add_tags("shop", MetadataScope.USER, "red"),
    "text of namespaces": lambda s: s.heartbeats.between("default", NOW, NOW),
    "text of capabilities": lambda s: s.capabilities.enabled("cdc"),
    "property": lambda s: s.metadata.set("shop", MetadataScope.USER, {"size": 7}, []),  # type: ignore[dict-item]
}


def rows(s: Session, system: SystemData) -> dict[str, list[dict[str, object]]]:
    """Return the rows of all tables but the fences, on which nothing depends."""
    return {
        name: [dict(row) for row in s.tx.table(name).scan()]
        for name in system.table_names
        if not name.endswith("fences")
    }


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_refused_operation_writes_nothing(
    system: SystemData, begin: Begin, clock: Clock, refused: Callable[[Session], object]
) -> None:
    clock.tick(dt.timedelta(days=1).total_seconds())
    with begin() as s:
        before = rows(s, system)
        with pytest.raises(ValueError):  # noqa: PT011 - each has an error of its own
            refused(s)
        assert rows(s, system) == before
        assert s.secrets.get("default", "password") == b"old"
