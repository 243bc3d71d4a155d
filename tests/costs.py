"""What the tests of each file took, and how much of it was waiting: the end of `make test` shows the longest."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import astuple, dataclass, field

import pytest

__all__ = ["Costs"]

_SHOWN = 25


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

    _files: dict[str, _Cost] = field(default_factory=dict)
    _worked: float = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._worked = self._worked, sum(os.times()[:4])
        vars(report)["worked"] = self._worked - before  # comes along from xdist's processes
        return report

    def pytest_runtest_logstart(self) -> None:
        self._worked = sum(os.times()[:4])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self._files.setdefault(report.nodeid.partition("::")[0], _Cost())
        cost.tests += report.when == "call"
        cost.seconds += report.duration
        cost.worked += getattr(report, "worked", report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        longest = sorted(self._files.items(), key=lambda item: -item[1].seconds)[:_SHOWN]
        if len(self._files) < 2:
            return
        terminalreporter.section("longest files")
        terminalreporter.write_line("seconds  waiting  tests  file")
        total = _Cost(*map(sum, zip(*map(astuple, self._files.values()), strict=True)))
        for name, cost in [*longest, ("all files", total)]:
            waiting = max(cost.seconds - cost.worked, 0)
            terminalreporter.write_line(f"{cost.seconds:7.1f}  {waiting:7.1f}  {cost.tests:5}  {name}")
