"""A group of a topic: members that handle, fail, leave, die and take over at random, beside a model of plain values."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from structable.datasets import Batch, Consumer, LeaseLostError, Message, Session, SystemData, Topic
from structable.datasets.system.messages import REDRIVEN
from structable.datasets.system.publishing import insert
from structable.spi import Storage
from tests.datasets.machines.conftest import Explore
from tests.datasets.support.clock import Clock
from tests.datasets.support.stores import emptied
from tests.datasets.support.ticks import Ticks

TEXTS = Topic("texts", bytes)
TTL = 1000
MEMBERS = (0, 1)


class BrokenError(Exception):
    pass


@dataclasses.dataclass
class Model:
    """The messages, each a text, or None if it is for another group; and the group, whose places are indexes."""

    messages: list[bytes | None] = dataclasses.field(default_factory=list)
    place: int = 0
    isolate: int | None = None
    owner: int | None = None
    epoch: int = 0
    beat: int = 0
    attempts: int = 0
    retry_at: dt.datetime | None = None
    error: bool = False
    dead: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """By the index of the message: one that is read again, and fails again, is one dead letter."""

    def move(self, to: int) -> None:
        self.place, self.attempts, self.retry_at, self.error = to, 0, None, False
        if self.isolate is not None and self.isolate < to:
            self.isolate = None


@dataclasses.dataclass
class Member:
    """What a member knows."""

    consumer: Consumer[bytes]
    max_attempts: int
    epoch: int | None = None
    took_over: bool = False
    counted: int | None = None
    batch: Batch[bytes] | None = None
    out: tuple[int, int, list[int]] | None = None
    """The places before and behind its batch, and the messages in it."""


def _delay(attempts: int) -> dt.timedelta:
    return dt.timedelta(seconds=min(300, 2**attempts))


class GroupsMachine(RuleBasedStateMachine):
    def __init__(self, storage: Storage) -> None:
        super().__init__()
        emptied(storage)
        self.model = Model()
        self.clock, self.ticks = Clock(), Ticks()
        self.system = SystemData.open(storage, clock=self.clock, monotonic=self.ticks)
        self.system.topics.create(TEXTS)
        self.members = [self._joined(1), self._joined(3)]
        # What the process has seen of beats: epoch, beat, and since when.
        self.seen: tuple[int, int, float] | None = None
        self.published = 0

    def _joined(self, max_attempts: int) -> Member:
        consumer = self.system.consumer(TEXTS, group="g", max_attempts=max_attempts, ttl=TTL)
        return Member(consumer, max_attempts)

    @rule(seconds=st.sampled_from((1, 1, 2, 300)), share=st.sampled_from((0, 0.5, 1, 1)))
    def wait(self, seconds: float, share: float) -> None:
        """Let time pass, on the monotonic clock a share of the ttl."""
        self.clock.tick(seconds)
        self.ticks.tick(TTL * share)

    @rule(count=st.integers(1, 4), foreign=st.booleans())
    def publish(self, count: int, foreign: bool) -> None:
        with self.system.transaction() as s:
            for _ in range(count):
                self.published += 1
                text = b"%d" % self.published
                s.publish(TEXTS, text)
                self.model.messages.append(text)
            if foreign:
                insert(s._context, TEXTS, None, b"other's", {REDRIVEN: "other"})
                self.model.messages.append(None)

    # What a member does

    @rule(number=st.sampled_from(MEMBERS), limit=st.sampled_from((1, 2, 100)))
    def poll(self, number: int, limit: int) -> None:
        member = self.members[number]
        member.batch = member.out = None
        try:
            out = self._expected(number, limit)
        except LeaseLostError:
            with pytest.raises(LeaseLostError):
                member.consumer.poll(limit, wait=0)
            return
        batch = member.consumer.poll(limit, wait=0)
        assert [message.body for message in batch.messages] == self._texts(out)
        if out is not None:
            member.batch, member.out = batch, out

    @rule(number=st.sampled_from(MEMBERS), limit=st.sampled_from((1, 2, 100)), broken=st.booleans())
    def process(self, number: int, limit: int, broken: bool) -> None:
        member, handled = self.members[number], list[bytes]()

        def handle(s: Session, messages: Sequence[Message[bytes]]) -> None:
            handled.extend(message.body for message in messages)
            if broken:
                raise BrokenError

        try:
            out = self._expected(number, limit)
        except LeaseLostError:
            with pytest.raises(LeaseLostError):
                member.consumer.process(handle, limit, wait=0)
            return
        if out is not None and broken:
            with pytest.raises(BrokenError):
                member.consumer.process(handle, limit, wait=0)
            self._fail(member, out)
        else:
            assert member.consumer.process(handle, limit, wait=0) == len(self._texts(out))
            if out is not None:
                self.model.move(out[1])
        assert handled == self._texts(out)

    @rule(number=st.sampled_from(MEMBERS), retry=st.booleans())
    def end_batch(self, number: int, retry: bool) -> None:
        """Commit the batch of a member, or give it back, if it is still the group's next one."""
        member = self.members[number]
        if member.batch is None or member.out is None:
            return
        act = (lambda batch: batch.retry("x")) if retry else Batch.commit
        if self._has(number) and self.model.place == member.out[0]:
            act(member.batch)
            if retry:
                self._fail(member, member.out)
            else:
                self.model.move(member.out[1])
        else:
            with pytest.raises(LeaseLostError):
                act(member.batch)

    @rule(number=st.sampled_from(MEMBERS))
    def beat(self, number: int) -> None:
        group = self.members[number].consumer._group
        if self._has(number):
            group._beat()
            self.model.beat += 1
        elif group.epoch is not None:
            with pytest.raises(LeaseLostError):
                group._beat()

    @rule(number=st.sampled_from(MEMBERS), dies=st.booleans())
    def leave(self, number: int, dies: bool) -> None:
        """Leave, or die, and join again."""
        member, model = self.members[number], self.model
        if dies:
            member.consumer.stop_beating()
        else:
            member.consumer.close()
            if self._has(number):
                model.owner = None
                model.attempts = max(0, model.attempts - (member.counted == model.place))
        if model.owner == number:
            model.owner = -1  # nobody who is left
        self.members[number] = self._joined(member.max_attempts)

    # What others do

    @rule(place=st.sampled_from(("first", "end")))
    def seek(self, place: str) -> None:
        self.system.topics.seek(TEXTS, "g", place)
        self.model.move(0 if place == "first" else len(self.model.messages))
        self.model.isolate = None
        for member in self.members:
            member.batch = member.out = None  # it may be at the same place, or not

    @rule()
    def redrive(self) -> None:
        assert self.system.topics.redrive(TEXTS, "g") == len(self.model.dead)
        self.model.messages += [text for _, text in sorted(self.model.dead.items())]
        self.model.dead = {}

    # The model

    def _texts(self, out: tuple[int, int, list[int]] | None) -> list[bytes]:
        texts = [] if out is None else [self.model.messages[index] for index in out[2]]
        return [text for text in texts if text is not None]

    def _has(self, number: int) -> bool:
        return self.model.owner == number and self.model.epoch == self.members[number].epoch

    def _expected(self, number: int, limit: int) -> tuple[int, int, list[int]] | None:
        """Return what the member gets now: the places before and behind it, and the indexes of messages."""
        member, model = self.members[number], self.model
        if member.epoch is not None:
            if not self._has(number):
                member.epoch = member.counted = None
                raise LeaseLostError("g")
        elif not self._acquired(number, member):
            return None
        while True:
            if model.retry_at is not None and model.retry_at > self.clock.time:
                return None
            end = min(len(model.messages), model.place + (limit if model.isolate is None else 1))
            if end == model.place:
                member.took_over = False
                return None
            if member.took_over:
                member.took_over = False
                if model.isolate is None:
                    model.isolate = end - 1
                    continue
            if model.isolate is not None and model.attempts >= self._max_attempts:
                self._bury([model.place])
                model.move(end)
                continue
            kept = [index for index in range(model.place, end) if model.messages[index] is not None]
            if not kept:
                model.move(end)
                continue
            if model.isolate is not None and (member.counted != model.place or model.attempts == 0):
                model.attempts += 1
                member.counted = model.place
            return model.place, end, kept

    _max_attempts = 0

    def _acquired(self, number: int, member: Member) -> bool:
        model = self.model
        if model.owner is not None:
            if self.seen is None or self.seen[:2] != (model.epoch, model.beat):
                self.seen = model.epoch, model.beat, self.ticks.seconds
                return False
            if self.ticks.seconds - self.seen[2] < TTL:
                return False
            retry_at = self.clock.time + _delay(model.attempts)
            model.retry_at = retry_at if model.retry_at is None else max(retry_at, model.retry_at)
            model.error = True
        member.took_over = model.owner is not None
        self.seen = None
        if member.max_attempts < self._max_attempts:
            model.attempts = min(model.attempts, member.max_attempts - 1)
        self._max_attempts = member.max_attempts
        model.owner = number
        model.epoch += 1
        member.epoch = model.epoch
        return True

    def _fail(self, member: Member, out: tuple[int, int, list[int]]) -> None:
        model, (begin, end, indexes) = self.model, out
        model.attempts = max(1, model.attempts + (member.counted != begin))
        member.counted = None
        if len(indexes) == 1 and model.attempts >= self._max_attempts:
            self._bury(indexes)
            model.move(end)
            return
        model.retry_at, model.error = self.clock.time + _delay(model.attempts), True
        if len(indexes) > 1:
            model.attempts = min(model.attempts, self._max_attempts - 1)
        if model.isolate is None:
            model.isolate = indexes[-1]

    def _bury(self, indexes: list[int]) -> None:
        for index in indexes:
            text = self.model.messages[index]
            assert text is not None
            self.model.dead[index] = text

    @invariant()
    def group_is_that_of_the_model(self) -> None:
        (group,) = self.system.topics.status(TEXTS).groups
        model = self.model
        assert (group.lag, group.attempts) == (len(model.messages) - model.place, model.attempts)
        assert (group.error is not None, group.owner is not None) == (model.error, model.owner is not None)
        dead = [str(one.body) for one in self.system.topics.dead(TEXTS, "g")]
        assert sorted(dead) == sorted(map(str, model.dead.values()))

    def teardown(self) -> None:
        for member in self.members:
            member.consumer.stop_beating()
        self.system.close()


def test_groups_are_those_of_a_model(explore: Explore) -> None:
    explore(GroupsMachine)
