"""`Leader`."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from structable.datasets import Leader, Lease, LeaseLostError, SystemData
from structable.datasets.coordination import leader
from structable.datasets.coordination.leases import Leases
from structable.spi import Listener, StorageUnavailableError, connect
from tests.waiting import PROMPT


class TestLeader:
    @pytest.mark.parametrize("by_storage", [False, True])
    def test_body_runs_under_the_lease_which_is_released(self, system: SystemData, by_storage: bool) -> None:
        def body(lease: Lease) -> int:
            assert system.leases.acquire("job", "other") is None
            with system.transaction() as s:
                lease.check(s.tx)
            return lease.token

        place = system.storage if by_storage else system
        assert Leader(place, "job").run(body) == 1
        assert Leader(place, "job", owner="me", ttl=1).run(lambda lease: (lease.owner, lease.token)) == ("me", 2)

    def test_exception_of_the_body_releases_it(self, system: SystemData) -> None:
        def body(lease: Lease) -> None:
            raise KeyError("x")

        with pytest.raises(KeyError):
            Leader(system, "job").run(body)
        assert system.leases.acquire("job", "other") is not None

    def test_one_leads_at_a_time(self, system: SystemData) -> None:
        leading = threading.Lock()
        tokens = []

        def body(lease: Lease) -> None:
            assert leading.acquire(blocking=False)
            tokens.append(lease.token)
            leading.release()

        threads = [threading.Thread(target=Leader(system, "job", ttl=1).run, args=(body,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert tokens == [1, 2, 3]

    def test_candidate_is_woken_by_the_release(self, system: SystemData, monkeypatch: pytest.MonkeyPatch) -> None:
        """It listens, and never sleeps; a lease that is released wakes those who listen."""
        listening = threading.Event()

        def listen(leases: Leases, name: str) -> Listener:
            listener = original(leases, name)
            listening.set()
            return listener

        original = Leases.listen
        monkeypatch.setattr(Leases, "listen", listen)
        monkeypatch.setattr(leader, "time", SimpleNamespace(sleep=None))
        lease = system.leases.acquire("job", "other", ttl=60)
        assert lease is not None
        tokens: list[int] = []
        candidate = threading.Thread(target=Leader(system, "job").run, args=(lambda one: tokens.append(one.token),))
        candidate.start()
        listening.wait()
        with system.leases.listen("job") as listener:
            lease.release()
            assert listener.wait(PROMPT)
        candidate.join()
        assert tokens == [2]

    @pytest.mark.parametrize("by_storage", [False, True])
    def test_candidate_of_a_closed_storage_ends(self, by_storage: bool) -> None:
        with connect("memory://") as storage:
            SystemData.create(storage)
            system = SystemData.open(storage)
        with pytest.raises(StorageUnavailableError, match="closed"):
            Leader(storage if by_storage else system, "job").run(lambda lease: None)

    def test_stopped_leader_commits_nothing(self, system: SystemData) -> None:
        def body(lease: Lease) -> None:
            lease.stop_keeping()  # as a process that is stopped
            Leader(system, "job", ttl=1).run(lambda second: None)
            with system.transaction() as s:
                s.namespaces.create("zombie")
                lease.check(s.tx)

        with pytest.raises(LeaseLostError):
            Leader(system, "job", ttl=1).run(body)
        with system.transaction() as s:
            assert s.namespaces.get("zombie") is None
