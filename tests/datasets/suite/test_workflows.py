"""The datasets `workflow_tokens`, `workflow_nodes` and `workflow_statistics`."""

from __future__ import annotations

import datetime as dt

import pytest

from structable.datasets import ProgramRef, new_run_id
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock

FLOW = ProgramRef("default", "shop", "workflow", "nightly")


class TestWorkflows:
    def test_token_is_the_last_one(self, begin: Begin) -> None:
        run = new_run_id()
        with begin() as s:
            assert s.workflows.token(FLOW, run) == {}
            s.workflows.set_token(FLOW, run, {"rows": 1})
            s.workflows.set_token(FLOW, run, {"files": ["a"]})
        with begin() as s:
            assert s.workflows.token(FLOW, run) == {"files": ["a"]}
            assert s.workflows.token(FLOW, new_run_id()) == {}

    def test_stale_states_of_nodes_are_ignored(self, begin: Begin, clock: Clock) -> None:
        run, child = new_run_id(), new_run_id()
        with begin() as s:
            assert s.workflows.node(FLOW, run, "load", "RUNNING", source=3, child_run=child)
        with begin() as s:
            assert not s.workflows.node(FLOW, run, "load", "STARTING", source=2)
            assert s.workflows.node(FLOW, run, "check", "FAILED", source=4, failure={"reason": "no rows"})
        with begin() as s:
            check, load = s.workflows.nodes(FLOW, run)
            assert (load.status, load.child_run, load.updated) == ("RUNNING", child, clock.time)
            assert (check.node, check.failure) == ("check", {"reason": "no rows"})
            assert s.workflows.nodes(FLOW, child) == []

    def test_bad_names_are_refused(self, begin: Begin) -> None:
        with begin() as s:
            with pytest.raises(ValueError, match="UUIDv7"):
                s.workflows.set_token(FLOW, "1", {})
            with pytest.raises(ValueError, match="node"):
                s.workflows.node(FLOW, new_run_id(), "", "RUNNING", source=1)


class TestWorkflowStatistics:
    def test_summary_has_nearest_ranks(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        with begin() as s:
            for number in range(10):
                version = "1" if number < 5 else "2"
                at = start + dt.timedelta(minutes=number)
                s.workflow_statistics.record(
                    *FLOW[:2], version, FLOW.program, at, new_run_id(at), seconds=10 * number, programs={"load": number}
                )
        with begin() as s:
            end = start + dt.timedelta(hours=1)
            found = s.workflow_statistics.summary(FLOW, start, end, (10, 50, 99, 100))
            assert (found.runs, found.mean) == (10, 45.0)
            assert found.percentiles == {10: 0, 50: 40, 99: 90, 100: 90}
            assert s.workflow_statistics.summary(FLOW, start, end, version="2").runs == 5
            assert s.workflow_statistics.summary(FLOW, end, end).percentiles == {}
            some = s.workflow_statistics.between(FLOW, start + dt.timedelta(minutes=4), start + dt.timedelta(minutes=6))
            assert [row.seconds for row in some] == [40, 50]

    def test_neighbours_of_all_versions(self, begin: Begin, clock: Clock) -> None:
        runs = [new_run_id(clock.time) for _ in range(5)]
        with begin() as s:
            for number, run in enumerate(runs):
                s.workflow_statistics.record(
                    *FLOW[:2], str(number % 2), FLOW.program, clock.tick(), run, seconds=number
                )
        with begin() as s:
            found = s.workflow_statistics.neighbours(FLOW, runs[1], 2)
            assert [row.run for row in found] == runs[:4]
            assert s.workflow_statistics.neighbours(FLOW, new_run_id(), 2) == []

    def test_second_record_of_a_run_counts(self, begin: Begin, clock: Clock) -> None:
        run = new_run_id()
        with begin() as s:
            for seconds in (5, 7):
                s.workflow_statistics.record(*FLOW[:2], "1", FLOW.program, clock.time, run, seconds=seconds)
        with begin() as s:
            assert [row.seconds for row in s.workflow_statistics.neighbours(FLOW, run, 0)] == [7]

    def test_bad_numbers_are_refused(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            with pytest.raises(ValueError, match="at least 0"):
                s.workflow_statistics.record(*FLOW[:2], "1", FLOW.program, clock.time, new_run_id(), seconds=-1)
            with pytest.raises(ValueError, match="percentile"):
                s.workflow_statistics.summary(FLOW, clock.time, clock.time, [0])
