"""The datasets `peers`, `capabilities`, `external_positions`, `repositories`, `sync_states`, `log_files`."""

from __future__ import annotations

import datetime as dt

import pytest

from structable.datasets import (
    AlreadyExistsError,
    IllegalTransitionError,
    InUseError,
    InvalidCursorError,
    NotFoundError,
    StaleGenerationError,
)
from structable.datasets.tables.platform import PeerState, Side
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock

HOUR = dt.timedelta(hours=1)


class TestPeers:
    def test_pending_ones_are_decided_once(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            made = s.peers.add("east", uri="https://east", metadata={"region": "e"})
            assert (made.state, made.requested) == (PeerState.PENDING, clock.time)
            with pytest.raises(AlreadyExistsError):
                s.peers.add("east", uri="https://other")
            with pytest.raises(IllegalTransitionError):
                s.peers.decide("east", PeerState.PENDING)
        with begin() as s:
            assert s.peers.decide("east", PeerState.ACCEPTED).state is PeerState.ACCEPTED
            with pytest.raises(IllegalTransitionError):
                s.peers.decide("east", PeerState.REJECTED)
            with pytest.raises(NotFoundError):
                s.peers.decide("west", PeerState.ACCEPTED)

    def test_two_decisions_that_overlap_conflict(self, begin: Begin) -> None:
        with begin() as s:
            s.peers.add("east", uri="https://east")
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.peers.get("east")
            with begin() as other:
                other.peers.decide("east", PeerState.ACCEPTED)
            s.peers.decide("east", PeerState.REJECTED)
        with begin() as s:
            assert s.peers.require("east").state is PeerState.ACCEPTED

    def test_latest_sign_of_life_counts(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            s.peers.add("east", uri="https://east")
            s.peers.seen("east", clock.time)
            s.peers.seen("east", clock.time - HOUR)
        with begin() as s:
            assert s.peers.require("east").last_seen == clock.time
            assert [one.peer for one in s.peers.page().items] == ["east"]
            s.peers.delete("east")
            assert s.peers.get("east") is None
            with pytest.raises(NotFoundError):
                s.peers.seen("east")


class TestCapabilities:
    def test_one_operation_at_a_time(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            s.capabilities.begin("cdc", "ENABLE", {"version": 1})
            with pytest.raises(InUseError, match="ENABLE"):
                s.capabilities.begin("cdc", "DISABLE")
            opened = s.capabilities.operation("cdc")
            assert opened is not None
            assert opened.action == "ENABLE"
        with begin() as s:
            made = s.capabilities.finish("cdc", "ENABLED")
            assert (made.config, made.updated) == ({"version": 1}, clock.time)
            with pytest.raises(NotFoundError):
                s.capabilities.finish("cdc", "ENABLED")
            s.capabilities.begin("ml", "ENABLE")
            s.capabilities.finish("ml", "DISABLED")
        with begin() as s:
            assert s.capabilities.enabled(["cdc", "ml", "absent"]) == {"cdc"}
            assert s.capabilities.get("cdc") == made

    def test_two_that_begin_at_once_conflict(self, begin: Begin) -> None:
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.capabilities.get("cdc")
            with begin() as other:
                other.capabilities.begin("cdc", "ENABLE")
            s.capabilities.begin("cdc", "DISABLE")


class TestExternalPositions:
    def test_two_consumers_that_overlap_conflict(self, begin: Begin) -> None:
        with begin() as s:
            s.external_positions.put("events", "audit", "7")
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            assert s.external_positions.get("events", "audit") == "7"
            with begin() as other:
                other.external_positions.put("events", "audit", "9", expected="7")
            s.external_positions.put("events", "audit", "8", expected="7")
        with begin() as s:
            assert s.external_positions.get("events", "audit") == "9"

    def test_expected_position_must_be_stored(self, begin: Begin) -> None:
        with begin() as s:
            assert s.external_positions.get("events", "scheduler") is None
            s.external_positions.put("events", "scheduler", "5")
            with pytest.raises(StaleGenerationError):
                s.external_positions.put("events", "scheduler", "7", expected="4")
            s.external_positions.put("events", "scheduler", "7", expected="5")
            with pytest.raises(StaleGenerationError):
                s.external_positions.put("events", "other", "7", expected="5")
        with begin() as s:
            assert s.external_positions.get("events", "scheduler") == "7"


class TestSourceControl:
    def test_pages_by_name_and_by_time(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            s.source_control.set_repository("default", config={"url": "https://repo"})
            for name in ("b", "a", "c"):
                s.source_control.write("default", Side.STORE, "application", name, hash=name, synced=name != "c")
                clock.tick()
            s.source_control.write("default", Side.REPOSITORY, "application", "a", synced=True)
        with begin() as s:
            page = s.source_control.page("default", Side.STORE, limit=2)
            rest = s.source_control.page("default", Side.STORE, limit=2, cursor=page.next)
            assert [one.name for one in page.items + rest.items] == ["a", "b", "c"]
            recent = s.source_control.page("default", Side.STORE, order="modified", limit=2)
            older = s.source_control.page("default", Side.STORE, order="modified", limit=2, cursor=recent.next)
            assert [one.name for one in recent.items + older.items] == ["c", "a", "b"]
            assert older.next is None
            with pytest.raises(InvalidCursorError):
                s.source_control.page("default", Side.STORE, True, order="modified", cursor=recent.next)
            assert [one.name for one in s.source_control.page("default", Side.STORE, synced=True).items] == ["a", "b"]
            with pytest.raises(ValueError, match="order"):
                s.source_control.page("default", Side.STORE, order="size")
            assert s.source_control.mark_unsynced("default") == 3
            assert s.source_control.page("default", Side.STORE, synced=True).items == []
        with begin() as s:
            repository = s.source_control.repository("default")
            assert repository is not None
            assert repository.config == {"url": "https://repo"}
            s.source_control.delete_repository("default")
            assert s.source_control.repository("default") is None
            assert s.source_control.get("default", Side.STORE, "application", "a") is None
            with pytest.raises(NotFoundError):
                s.source_control.set_repository("absent", config={})


class TestLogFiles:
    def test_files_of_an_interval(self, begin: Begin, clock: Clock) -> None:
        start = clock.time
        with begin() as s:
            for number in range(5):
                s.log_files.add("web", start + number * HOUR, start + number * HOUR, file=f"log-{number}")
            s.log_files.add("other", start, start, file="other")
        with begin() as s:
            found = s.log_files.files("web", start + 1.5 * HOUR, start + 3 * HOUR)
            assert [one.file for one in found] == ["log-1", "log-2"]
            assert [one.file for one in s.log_files.files("web", start - HOUR, start)] == []

    def test_files_are_named_until_they_are_forgotten(self, begin: Begin, clock: Clock) -> None:
        day = dt.timedelta(days=1)
        with begin() as s:
            for number in range(3):
                s.log_files.add("web", clock.time, clock.time + number * day, file=str(number))
        before = (clock.time + 2 * day).date()
        with begin() as s:
            old = s.log_files.expired(before)
            assert [one.file for one in old] == ["0", "1"]
            assert len(s.log_files.expired(before, limit=1)) == 1
            s.log_files.forget(old)
        with begin() as s:
            assert s.log_files.expired(before) == []
            s.log_files.set_checkpoint("kafka", 3, {"offset": 7})
            kept = s.log_files.checkpoint("kafka", 3)
            assert kept is not None
            assert kept.checkpoint == {"offset": 7}
            assert s.log_files.checkpoint("kafka", 4) is None
