"""Leases, and the fences under them."""

from __future__ import annotations

import threading

import pytest

from structable.datasets import LeaseLostError, SystemData
from structable.spi import Isolation, Storage, TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.ticks import Ticks
from tests.waiting import until


class TestLeases:
    def test_free_lease_is_acquired_once(self, watching: SystemData) -> None:
        lease = watching.leases.acquire("a", "one", info={"host": "h"})
        assert lease is not None
        assert (lease.name, lease.owner, lease.token) == ("a", "one", 1)
        assert watching.leases.acquire("a", "two") is None
        assert watching.leases.acquire("a", "one") is None
        assert watching.leases.acquire("b", "two") is not None

    def test_released_lease_is_acquired_with_a_greater_token(self, watching: SystemData) -> None:
        first = watching.leases.acquire("a", "one")
        assert first is not None
        first.release()
        first.release()
        second = watching.leases.acquire("a", "two")
        assert second is not None
        assert second.token > first.token
        first.release()
        second.renew()
        with pytest.raises(LeaseLostError):
            first.renew()

    def test_lease_is_taken_when_its_beat_stood_still_for_the_ttl_of_its_row(
        self, watching: SystemData, ticks: Ticks
    ) -> None:
        first = watching.leases.acquire("a", "one", ttl=10)
        assert first is not None
        ticks.tick(1000)
        assert watching.leases.acquire("a", "two", ttl=1) is None  # the first look
        ticks.tick(9)
        assert watching.leases.acquire("a", "two", ttl=1) is None
        first.renew()
        ticks.tick(9)
        assert watching.leases.acquire("a", "two", ttl=1) is None  # the beat moved
        ticks.tick(10)
        second = watching.leases.acquire("a", "two", ttl=1)
        assert second is not None
        assert second.token == first.token + 1
        with pytest.raises(LeaseLostError, match="'a'"):
            first.renew()

    def test_former_owner_commits_nothing(self, watching: SystemData, begin: Begin, ticks: Ticks) -> None:
        first = watching.leases.acquire("a", "one", ttl=1)
        assert first is not None
        with begin() as s:
            first.check(s.tx)
            s.namespaces.create("sales")
        watching.leases.acquire("a", "two")
        ticks.tick(1)
        second = watching.leases.acquire("a", "two")
        assert second is not None

        def act() -> None:
            with begin() as s:
                s.namespaces.create("other")
                first.check(s.tx)

        with pytest.raises(LeaseLostError):
            act()
        with begin() as s:
            second.check(s.tx)
            assert s.namespaces.get("other") is None

    @pytest.mark.parametrize("way", ["takeover", "release"])
    def test_transaction_that_checked_conflicts_with(
        self, way: str, watching: SystemData, begin: Begin, ticks: Ticks
    ) -> None:
        lease = watching.leases.acquire("a", "one", ttl=1)
        assert lease is not None
        watching.leases.acquire("a", "two")
        ticks.tick(1)

        def act() -> None:
            with begin() as s:
                s.namespaces.get("default")  # takes the snapshot
                if way == "release":
                    lease.release()
                else:
                    assert watching.leases.acquire("a", "two") is not None
                lease.check(s.tx)

        with pytest.raises((TransactionConflictError, LeaseLostError)):
            act()

    def test_renewal_leaves_transactions_alone(self, watching: SystemData, begin: Begin) -> None:
        lease = watching.leases.acquire("a", "one")
        assert lease is not None
        with watching.transaction(Isolation.SNAPSHOT) as s:
            lease.check(s.tx)
            lease.renew()
        lease.renew()

    def test_one_of_many_acquires_it(self, watching: SystemData) -> None:
        found = []
        threads = [
            threading.Thread(target=lambda n=n: found.append(watching.leases.acquire("a", f"owner {n}")))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert len([one for one in found if one is not None]) == 1

    def test_kept_lease_is_renewed_until_released(self, system: SystemData) -> None:
        before = threading.active_count()
        lease = system.leases.acquire("a", "one", ttl=1, keep=True)
        assert lease is not None

        def beat() -> object:
            row = system.storage.table("sys_leases").read(("a",))
            assert row is not None
            return row["beat"]

        until(lambda: beat() != 0)
        lease.release()
        until(lambda: threading.active_count() <= before)

    def test_close_ends_the_keeper(self, system: SystemData, shared_store: Storage) -> None:
        with SystemData.open(shared_store) as other:
            assert other.leases.acquire("a", "one", ttl=1, keep=True) is not None
        until(lambda: not [one for one in threading.enumerate() if one.name == "lease a"])

    @pytest.mark.parametrize("ttl", [0, -1, 1.5, True, 2**31])
    def test_bad_ttl_is_refused(self, system: SystemData, ttl: int) -> None:
        with pytest.raises(ValueError, match="ttl"):
            system.leases.acquire("a", "one", ttl)

    def test_bad_names_are_refused(self, system: SystemData) -> None:
        with pytest.raises(ValueError, match="lease"):
            system.leases.acquire("", "one")
        with pytest.raises(ValueError, match="owner"):
            system.leases.acquire("a", "")


class TestFences:
    @pytest.mark.parametrize(("first", "second"), [("share", "exclude"), ("exclude", "share"), ("exclude", "exclude")])
    def test_excluder_conflicts_with(self, first: str, second: str, system: SystemData, begin: Begin) -> None:
        def overlap() -> None:
            with begin() as s:
                s.namespaces.get("default")  # takes the snapshot
                with begin() as other:
                    getattr(other.fences, first)("x")
                getattr(system.fences, second)(s.tx, "x")

        with pytest.raises(TransactionConflictError):
            overlap()

    def test_scopes_are_apart(self, system: SystemData) -> None:
        with system.transaction() as s:
            s.namespaces.get("default")
            with system.transaction() as other:
                other.fences.exclude("x")
            s.fences.exclude("y")
            s.fences.share("y")
