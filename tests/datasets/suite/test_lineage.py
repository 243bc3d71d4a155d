"""The datasets `lineage_by_dataset`, `lineage_by_program`, `usage_by_program` and `usage_by_dataset`."""

from __future__ import annotations

import datetime as dt

import pytest

from structable.datasets import DatasetRef, ProgramRef, new_run_id
from structable.datasets.tables.lineage import Access
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock

WEB = ProgramRef("default", "shop", "service", "web")
MAIL = WEB._replace(application="mail")
ORDERS, STOCK = DatasetRef("default", "orders"), DatasetRef("default", "stock")
DAY = dt.timedelta(days=1)


class TestLineage:
    def test_both_directions_agree(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        runs = [WEB.run(new_run_id(start + number * DAY)) for number in range(3)]
        with begin() as s:
            for number, run in enumerate(runs):
                s.lineage.access(run, ORDERS, Access.READ, start + number * DAY)
                s.lineage.access(run, ORDERS, Access.READ, start + number * DAY)
            s.lineage.access(runs[0], STOCK, Access.WRITE, start)
        with begin() as s:
            found = s.lineage.of_dataset(ORDERS, start, start + 2 * DAY)
            assert [one.run_ref for one in found] == runs[:2]
            assert s.lineage.of_program(WEB, start, start + 2 * DAY) == [
                found[0],
                *s.lineage.of_run(runs[0])[1:],
                found[1],
            ]
            assert [(one.dataset, one.access) for one in s.lineage.of_run(runs[0])] == [
                ("orders", Access.READ),
                ("stock", Access.WRITE),
            ]
            assert s.lineage.of_run(MAIL.run(runs[0].run)) == []

    def test_old_uses_expire_in_both_directions(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        runs = [WEB.run(new_run_id(start)) for _ in range(5)]
        with begin() as s:
            for number, run in enumerate(runs):
                s.lineage.access(run, ORDERS, at=start + number * DAY)
        before = (start + 3 * DAY).date()
        with begin() as s:
            assert s.lineage.expire(before, limit=2) == 2
            assert s.lineage.expire(before, limit=2) == 1
            assert s.lineage.expire(before, limit=2) == 0
        with begin() as s:
            assert {one.run_ref for one in s.lineage.of_dataset(ORDERS, start, start + 9 * DAY)} == set(runs[3:])
            assert [bool(s.lineage.of_run(run)) for run in runs] == [False, False, False, True, True]

    def test_bad_names_are_refused(self, begin: Begin) -> None:
        with begin() as s:
            with pytest.raises(ValueError, match="UUIDv7"):
                s.lineage.access(WEB.run("1"), ORDERS)
            with pytest.raises(ValueError, match="dataset"):
                s.lineage.access(WEB.run(new_run_id()), DatasetRef("default", ""))


class TestUsage:
    def test_both_directions_agree(self, begin: Begin) -> None:
        with begin() as s:
            s.usage.register(WEB, ORDERS)
            s.usage.register(WEB, STOCK)
            s.usage.register(MAIL, ORDERS)
            s.usage.register(MAIL, ORDERS)
        with begin() as s:
            assert s.usage.datasets_of(WEB) == [ORDERS, STOCK]
            assert s.usage.programs_of(ORDERS) == [MAIL, WEB]
            assert s.usage.unregister(WEB) == 2
            assert s.usage.unregister(WEB) == 0
        with begin() as s:
            assert s.usage.programs_of(ORDERS) == [MAIL]
            assert s.usage.programs_of(STOCK) == []
