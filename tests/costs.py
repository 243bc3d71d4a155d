"""What the tests of each file and store took, and how much of it was waiting: the end of `make test` shows it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from dataclasses import astuple, dataclass, field

import pytest

from tests.processors import Processors

_SHOWN = 25
_STORES = ("hbase", "postgresql", "leveldb", "memory")
"""The store of a test is the first of these that its name has."""


@dataclass(slots=True)
class _Cost:
    tests: int = 0
    seconds: float = 0.0
    worked: float = 0.0


@dataclass(slots=True, eq=False)  # pytest hashes its plugins
class Costs:
    """Measures each phase of a test where it runs, and adds the phases up where the run is reported.

    The work is that of pytest's process and of those that it has ended; servers and JVMs that live on count as waiting.
    """

    _files: dict[str, _Cost] = field(default_factory=lambda: defaultdict(_Cost))
    _stores: dict[str, _Cost] = field(default_factory=lambda: defaultdict(_Cost))
    _worked: float = 0.0
    _processors: Processors | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            self._processors = Processors.started()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._worked = self._worked, sum(os.times()[:4])
        vars(report)["worked"] = self._worked - before  # comes along from xdist's processes
        return report

    def pytest_runtest_logstart(self) -> None:
        self._worked = sum(os.times()[:4])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        store = next((store for store in _STORES if store in report.nodeid), "no store")
        for cost in (self._files[report.nodeid.partition("::")[0]], self._stores[store]):
            cost.tests += report.when == "call"
            cost.seconds += report.duration
            cost.worked += getattr(report, "worked", report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        kinds = self._processors.stop() if self._processors is not None else {}
        if len(self._files) < 2:
            return
        total = _Cost(*map(sum, zip(*map(astuple, self._files.values()), strict=True)))
        longest = sorted(self._files.items(), key=lambda item: -item[1].seconds)[:_SHOWN]
        for title, costs in (
            ("longest files", [*longest, ("all files", total)]),
            ("stores", sorted(self._stores.items())),
        ):
            terminalreporter.section(title)
            terminalreporter.write_line("seconds  waiting  tests   worked")
            for name, cost in costs:
                waiting = max(cost.seconds - cost.worked, 0)
                terminalreporter.write_line(
                    f"{cost.seconds:7.1f}  {waiting:7.1f}  {cost.tests:5}  {cost.worked:7.1f}  {name}"
                )
        terminalreporter.section("processor seconds of all processes")
        for kind, seconds in sorted(kinds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{seconds:7.1f}  {kind}")
