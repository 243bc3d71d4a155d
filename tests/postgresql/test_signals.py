"""Signals by LISTEN and NOTIFY: lost connections, poolers, failures, coalescing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from structable.backends.postgresql.driver import notifications, notifier, signals
from structable.backends.postgresql.driver.signals import _name
from structable.spi import (
    Field,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    UnsupportedOperationError,
    connect,
)
from structable.testing.conformance.feed_case import LONGEST

from .support import pgbouncer
from .support.fixtures import StartPgBouncer
from .support.shared import Schema

FED = TableSpecification("t", [Field.int("k"), Field.long("n")], ["k"], options={"changelog-producer": "input"})


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(FED)
        yield storage


def signal(storage: Storage, channel: str = "a") -> None:
    with storage.transaction() as transaction:
        transaction.signal(channel)


@pytest.fixture
def heard(storage: Storage, postgresql_schema: Schema) -> Iterator[psycopg.Connection]:
    """Return a connection that listens to the channel "a" of the storage's schema."""
    name = _name(postgresql_schema.name, "a")
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(f'listen "{name}"'.encode())
        yield connection


def test_a_lost_connection_is_opened_again_and_wakes(
    storage: Storage, postgresql_url: str, postgresql_schema: Schema
) -> None:
    with connect(postgresql_url, application_name="listens") as other, other.listen(["a", "feed/t"]) as listener:
        for _ in range(2):
            with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'listens'"
                )
            assert listener.wait(LONGEST)  # without a cause
            signal(storage)
            assert listener.wait(LONGEST)
            storage.table("t").upsert({"k": 1, "n": 1})
            assert listener.wait(LONGEST)


def test_the_first_signal_goes_at_once_and_later_ones_together(storage: Storage, heard: psycopg.Connection) -> None:
    signal(storage)
    assert len(list(heard.notifies(timeout=LONGEST, stop_after=1))) == 1
    commits = 200
    for _ in range(commits):
        signal(storage)
    storage.close()  # sends the last one
    assert 1 <= len(list(heard.notifies(timeout=0.5))) < commits


def test_a_notification_that_fails_fails_no_commit(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise StorageUnavailableError("no connection")

    monkeypatch.setattr(notifier, "notify", fail)
    with storage.listen(["a"]) as listener:
        with storage.transaction() as transaction:
            transaction.table("t").upsert({"k": 1, "n": 1})
            transaction.signal("a")
        assert listener.wait(LONGEST)  # in this process
        storage.close()
    assert "a commit woke no other process: no connection" in caplog.text


def test_names_that_become_due_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of a thread that was about to end, and continues while the next one runs."""
    late, sent = {"late": 0.0}, list[str]()

    class Due(dict[str, float]):
        def items(self) -> list[tuple[str, float]]:  # type: ignore[override]  # enough for the loop
            found = list(super().items())
            self.update(late)
            late.clear()
            return found

    monkeypatch.setattr(notifier, "notify", lambda pool, names, payload: sent.extend(names))
    sender = notifier.Notifier(None, "")  # type: ignore[arg-type]  # not used
    sender._due = Due()
    sender.send(["a"])
    sender.close()
    assert sorted(sent) == ["a", "late"]


def test_only_feeds_that_somebody_listened_to_are_signalled(
    storage: Storage, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(signals.ServerSignals, "send", lambda self, channels: sent.extend(channels))
    table = storage.table("t")
    with connect(postgresql_url, read_only=True) as reader, reader.listen(["feed/t"]):
        table.upsert({"k": 1, "n": 1})
        assert sent == []
    with connect(postgresql_url) as other, other.listen(["feed/t"]), other.listen(["feed/t"]):
        spec = storage.admin.get_specification("t")
        with storage.transaction() as transaction:
            transaction.table("t").read((1,))
        assert sent == []
        table.upsert({"k": 1, "n": 2})
        assert sent == ["feed/t"]
    assert storage.admin.get_specification("t") == spec


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_poolers(
    mode: str, start_pgbouncer: StartPgBouncer, postgresql_url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "_PROBED", 1.0 if mode == "transaction" else LONGEST)
    settings = {"max_prepared_statements": "0"} if pgbouncer.renames_statements() else {}
    pooler = start_pgbouncer(mode, **settings)
    with connect(pooler.url(postgresql_url)) as pooled:
        if mode == "transaction":
            # All connections but the first are refused there, so that nobody can notify: the same answer.
            assert not pooled.wakes
            return
        with pooled.listen(["a"]) as listener:
            assert pooled.wakes
            signal(storage)
            assert listener.wait(LONGEST)


def test_the_thread_ends_with_the_last_listener(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "_LOOK", 0.01)
    monkeypatch.setattr(notifications, "_TRY", 2)
    listener = storage.listen(["a"])
    thread = storage._signals._notifications._thread  # type: ignore[attr-defined]
    listener.close()
    thread.join(LONGEST)
    assert not thread.is_alive()
    with storage.listen(["a"]) as listener:
        signal(storage)
        assert listener.wait(LONGEST)


def test_the_first_listener_to_a_log_disturbs_no_publisher(storage: Storage, postgresql_url: str) -> None:
    log = TableSpecification("log", [Field.int("k")], options={"write-mode": "log"})
    storage.admin.create(log)
    with connect(postgresql_url) as other, storage.transaction() as transaction:
        transaction.table("log").insert({"k": 1})
        with other.listen(["feed/log"]) as listener:
            transaction.table("log").insert({"k": 2})
            transaction.commit()
            assert listener.wait(LONGEST)


def test_a_commit_may_signal_any_number_of_channels(storage: Storage, postgresql_url: str) -> None:
    """A statement has at most 1,664 columns, and they are notified by one."""
    with connect(postgresql_url) as other, other.listen(["c 1999"]) as listener:
        with storage.transaction() as transaction:
            for number in range(2_000):
                transaction.signal(f"c {number}")
        assert listener.wait(LONGEST)


@pytest.mark.parametrize("failure", [RuntimeError("can't start new thread"), KeyboardInterrupt()], ids=repr)
def test_a_listener_after_one_whose_thread_did_not_start(
    storage: Storage, postgresql_url: str, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    """The connection that the first one opened is read from all the same, and `wakes` stays true."""
    start = threading.Thread.start

    def fail_once(thread: threading.Thread) -> None:
        if thread.name == "structable notifications":
            monkeypatch.setattr(threading.Thread, "start", start)
            raise failure
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    with pytest.raises(type(failure)):
        storage.listen(["a"])
    with connect(postgresql_url) as other, storage.listen(["a"]) as listener:
        signal(other)
        assert listener.wait(LONGEST)
        assert storage.wakes


def test_a_server_that_refuses_to_listen_later_leaves_no_thread(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a failover to a standby: nothing opens connections for ever that would not be listened to."""
    monkeypatch.setattr(notifications, "_LOOK", 0.01)
    with storage.listen(["a"]) as listener:
        thread = storage._signals._notifications._thread  # type: ignore[attr-defined]

        def refuse(*_: object) -> None:
            raise UnsupportedOperationError("it is a standby")

        monkeypatch.setattr(notifications.Notifications, "_agree", refuse)
        with storage.listen(["b"]):
            assert not storage.wakes
        thread.join(LONGEST)
        assert not thread.is_alive()
        assert "wake no listener: it is a standby" in caplog.text
        signal(storage)
        assert listener.wait(LONGEST)  # in this process
