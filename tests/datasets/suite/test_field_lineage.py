"""The datasets `lineage_endpoints`, `lineage_operations`, `lineage_destinations` and `lineage_summaries`."""

from __future__ import annotations

import datetime as dt

import pytest

from structable.datasets import (
    DatasetRef,
    Direction,
    EndpointField,
    FieldLineage,
    FieldOperation,
    ProgramRef,
    RunOperations,
    Session,
    new_run_id,
)
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock

ETL = ProgramRef("default", "etl", "workflow", "daily")
PEOPLE, CITIES, REPORT = (DatasetRef("default", name) for name in ("people", "cities", "report"))
DAY = dt.timedelta(days=1)
OPERATIONS = (
    FieldOperation("read people", outputs=("first", "last", "zip"), source=PEOPLE),
    FieldOperation("read cities", outputs=("zip", "city"), source=CITIES),
    FieldOperation("join names", inputs=(("read people", "first"), ("read people", "last")), outputs=("name",)),
    FieldOperation("look up", inputs=(("read people", "zip"), ("read cities", "city")), outputs=("city",)),
    FieldOperation("write", inputs=(("join names", "name"), ("look up", "city")), destination=REPORT),
)
INFO = FieldLineage([PEOPLE, CITIES], {REPORT: {"format": "csv"}}, OPERATIONS)
COPY = FieldLineage(
    [PEOPLE],
    [REPORT],
    [
        FieldOperation("read", outputs=("last",), source=PEOPLE),
        FieldOperation("write", inputs=(("read", "last"),), destination=REPORT),
    ],
)


def of(dataset: DatasetRef, *names: str) -> set[EndpointField]:
    return {EndpointField(*dataset, name) for name in names}


def kept(s: Session) -> list[int]:
    names = ("endpoints", "operations", "destinations", "summaries")
    return [s.tx.table(f"sys_lineage_{name}").count() for name in names]


class TestFieldLineage:
    def test_fields_are_traced_in_both_directions(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        with begin() as s:
            s.field_lineage.add(ETL.run(new_run_id(start)), INFO)
        with begin() as s:
            span = (start, start + DAY)
            assert s.field_lineage.fields(REPORT, *span) == {"name", "city"}
            assert s.field_lineage.fields(PEOPLE, *span) == set()
            assert s.field_lineage.incoming(EndpointField(*REPORT, "name"), *span) == of(PEOPLE, "first", "last")
            assert s.field_lineage.incoming(EndpointField(*REPORT, "city"), *span) == of(PEOPLE, "zip") | of(
                CITIES, "city"
            )
            assert s.field_lineage.outgoing(EndpointField(*PEOPLE, "zip"), *span) == of(REPORT, "city")
            assert s.field_lineage.outgoing(EndpointField(*CITIES, "zip"), *span) == set()
            assert s.field_lineage.incoming(EndpointField(*REPORT, "absent"), *span) == set()

    def test_times_are_those_of_runs(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        runs = [ETL.run(new_run_id(start + number * DAY)) for number in range(3)]
        with begin() as s:
            for run, info in zip(runs, (INFO, COPY, INFO), strict=True):
                s.field_lineage.add(run, info)
        with begin() as s:
            lineage = s.field_lineage
            assert lineage.fields(REPORT, start + DAY, start + 2 * DAY) == {"last"}
            assert lineage.fields(REPORT, start, start + 2 * DAY) == {"name", "city", "last"}
            assert lineage.outgoing(EndpointField(*PEOPLE, "last"), start, start + 3 * DAY) == of(
                REPORT, "name", "last"
            )
            found = lineage.operations(Direction.INCOMING, REPORT, start, start + 3 * DAY)
            assert found == [
                RunOperations(OPERATIONS, (runs[0], runs[2])),
                RunOperations(tuple(COPY.operations), (runs[1],)),
            ]
            assert lineage.operations(Direction.OUTGOING, CITIES, start + DAY, start + 2 * DAY) == []

    def test_equal_operations_are_kept_once(self, begin: Begin) -> None:
        runs = [ETL.run(new_run_id()) for _ in range(3)]
        with begin() as s:
            first, *others = [s.field_lineage.add(run, INFO) for run in runs]
            assert others == [first, first]
            assert len(first) == 64
        with begin() as s:
            assert kept(s) == [9, 1, 1, 6]
            other = s.field_lineage.add(runs[0], COPY)
            assert other != first

    def test_old_endpoints_expire_and_operations_with_the_last(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        with begin() as s:
            for number, info in enumerate((INFO, COPY, INFO)):
                s.field_lineage.add(ETL.run(new_run_id(start + number * DAY)), info)
            assert kept(s) == [8, 2, 2, 8]
        with begin() as s:
            assert s.field_lineage.expire((start + DAY).date()) == 3
            assert kept(s) == [5, 2, 2, 8]
        with begin() as s:
            assert s.field_lineage.expire((start + 2 * DAY).date(), limit=1) == 1
            assert s.field_lineage.expire((start + 2 * DAY).date(), limit=1) == 1
            assert s.field_lineage.expire((start + 2 * DAY).date(), limit=1) == 0
            assert kept(s) == [3, 1, 1, 6]

    def test_operations_of_a_run_are_replaced(self, begin: Begin) -> None:
        run = ETL.run(new_run_id())
        with begin() as s:
            s.field_lineage.add(run, INFO)
            s.field_lineage.add(run, INFO)
        with begin() as s:
            s.field_lineage.add(run, COPY)
            assert kept(s) == [3, 2, 2, 8]
        with begin() as s:
            s.field_lineage.add(run, FieldLineage([CITIES], [], [FieldOperation("r", outputs=("zip",), source=CITIES)]))
            assert kept(s) == [3, 2, 1, 2]

    def test_expiry_and_a_new_run_that_overlap_conflict(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        with begin() as s:
            s.field_lineage.add(ETL.run(new_run_id(start)), INFO)
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.namespaces.get("default")
            with begin() as other:
                other.field_lineage.add(ETL.run(new_run_id(start + 2 * DAY)), INFO)
            s.field_lineage.expire((start + DAY).date())
        with begin() as s:
            assert kept(s) == [6, 1, 1, 6]

    def test_two_expiries_that_overlap_conflict(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        before = (start + DAY).date()
        with begin() as s:
            s.field_lineage.add(ETL.run(new_run_id(start)), COPY)
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.namespaces.get("default")
            with begin() as other:
                other.field_lineage.expire(before, limit=1)
            s.field_lineage.expire(before, limit=1)
        with begin() as s:
            assert kept(s) == [1, 1, 1, 2]

    @pytest.mark.parametrize(
        ("operations", "problem"),
        [
            ([], "no operation"),
            ([FieldOperation("t", outputs=("x",))], "no operation"),
            ([OPERATIONS[0], OPERATIONS[0]], "twice"),
            ([OPERATIONS[4]], "which no earlier operation produces"),
            ([OPERATIONS[0], FieldOperation("t", inputs=(("read people", "age"),))], "uses 'age'"),
            ([FieldOperation("r", inputs=(("r", "x"),), source=PEOPLE)], "neither inputs nor a destination"),
            ([FieldOperation("r", source=PEOPLE, destination=REPORT)], "neither inputs nor a destination"),
            ([FieldOperation("w", outputs=("x",), destination=REPORT)], "no outputs"),
            ([FieldOperation("r", outputs=("",), source=PEOPLE)], "field"),
            ([FieldOperation("", outputs=("x",), source=PEOPLE)], "operation"),
            ([FieldOperation("r", outputs=("x",), source=CITIES)], "sources"),
            ([OPERATIONS[0], FieldOperation("w", destination=REPORT)], "destinations"),
        ],
    )
    def test_operations_that_do_not_fit_are_refused(
        self, begin: Begin, operations: list[FieldOperation], problem: str
    ) -> None:
        with begin() as s, pytest.raises(ValueError, match=problem):
            s.field_lineage.add(ETL.run(new_run_id()), FieldLineage([PEOPLE], [], operations))
        with begin() as s:
            assert kept(s) == [0, 0, 0, 0]
