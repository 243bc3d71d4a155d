"""Topics and groups: what is published is handled once, by one member at a time, and what fails is isolated."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import pytest

from structable.datasets import (
    Consumer,
    DocumentError,
    Feed,
    JobState,
    LeaseLostError,
    Message,
    MessagesLostError,
    NotFoundError,
    Record,
    RecordShapeError,
    RecordTypeError,
    Session,
    SystemData,
    Topic,
)
from structable.datasets.messaging import status
from structable.datasets.messaging.reading import OpenFeed, Place
from structable.datasets.system.context import Context
from structable.spi import (
    Change,
    ChangeFeed,
    CommitOutcomeUnknownError,
    FeedPosition,
    Field,
    FieldSizeLimitError,
    RowKind,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    Transaction,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
)
from structable.spi.authors import MAX_ROW_SIZE, DelegatingStorage
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock
from tests.datasets.support.ticks import Ticks

Result = TypeVar("Result")


class Event(Record):
    what: str
    number: int = 0


EVENTS = Topic("events", Event)
RAW = Topic("events", bytes)
TTL = 1000
"""So long that no beat of the thread comes in a test; time passes on the test's clock."""


@pytest.fixture
def events(shared_store: Storage, system: SystemData, clock: Clock, ticks: Ticks) -> Iterator[SystemData]:
    """Return the datasets with both clocks the test's, and a topic."""
    with SystemData.open(shared_store, clock=clock, monotonic=ticks) as events:
        events.topics.create(EVENTS)
        yield events


class Interrupted(DelegatingStorage):
    """Does something behind the first transaction that reads."""

    def __init__(self, storage: Storage, then: Callable[[], object]) -> None:
        super().__init__(storage)
        self._then: Callable[[], object] | None = then

    def run(self, body: Callable[[Transaction], Result], **options: Any) -> Result:  # noqa: ANN401 - those of `Storage.run`
        found = super().run(body, **options)
        then, self._then = self._then, None
        if then is not None:
            then()
        return found


def publish(system: SystemData, *texts: str, **options: object) -> None:
    """Publish messages in one transaction."""
    system.run(lambda s: [s.publish(EVENTS, Event(what=text), **options) for text in texts])  # type: ignore[arg-type,func-returns-value]


def joined(system: SystemData, group: str = "g", **options: object) -> Consumer[Event]:
    return system.consumer(EVENTS, group=group, **{"ttl": TTL, **options})  # type: ignore[arg-type]


def whats(messages: Sequence[Message[Event]]) -> list[str]:
    return [message.body.what for message in messages]


def noted(system: SystemData) -> str | None:
    return system.run(lambda s: s.external_positions.get("t", "s"))


def note(s: Session, messages: Sequence[Message[Event]]) -> None:
    """Keep all that was ever handled, as one text."""
    before = s.external_positions.get("t", "s") or ""
    s.external_positions.put("t", "s", before + "".join(whats(messages)))


def refuse(s: Session, messages: Sequence[Message[Event]]) -> None:
    note(s, messages)
    raise ValueError("broken")


def handled(consumer: Consumer[Event], limit: int = 100) -> list[str]:
    """Return what is handled now, without waiting."""
    found: list[str] = []

    def keep(s: Session, messages: Sequence[Message[Event]]) -> None:
        found[:] = whats(messages)

    count = consumer.process(keep, limit, wait=0)
    assert count == len(found)
    return found


class TestPublish:
    def test_message_is_there_if_the_transaction_commits(self, events: SystemData, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            s.publish(EVENTS, Event(what="rolled back"))
            s.tx.rollback()
        with begin() as s:
            s.publish(EVENTS, Event(what="a", number=1), key="k", headers={"h": "ü"})
            s.publish(EVENTS, Event(what="b"))
        with joined(events) as consumer:
            one, two = consumer.poll(wait=0).messages
        assert (one.topic, one.key, one.body, one.headers) == ("events", "k", Event(what="a", number=1), {"h": "ü"})
        assert (two.key, two.body, two.headers, two.published) == (None, Event(what="b"), {}, clock.time)
        assert one.id.split(".")[0] == two.id.split(".")[0]
        assert [one.id.split(".")[1], two.id.split(".")[1]] == ["0", "1"]

    def test_publishers_do_not_conflict(self, events: SystemData, begin: Begin) -> None:
        with begin() as s:
            s.publish(EVENTS, Event(what="a"))
            publish(events, "b")
        with joined(events) as consumer:
            assert handled(consumer) == ["b", "a"]

    def test_what_is_refused(self, events: SystemData, begin: Begin) -> None:
        """The transaction goes on."""
        with begin() as s:
            with pytest.raises(NotFoundError, match=r"no topic 'absent'.*create makes it"):
                s.publish(Topic("absent", bytes), b"x")
            with pytest.raises(RecordTypeError, match="Event"):
                s.publish(EVENTS, {"what": "a"})  # type: ignore[misc] # a dict is no Event
            with pytest.raises(FieldSizeLimitError) as caught:
                s.publish(RAW, b"x" * (2**20 + 1))
            assert (caught.value.field, caught.value.limit) == ("body", 2**20)
            with pytest.raises(ValueError, match="structable-"):
                s.publish(RAW, b"", headers={"structable-redriven": "g"})
            for headers in ({1: "a"}, {"a": 1}, [("a", "b")], "ab"):
                with pytest.raises(DocumentError, match="headers"):
                    s.publish(RAW, b"", headers=headers)  # type: ignore[arg-type]  # no texts
            s.publish(RAW, b"x" * 2**20)
        assert events.topics.status(RAW).groups == []
        with events.consumer(RAW, group="g") as consumer:
            with pytest.raises(TypeError, match="must be a function"):
                consumer.process([], wait=0)  # type: ignore[arg-type]  # no function
            assert [len(message.body) for message in consumer.poll(wait=0).messages] == [2**20]

    @pytest.mark.parametrize(
        "call",
        [
            lambda system: system.run(lambda s: s.publish("events", b"")),
            lambda system: system.run(lambda s: s.publish(Feed("events"), b"")),
            lambda system: system.topics.create(Feed("events")),
            lambda system: system.topics.create("events"),
            lambda system: system.topics.delete("events"),
            lambda system: system.topics.status("events"),
            lambda system: system.topics.seek("events", "g", "end"),
            lambda system: system.topics.dead("events", "g"),
            lambda system: system.topics.redrive("events", "g"),
            lambda system: system.topics.purge("events", "g", ["1.0"]),
            lambda system: system.consumer("events", group="g"),
            lambda system: system.forward("events", "g", "q"),
        ],
    )
    def test_what_is_no_topic(self, events: SystemData, call: Callable[[SystemData], object]) -> None:
        with pytest.raises(ValueError, match="must be a Topic"):
            call(events)

    def test_topics_are_pickled(self) -> None:
        topic = Topic("events", Event, retention=dt.timedelta(days=1))
        again = pickle.loads(pickle.dumps(topic))
        assert again == topic
        assert again.encoded(Event(what="a")) == topic.encoded(Event(what="a"))

    @pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a" * 38, "ä"])
    def test_names_of_topics(self, name: str) -> None:
        with pytest.raises(ValueError, match="topic"):
            Topic(name, bytes)

    def test_longer_prefixes_leave_shorter_names(self, shared_store: Storage) -> None:
        system = SystemData(shared_store, prefix="longer_")
        with pytest.raises(ValueError, match="at most 34"):
            system.topics.create(Topic("a" * 35, bytes))

    @pytest.mark.parametrize("kind", [str, dict, int | None])
    def test_types_of_topics(self, kind: type) -> None:
        with pytest.raises(RecordTypeError, match="Record, or bytes"):
            Topic("a", kind)

    @pytest.mark.parametrize("retention", [dt.timedelta(0), 7])
    def test_retention(self, retention: dt.timedelta) -> None:
        with pytest.raises(ValueError, match="retention"):
            Topic("a", bytes, retention=retention)


class TestHandling:
    def test_effects_and_position_commit_together(self, events: SystemData) -> None:
        publish(events, *"abc")
        with joined(events) as consumer:
            assert consumer.process(note, limit=2, wait=0) == 2
            assert consumer.process(note, limit=2, wait=0) == 1
            assert consumer.process(note, wait=0) == 0
        assert noted(events) == "abc"

    def test_uncommitted_batches_come_again(self, events: SystemData, begin: Begin) -> None:
        publish(events, *"ab")
        with joined(events) as consumer:
            assert whats(consumer.poll(1, wait=0).messages) == ["a"]
            batch = consumer.poll(1, wait=0)
            assert whats(batch.messages) == ["a"]
            batch.commit()
            with pytest.raises(LeaseLostError):
                batch.commit()
            batch = consumer.poll(wait=0)
            with begin() as s:
                note(s, batch.messages)
                batch.commit(s.tx)
                s.tx.rollback()
            batch = consumer.poll(wait=0)
            assert whats(batch.messages) == ["b"]
            with begin() as s:
                note(s, batch.messages)
                batch.commit(s.tx)
            assert not consumer.poll(wait=0)
        assert noted(events) == "b"

    def test_message_published_after_the_last_look_is_found(self, events: SystemData) -> None:
        with joined(events) as consumer:
            for text in "abc":
                publish(events, text)
                batch = consumer.poll(wait=0)
                assert whats(batch.messages) == [text]
                batch.commit()
            publish(events, "d")
            assert handled(consumer) == ["d"]

    def test_batch_is_filled_with_what_was_published_since_the_last_look(self, events: SystemData) -> None:
        publish(events, *"abc")
        with joined(events) as consumer:
            assert handled(consumer, 2) == ["a", "b"]
            publish(events, *"de")
            assert handled(consumer, 2) == ["c", "d"]
            publish(events, "f")
            assert handled(consumer) == ["e", "f"]

    def test_each_group_has_every_message_from_its_start_on(self, events: SystemData) -> None:
        publish(events, "a")
        with joined(events, "first") as first, joined(events, "end", start="end") as end:
            publish(events, "b")
            assert (handled(first), handled(end)) == (["a", "b"], ["b"])
        with joined(events, "first", start="end") as again:
            publish(events, "c")
            assert handled(again) == ["c"]

    def test_arguments_out_of_their_range(self, events: SystemData) -> None:
        wrong = [("group", ""), ("start", "now"), ("max_attempts", 0), ("on_lost", "ignore"), ("ttl", 0), ("ttl", 1.5)]
        for name, value in wrong:
            with pytest.raises(ValueError, match=f"{name}.* must"):
                joined(events, **{name: value})  # type: ignore[arg-type]

    def test_limits_and_waits_out_of_their_range(self, events: SystemData) -> None:
        with joined(events) as consumer:
            for limit, wait in ((0, 0), (True, 0), (1, -1), (1, float("inf"))):
                with pytest.raises(ValueError, match="must be"):
                    consumer.poll(limit, wait)

    def test_waiting_member_is_woken(self, events: SystemData) -> None:
        with joined(events) as consumer:
            assert not consumer.poll(wait=0.2)
            publish(events, "a")
            assert whats(consumer.poll(wait=30).messages) == ["a"]

    def test_closing_ends_a_wait(self, events: SystemData, monkeypatch: pytest.MonkeyPatch) -> None:
        consumer = joined(events)
        monkeypatch.setattr(consumer._polling, "wait", lambda *_: consumer.close())
        assert not consumer.poll(wait=1)
        (group,) = events.topics.status(EVENTS).groups
        assert group.owner is None
        with pytest.raises(TransactionClosedError, match="closed"):
            consumer.poll(wait=0)

    def test_handler_that_closes_the_consumer_commits_nothing(self, events: SystemData) -> None:
        publish(events, "a")

        def handle(s: Session, messages: Sequence[Message[Event]]) -> None:
            note(s, messages)
            consumer.close()

        consumer = joined(events)
        with pytest.raises(LeaseLostError):
            consumer.process(handle, wait=0)
        assert noted(events) is None
        with joined(events) as other:
            assert handled(other) == ["a"]

    @pytest.mark.parametrize("committed", [True, False])
    def test_row_decides_after_an_unknown_outcome(
        self, events: SystemData, monkeypatch: pytest.MonkeyPatch, committed: bool
    ) -> None:
        publish(events, *"ab")
        with joined(events) as consumer:
            assert handled(consumer, 1) == ["a"]
            run = consumer._group.run

            def lost(body: Callable[[Context], object]) -> object:
                if committed:
                    run(body)
                raise CommitOutcomeUnknownError("the answer was lost")

            with monkeypatch.context() as patched:
                patched.setattr(consumer._group, "run", lost)
                with pytest.raises(CommitOutcomeUnknownError):
                    consumer.process(note, wait=0)
            assert consumer.process(note, wait=0) == (0 if committed else 1)
        assert noted(events) == "b"

    def test_takeover_of_unknown_outcome(self, events: SystemData, monkeypatch: pytest.MonkeyPatch) -> None:
        """The member has the group, and leaves it, although it did not get the answer."""
        publish(events, *"ab")
        for what in "ab":
            with joined(events) as consumer, monkeypatch.context() as patched:
                run = consumer._group.run

                def lost(body: Callable[[Context], object], run: Callable[..., object] = run) -> None:
                    run(body)
                    raise CommitOutcomeUnknownError("the answer was lost")

                patched.setattr(consumer._group, "run", lost)
                with pytest.raises(CommitOutcomeUnknownError):
                    consumer.process(note, wait=0)
                patched.undo()
                if what == "a":
                    assert handled(consumer, 1) == ["a"]
        with joined(events) as other:
            assert handled(other) == ["b"]

    def test_interrupted_handler_has_not_failed(self, events: SystemData) -> None:
        publish(events, "a")

        def interrupt(s: Session, messages: Sequence[Message[Event]]) -> None:
            note(s, messages)
            raise KeyboardInterrupt

        with joined(events) as consumer:
            with pytest.raises(KeyboardInterrupt):
                consumer.process(interrupt, wait=0)
            (group,) = events.topics.status(EVENTS).groups
            assert (noted(events), group.attempts, group.error) == (None, 0, None)
            assert handled(consumer) == ["a"]

    def test_deleted_topic(self, events: SystemData) -> None:
        with pytest.raises(NotFoundError):
            events.consumer(Topic("absent", bytes), group="g")
        publish(events, "a")
        with joined(events) as consumer:
            assert handled(consumer) == ["a"]
            events.topics.delete(EVENTS)
            with pytest.raises(NotFoundError):
                consumer.poll(wait=0)
        events.topics.delete(EVENTS)
        events.topics.create(EVENTS)
        assert events.topics.status(EVENTS).groups == []

    def test_calls_that_were_killed_are_completed_by_the_next_one(
        self, events: SystemData, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        publish(events, "a")
        joined(events).close()
        with monkeypatch.context() as patched:
            patched.setattr(events.topics, "_remove_groups", killed)
            with pytest.raises(KeyboardInterrupt):
                events.topics.delete(EVENTS)
            with pytest.raises(KeyboardInterrupt):
                events.topics.create(EVENTS)
        events.topics.create(EVENTS)
        assert events.topics.status(EVENTS).groups == []

    def test_store_that_was_closed(self, events: SystemData, shared_url: str) -> None:
        with SystemData.open(shared_url) as other:
            consumer = joined(other)
            assert not consumer.poll(wait=0)
        with pytest.raises(StorageUnavailableError):
            consumer.poll(wait=1)
        consumer.close()

    def test_deletion_takes_what_a_member_gives_up_meanwhile(
        self, events: SystemData, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(events, "a")
        consumer = joined(events, max_attempts=1)
        batch, purge = consumer.poll(wait=0), events.topics.purge

        def purged(topic: Topic[Event], group: str) -> None:
            purge(topic, group)
            batch.retry("x")

        monkeypatch.setattr(events.topics, "purge", purged)
        events.topics.delete(EVENTS)
        events.topics.create(EVENTS)
        assert events.topics.dead(EVENTS, "g") == []


class TestMembers:
    def test_others_stand_by_until_the_active_one_leaves(self, events: SystemData) -> None:
        publish(events, *"abc")
        with joined(events) as one, joined(events) as two:
            assert (handled(one, 1), handled(two, 1)) == (["a"], [])
            one.close()
            one.close()
            assert handled(two, 1) == ["b"]

    def test_forgotten_member_does_not_beat(self, events: SystemData) -> None:
        consumer = joined(events, "forgotten")
        consumer.poll(wait=0)
        (thread,) = [one for one in threading.enumerate() if "'forgotten'" in one.name]
        del consumer
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()

    @pytest.mark.parametrize("act", ["process", "commit", "retry"])
    def test_deposed_member_commits_nothing(self, events: SystemData, ticks: Ticks, clock: Clock, act: str) -> None:
        publish(events, *"ab")
        with joined(events) as one, joined(events) as two:
            batch = one.poll(1, wait=0)
            assert handled(two) == []
            ticks.tick(TTL - 1)
            assert handled(two) == []
            ticks.tick(1)
            assert handled(two) == []  # delayed: the message may have killed the member
            clock.tick(1)
            assert handled(two, 1) == ["a"]
            acts: dict[str, Callable[[], object]] = {
                "process": lambda: one.process(note, wait=0),
                "commit": batch.commit,
            }
            with pytest.raises(LeaseLostError, match="group 'g' of 'events'"):
                acts.get(act, lambda: batch.retry("x"))()
            assert noted(events) is None
            assert handled(two) == ["b"]
            if act == "process":
                assert handled(one) == []  # stands by

    def test_takeover_while_a_handler_runs(self, events: SystemData, ticks: Ticks, clock: Clock) -> None:
        publish(events, "a")

        def slow(s: Session, messages: Sequence[Message[Event]]) -> None:
            note(s, messages)
            assert handled(two) == []
            ticks.tick(TTL)
            assert handled(two) == []
            clock.tick(1)
            assert handled(two) == ["a"]

        with joined(events) as one, joined(events) as two, pytest.raises(LeaseLostError):
            one.process(slow, wait=0)
        assert noted(events) is None

    def test_beat_does_not_conflict_with_a_handler_and_prevents_a_takeover(
        self, events: SystemData, ticks: Ticks
    ) -> None:
        publish(events, "a")

        def slow(s: Session, messages: Sequence[Message[Event]]) -> None:
            note(s, messages)
            assert handled(two) == []
            one._group._beat()
            ticks.tick(TTL)
            assert handled(two) == []

        with joined(events) as one, joined(events) as two:
            assert one.process(slow, wait=0) == 1
        assert noted(events) == "a"


class TestFailure:
    def test_failed_messages_come_again_alone_and_delayed(self, events: SystemData, clock: Clock) -> None:
        publish(events, *"abcd")
        with joined(events) as consumer:
            with pytest.raises(ValueError, match="broken"):
                consumer.process(refuse, limit=3, wait=0)
            assert noted(events) is None
            (group,) = events.topics.status(EVENTS).groups
            assert (group.group, group.lag, group.attempts, group.error) == ("g", 4, 1, "ValueError: broken")
            clock.tick(1.999)
            assert handled(consumer) == []
            clock.tick(0.001)
            assert [handled(consumer) for _ in range(4)] == [["a"], ["b"], ["c"], ["d"]]

    def test_clock_that_was_wrong_delays_no_message(self, events: SystemData, clock: Clock) -> None:
        """Messages that failed while the clock was a day fast come again once it is right."""
        publish(events, "a")
        with joined(events) as consumer:
            clock.tick(86_400)
            with pytest.raises(ValueError, match="broken"):
                consumer.process(refuse, wait=0)
            assert handled(consumer) == []
            clock.tick(-86_400)
            assert handled(consumer) == ["a"]

    def test_poisonous_message_goes_to_the_dead_letters(self, events: SystemData, clock: Clock) -> None:
        publish(events, *"abc", key="k")

        def handle(s: Session, messages: Sequence[Message[Event]]) -> None:
            if "b" in whats(messages):
                raise SystemExit("of b")
            note(s, messages)

        with joined(events, max_attempts=3) as consumer, joined(events, "other") as other:
            for _ in range(7):
                with contextlib.suppress(SystemExit):
                    consumer.process(handle, wait=0)
                clock.tick(300)
            assert noted(events) == "ac"
            (dead,) = events.topics.dead(EVENTS, "g")
            assert (dead.key, dead.body, dead.attempts, dead.error) == ("k", Event(what="b"), 3, "SystemExit: of b")
            assert (events.topics.dead(EVENTS, "other"), handled(other)) == ([], ["a", "b", "c"])

            with pytest.raises(NotFoundError):
                events.topics.redrive(EVENTS, "g", ["1.1"])
            with pytest.raises(ValueError, match="VERSION"):
                events.topics.redrive(EVENTS, "g", ["x"])
            with pytest.raises(ValueError, match="a list of ids"):
                events.topics.purge(EVENTS, "g", dead.id)
            assert events.topics.redrive(EVENTS, "g", [dead.id]) == 1
            publish(events, "d")
            assert events.topics.dead(EVENTS, "g") == []
            batch = consumer.poll(wait=0)
            assert whats(batch.messages) == ["b", "d"]
            assert [message.headers for message in batch.messages] == [{"structable-redriven": "g"}, {}]
            assert batch.messages[0].key == "k"
            assert handled(other) == ["d"]

    def test_retry_gives_a_batch_back(self, events: SystemData, clock: Clock) -> None:
        publish(events, *"ab")
        with joined(events, max_attempts=2) as consumer:
            consumer.poll(wait=0).retry("later")
            clock.tick(2)
            batch = consumer.poll(wait=0)
            assert whats(batch.messages) == ["a"]
            batch.retry("never")
            assert [(dead.body, dead.error) for dead in events.topics.dead(EVENTS, "g")] == [(Event(what="a"), "never")]
            assert handled(consumer) == ["b"]
        assert events.topics.purge(EVENTS, "g") == 1
        assert events.topics.dead(EVENTS, "g") == []

    def test_good_message_of_a_failed_batch_is_not_given_up(self, events: SystemData, clock: Clock) -> None:
        publish(events, *"ab")
        with joined(events, max_attempts=1) as consumer:
            consumer.poll(wait=0).retry("x")
            clock.tick(2)
            assert [handled(consumer), handled(consumer)] == [["a"], ["b"]]

    def test_fewer_attempts_than_before_give_up_no_good_message(self, events: SystemData, clock: Clock) -> None:
        publish(events, *"ab")
        with joined(events) as consumer:
            consumer.poll(wait=0).retry("x")
        clock.tick(2)
        with joined(events, max_attempts=1) as consumer:
            assert [handled(consumer), handled(consumer)] == [["a"], ["b"]]

    def test_death_of_a_member_counts_only_for_a_message_that_was_out_alone(
        self, events: SystemData, ticks: Ticks, clock: Clock
    ) -> None:
        publish(events, *"ab")

        def dies(limit: int = 100) -> list[str]:
            """Return what a member has out that then dies."""
            consumer = joined(events, max_attempts=2)
            consumer.poll(wait=0)
            ticks.tick(TTL)
            consumer.poll(wait=0)
            clock.tick(300)
            batch = consumer.poll(limit, wait=0)
            consumer.stop_beating()
            return whats(batch.messages)

        assert [dies(), dies()] == [["a", "b"], ["a"]]
        (group,) = events.topics.status(EVENTS).groups
        assert group.attempts == 1
        assert [dies(), dies()] == [["a"], ["b"]]
        (dead,) = events.topics.dead(EVENTS, "g")
        assert (dead.body, dead.attempts) == (Event(what="a"), 2)
        assert str(dead.error).endswith("stopped")

    def test_leaving_with_a_message_out_is_no_attempt(self, events: SystemData, clock: Clock) -> None:
        publish(events, *"ab")
        with joined(events) as consumer:
            consumer.poll(wait=0).retry("x")
            clock.tick(2)
            assert whats(consumer.poll(wait=0).messages) == ["a"]
        assert [group.attempts for group in events.topics.status(EVENTS).groups] == [1]

    def test_message_of_another_shape_is_poisonous(self, events: SystemData, clock: Clock) -> None:
        publish(events, "a")
        events.run(lambda s: s.publish(RAW, b'{"what": 1}'))
        publish(events, "b")
        with joined(events, max_attempts=2) as consumer:
            assert handled(consumer) == ["a"]
            for _ in range(2):
                with pytest.raises(RecordShapeError, match="what"):
                    consumer.process(note, wait=0)
                clock.tick(2)
            assert handled(consumer) == ["b"]
        (dead,) = events.topics.dead(EVENTS, "g")
        assert (dead.body, dead.attempts) == (b'{"what": 1}', 2)

    def test_rows_that_were_inserted_by_hand(self, events: SystemData, shared_store: Storage, clock: Clock) -> None:
        log = shared_store.table("sys_topic_events")
        body = b'{"what": "a"}'
        log.insert({"key": "k"})
        for headers in ("[", '{"a": 1}', None):
            log.insert({"body": body, "headers": headers})
        with joined(events, max_attempts=1) as consumer:
            for field in ("body", "headers", "headers"):
                with pytest.raises(RecordShapeError, match=f"field '{field}'"):
                    consumer.process(note, wait=0)
            (message,) = consumer.poll(wait=0).messages
            assert (message.body, message.published.tzinfo) == (Event(what="a"), dt.UTC)
            (group,) = events.topics.status(EVENTS).groups
            assert group.lag == 1
        bodies = [one.body for one in events.topics.dead(EVENTS, "g")]
        assert bodies == [None, Event(what="a"), Event(what="a")]

    def test_error_without_a_text(self, events: SystemData) -> None:
        class MuteError(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        publish(events, "a")
        with joined(events, max_attempts=1) as consumer:
            consumer.poll(wait=0).retry(MuteError())
        (dead,) = events.topics.dead(EVENTS, "g")
        assert dead.error == "MuteError: its text raises RuntimeError"

    def test_large_message_that_dies_while_others_are_redriven(self, events: SystemData, shared_store: Storage) -> None:
        key = "k" * (MAX_ROW_SIZE - 1_000)

        def die(text: str, key: str) -> None:
            publish(events, text, key=key)
            with joined(events, max_attempts=1) as consumer:
                consumer.poll(1, wait=0).retry("x" * 2_000)

        die("a", "k")
        storage = Interrupted(shared_store, lambda: die("b", key))
        assert SystemData.open(storage).topics.redrive(EVENTS, "g") == 1
        assert [dead.body for dead in events.topics.dead(EVENTS, "g")] == [Event(what="b")]

    def test_message_too_large_for_a_dead_letter(self, events: SystemData, shared_store: Storage) -> None:
        """With its error it is larger than a row: it is read from the topic, as long as that keeps it."""
        key, error = "k" * (MAX_ROW_SIZE - 1_000), "x" * 2_000

        def give_up() -> None:
            with joined(events, max_attempts=1) as consumer:
                consumer.poll(1, wait=0).retry(error)
                assert not consumer.poll(wait=0)

        joined(events).close()
        with events.transaction() as s:
            s.publish(EVENTS, Event(what="before"))
            s.publish(EVENTS, Event(what="a"), key=key, headers={"h": "1"})
        with joined(events) as consumer:
            assert handled(consumer, 1) == ["before"]
        give_up()
        (dead,) = events.topics.dead(EVENTS, "g")
        assert (dead.key == key, dead.body, dead.headers, dead.error) == (True, Event(what="a"), {"h": "1"}, error)
        assert events.topics.redrive(EVENTS, "g") == 1
        give_up()
        (dead,) = events.topics.dead(EVENTS, "g")
        assert (dead.key == key, dead.headers) == (True, {"h": "1", "structable-redriven": "g"})
        feed = shared_store.changes("sys_topic_events")
        feed.expire(feed.latest())
        (dead,) = events.topics.dead(EVENTS, "g")
        assert (dead.key, dead.body, dead.headers, dead.error) == (None, None, {}, error)
        with pytest.raises(NotFoundError, match=dead.id):
            events.topics.redrive(EVENTS, "g")
        assert events.topics.purge(EVENTS, "g") == 1


class TestSeek:
    def test_places(self, events: SystemData) -> None:
        publish(events, *"ab")
        publish(events, "c")
        with joined(events) as consumer:
            ids = [message.id for message in consumer.poll(wait=0).messages]
            assert handled(consumer) == ["a", "b", "c"]

            def seek(place: str | dt.datetime) -> list[str]:
                events.topics.seek(EVENTS, "g", place)
                return handled(consumer)

            assert [seek(place) for place in ("first", "end", *ids)] == [
                ["a", "b", "c"],
                [],
                ["b", "c"],
                ["c"],
                [],
            ]
            assert seek(dt.datetime(2000, 1, 1, tzinfo=dt.UTC)) == ["a", "b", "c"]
            assert seek(dt.datetime(2200, 1, 1, tzinfo=dt.UTC)) == []
            for place in ("x", "1", dt.datetime(2000, 1, 1)):
                with pytest.raises(ValueError, match=r"must be|VERSION"):
                    seek(place)
            with pytest.raises(NotFoundError):
                events.topics.seek(EVENTS, "absent", "first")
            with pytest.raises(MessagesLostError, match="what is kept begins after"):
                seek(f"{10**18}.0")

    def test_batch_from_before_is_not_committed(self, events: SystemData, clock: Clock) -> None:
        publish(events, *"ab")
        with joined(events) as consumer:
            assert handled(consumer, 1) == ["a"]
            batch = consumer.poll(wait=0)
            batch.retry("x")
            events.topics.seek(EVENTS, "g", "first")
            with pytest.raises(LeaseLostError):
                batch.commit()
            assert handled(consumer) == ["a", "b"]

    def test_seek_while_a_handler_runs(self, events: SystemData) -> None:
        publish(events, *"ab")
        seen: list[list[str]] = []

        def handle(s: Session, messages: Sequence[Message[Event]]) -> None:
            seen.append(whats(messages))
            note(s, messages)
            if len(seen) == 1:
                events.topics.seek(EVENTS, "g", "end")

        with joined(events) as consumer:
            assert handled(consumer, 1) == ["a"]
            assert consumer.process(handle, wait=0) == 0
        assert (seen, noted(events)) == ([["b"]], None)


class TestRetention:
    def test_lost_messages_are_an_error_once(self, events: SystemData, shared_store: Storage) -> None:
        publish(events, *"ab")
        with joined(events) as consumer, joined(events, "skips", on_lost="skip") as skips:
            assert (handled(consumer, 1), handled(skips, 1)) == (["a"], ["a"])
        feed = shared_store.changes("sys_topic_events")
        feed.expire(feed.latest())
        publish(events, "c")
        with joined(events) as consumer, joined(events, "skips", on_lost="skip") as skips:
            (group, _) = events.topics.status(EVENTS).groups
            assert group.lag == 1
            with pytest.raises(MessagesLostError) as caught:
                consumer.poll(wait=0)
            assert caught.value.earliest == feed.earliest()
            assert (handled(consumer), handled(skips)) == (["c"], ["c"])

    def test_idle_topic_loses_nothing(self, events: SystemData, shared_store: Storage, clock: Clock) -> None:
        publish(events, "a")
        with joined(events) as consumer:
            assert handled(consumer) == ["a"]
            events.topics.create(Topic("other", bytes))
            events.run(lambda s: s.publish(Topic("other", bytes), b""))
            feed = shared_store.changes("sys_topic_events")
            latest = feed.latest()
            clock.tick(dt.timedelta(days=0.7).total_seconds())
            assert handled(consumer) == []
            assert feed.expire(latest) == latest
            publish(events, "b")
            assert handled(consumer) == ["b"]

    @pytest.mark.parametrize("moved", ["by seek", "before what does not fit", "behind what does not fit"])
    def test_expiry_of_messages_that_were_read_is_no_loss(
        self, events: SystemData, shared_store: Storage, moved: str
    ) -> None:
        publish(events, "a")
        with joined(events, max_attempts=1) as consumer:
            if moved == "by seek":
                read = consumer.poll(wait=0).messages[-1].id
                publish(events, "b")
                events.topics.seek(EVENTS, "g", read)
            elif moved == "before what does not fit":
                events.run(lambda s: s.publish(RAW, b"x"))
                read = consumer.poll(wait=0).messages[-1].id
                assert handled(consumer) == ["a"]
            else:
                assert handled(consumer) == ["a"]
                events.run(lambda s: s.publish(RAW, b"x"))
                publish(events, "b")
                with pytest.raises(RecordShapeError):
                    consumer.poll(wait=0)
                read = events.topics.dead(EVENTS, "g")[0].id
            feed = shared_store.changes("sys_topic_events")
            feed.expire(feed.position(int(read.split(".")[0])))
            if moved == "before what does not fit":
                with pytest.raises(RecordShapeError):
                    consumer.poll(wait=0)
            else:
                assert handled(consumer) == ["b"]

    def test_another_retention_changes_the_topic(self, events: SystemData, shared_store: Storage) -> None:
        publish(events, "a")
        events.topics.create(Topic("events", Event, retention=dt.timedelta(hours=1)))
        options = shared_store.admin.get_specification("sys_topic_events").table_options
        assert options.time_retained == 3600
        with joined(events) as consumer:
            assert handled(consumer) == ["a"]

    def test_feed_that_began_anew(self, events: SystemData, shared_store: Storage) -> None:
        publish(events, "a")
        with joined(events) as consumer:
            shared_store.changes("sys_topic_events").restart()
            publish(events, "b")
            with pytest.raises(MessagesLostError):
                consumer.process(note, wait=0)
            assert handled(consumer) == ["b"]


class TestStatus:
    def test_seconds_are_the_age_of_the_first_message_not_handled(self, events: SystemData, clock: Clock) -> None:
        with joined(events) as consumer:
            for text in "abc":
                publish(events, text)
                clock.tick(5)
            ages = []
            for _ in range(4):
                (group,) = events.topics.status(EVENTS).groups
                ages.append((group.lag, group.seconds))
                handled(consumer, 1)
        assert ages == [(3, 15), (2, 10), (1, 5), (0, 0)]

    def test_lag_beyond_what_is_counted_is_an_estimate(
        self, events: SystemData, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(status, "_MOST_COUNTED", 3)
        with joined(events) as consumer:
            publish(events, *"abcdef")
            for _ in range(20):
                events.run(lambda s: s.external_positions.put("t", "s", "1"))
            (group,) = events.topics.status(EVENTS).groups
            assert (group.lag, group.estimated) == (4, True)
            assert handled(consumer, 3) == ["a", "b", "c"]
            (group,) = events.topics.status(EVENTS).groups
            assert (group.lag, group.estimated) == (3, False)
            assert handled(consumer) == ["d", "e", "f"]
            for text in "abcdef":
                publish(events, text)
            (group,) = events.topics.status(EVENTS).groups
            assert group.estimated
            assert group.lag >= 4


class TestFeeds:
    @pytest.fixture(params=["lookup", "full-compaction", "input"])
    def table(self, request: pytest.FixtureRequest, shared_store: Storage, events: SystemData) -> Iterator[str]:
        options = {"changelog-producer": request.param}
        if request.param == "full-compaction":
            options["changelog-producer.compaction-interval"] = "1 ms"
        fields = [Field.long("id"), Field.string("state"), Field.decimal("cost", 10, 2), Field.date("day")]
        shared_store.admin.create(TableSpecification("feed_of", fields, primary_key=["id"], options=options))
        yield request.param
        shared_store.admin.drop("feed_of")

    def test_groups_read_the_changes_of_any_table(
        self, events: SystemData, shared_store: Storage, table: str, clock: Clock
    ) -> None:
        rows = shared_store.table("feed_of")
        with events.consumer(Feed("feed_of"), group="g", max_attempts=2, ttl=TTL) as consumer:
            rows.upsert_many([{"id": 1, "state": "a", "day": dt.date(2026, 1, 1)}, {"id": 2, "state": "b"}])
            shared_store.changes("feed_of").latest()  # a mark, under full-compaction
            batch = consumer.poll(1, wait=0)
            whole = table != "input"
            assert len(batch.messages) == (2 if whole else 1)
            again = consumer.poll(1, wait=0)
            assert [message.id for message in again.messages] == [message.id for message in batch.messages]
            one = batch.messages[0]
            assert (one.topic, one.key, one.headers, one.body.row["id"]) == ("feed_of", None, {}, 1)
            assert one.body.kind is (RowKind.INSERT if whole else RowKind.UPDATE_AFTER)
            batch.retry("x")
            clock.tick(2)
            consumer.poll(wait=0).retry("y")
            dead = events.topics.dead(Feed("feed_of"), "g")
            assert dead[0].body.row == dict(one.body.row)  # type: ignore[attr-defined]
            assert len(dead) == len(batch.messages)
            with pytest.raises(UnsupportedOperationError, match="cannot be published again"):
                events.topics.redrive(Feed("feed_of"), "g")
            assert events.topics.purge(Feed("feed_of"), "g") == len(dead)
            rest = consumer.poll(wait=0)
            assert len(rest.messages) == 2 - len(dead)
            (group,) = events.topics.status(Feed("feed_of")).groups
            assert (group.group, group.lag) == ("g", 2 - len(dead))

    def test_change_too_large_for_a_dead_letter(self, events: SystemData, shared_store: Storage, table: str) -> None:
        """Of its row the small values are kept, and so is the key."""
        rows = shared_store.table("feed_of")
        rows.upsert({"id": 1, "state": "s" * (MAX_ROW_SIZE - 100), "cost": Decimal("1.50")})
        shared_store.changes("feed_of").latest()  # a mark, under full-compaction
        with events.consumer(Feed("feed_of"), group="g", max_attempts=1, ttl=TTL) as consumer:
            (message,) = consumer.poll(wait=0).messages
            consumer.poll(wait=0).retry("x" * 200)
            assert not consumer.poll(wait=0)
        (dead,) = events.topics.dead(Feed("feed_of"), "g")
        assert isinstance(dead.body, Change)
        assert dead.body.row == {"id": 1, "cost": Decimal("1.50"), "day": None}
        assert (dead.id, dead.body.kind, dead.body.version) == (message.id, message.body.kind, message.body.version)

    @pytest.mark.parametrize("table", ["lookup", "full-compaction"], indirect=True)
    def test_ids_do_not_depend_on_the_order_in_which_a_commit_is_read(
        self, shared_store: Storage, table: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin = shared_store.changes("feed_of").earliest()
        shared_store.table("feed_of").upsert_many([{"id": number} for number in (3, 1, 2)])
        shared_store.changes("feed_of").latest()  # a mark, under full-compaction
        feed = OpenFeed(shared_store, "feed_of")
        rows = [item.change.row["id"] for item in feed.reading(Place(begin)).take(1)]
        monkeypatch.setattr(feed, "changes", _Backwards(feed.changes))
        assert [item.change.row["id"] for item in feed.reading(Place(begin)).take(1)] == rows == [1, 2, 3]

    def test_deletion_of_groups_leaves_the_table(self, events: SystemData, shared_store: Storage, table: str) -> None:
        shared_store.table("feed_of").upsert({"id": 1})
        shared_store.changes("feed_of").latest()  # a mark, under full-compaction
        with events.consumer(Feed("feed_of"), group="g", max_attempts=1, ttl=TTL) as consumer:
            consumer.poll(wait=0).retry("x")
        assert len(events.topics.dead(Feed("feed_of"), "g")) == 1
        events.topics.delete(Feed("feed_of"))
        assert events.topics.status(Feed("feed_of")).groups == []
        assert events.topics.dead(Feed("feed_of"), "g") == []
        assert shared_store.table("feed_of").read((1,)) is not None

    @pytest.mark.parametrize("table", ["input"], indirect=True)
    def test_another_producer_begins_another_feed(self, events: SystemData, shared_store: Storage, table: str) -> None:
        rows = shared_store.table("feed_of")
        rows.upsert_many([{"id": 1}, {"id": 2}])
        with events.consumer(Feed("feed_of"), group="g", ttl=TTL) as consumer:
            consumer.poll(1, wait=0).commit()  # within the commit
        before = shared_store.admin.get_specification("feed_of")
        changed = TableSpecification(
            before.name, before.fields, primary_key=["id"], options={"changelog-producer": "lookup"}
        )
        shared_store.admin.create_or_update(changed)
        with events.consumer(Feed("feed_of"), group="g", ttl=TTL) as consumer:
            assert [group.lag for group in events.topics.status(Feed("feed_of")).groups] == [0]
            with pytest.raises(MessagesLostError):
                consumer.poll(wait=0)
            rows.upsert({"id": 3})
            assert [message.body.row["id"] for message in consumer.poll(wait=0).messages] == [3]

    def test_table_without_a_feed(self, events: SystemData) -> None:
        with pytest.raises(UnsupportedOperationError):
            events.consumer(Feed("sys_leases"), group="g")
        with pytest.raises(NotFoundError, match="no table 'absent'"):
            events.consumer(Feed("absent"), group="g")
        for name in ("", None):
            with pytest.raises(ValueError, match="must"):
                Feed(name)  # type: ignore[arg-type]  # None is no name


class _Backwards:
    """A feed of one commit of rows that were inserted, read from its end."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed

    def read(self, since: FeedPosition, until: FeedPosition | None = None, *, after: int | None) -> Iterator[Change]:
        with self._feed.read(since, until, after=after) as changes:
            return reversed(list(changes))


def test_forwarded_messages_become_jobs_exactly_once(events: SystemData) -> None:
    publish(events, *"ab", key="k")
    assert events.forward(EVENTS, "g", "q") == 2
    assert events.forward(EVENTS, "g", "q") == 0
    jobs = events.run(lambda s: s.jobs.page("q", JobState.READY)).items
    found = sorted(jobs, key=lambda job: job.id)
    bodies: list[object] = [job.args["body"] for job in found]  # type: ignore[index]
    assert sorted(map(repr, bodies)) == ["{'number': 0, 'what': 'a'}", "{'number': 0, 'what': 'b'}"]
    assert {job.args["key"] for job in found} == {"k"}  # type: ignore[index]


def test_wrong_name_of_a_queue_fails_no_message(events: SystemData) -> None:
    publish(events, "a")
    with pytest.raises(ValueError, match="queue"):
        events.forward(EVENTS, "g", "")
    assert events.topics.status(EVENTS).groups == []


def test_numbers_that_json_does_not_have_are_forwarded(events: SystemData, shared_store: Storage) -> None:
    fields = [Field.long("id"), Field.double("value")]
    options = {"changelog-producer": "input"}
    shared_store.admin.create(TableSpecification("feed_of", fields, primary_key=["id"], options=options))
    try:
        values = [float("nan"), float("-inf"), 0.5]
        shared_store.table("feed_of").upsert_many([{"id": id, "value": value} for id, value in enumerate(values)])
        assert events.forward(Feed("feed_of"), "g", "q") == 3
    finally:
        shared_store.admin.drop("feed_of")
    jobs = events.run(lambda s: s.jobs.page("q", JobState.READY)).items
    found = {job.args["body"]["row"]["id"]: job.args["body"]["row"]["value"] for job in jobs}  # type: ignore[index]
    assert found == {0: "nan", 1: "-inf", 2: 0.5}


def test_conflicting_handler_is_run_again(events: SystemData) -> None:
    publish(events, "a")
    runs: list[int] = []

    def handle(s: Session, messages: Sequence[Message[Event]]) -> None:
        note(s, messages)
        runs.append(1)
        if len(runs) == 1:
            raise TransactionConflictError("once")

    with joined(events) as consumer:
        assert consumer.process(handle, wait=0) == 1
    assert (len(runs), noted(events)) == (2, "a")
