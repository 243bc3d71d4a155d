"""Runs, by random messages that are in order, late, twice or illegal, beside a model of plain values."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections import Counter
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from structable.datasets import (
    AlreadyExistsError,
    Changed,
    Ignored,
    InUseError,
    NotFoundError,
    ProgramRef,
    Run,
    RunRef,
    RunStatus,
)
from structable.spi import Storage
from tests.datasets.machines.conftest import Explore
from tests.datasets.support.run_states import NEXT_CLUSTER, NEXT_STATUS
from tests.datasets.support.session_machine import SessionMachine

ENDS = ("COMPLETED", "FAILED", "KILLED", "REJECTED")

# Each message, the state that it wants, and the time that it sets.
STATUS_MESSAGES = {
    "starting": ("STARTING", "started"),
    "running": ("RUNNING", "running"),
    "suspend": ("SUSPENDED", "suspended"),
    "resume": ("RUNNING", "resumed"),
    "stopping": ("STOPPING", "stopping"),
}
CLUSTER_MESSAGES = {
    "provisioned": "PROVISIONED",
    "waiting": "WAITING",
    "deprovisioning": "DEPROVISIONING",
    "deprovisioned": "DEPROVISIONED",
    "orphaned": "ORPHANED",
}

BEGIN = dt.datetime(2026, 1, 5, 11, 59, 59, 998_000, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)
FAR_EAST = dt.timezone(dt.timedelta(hours=9))


def run_id(millisecond: int, number: int) -> str:
    """Return the id of a run that began so many milliseconds after `BEGIN`."""
    start = (BEGIN + millisecond * MILLISECOND - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // MILLISECOND
    text = f"{start:012x}"
    return f"{text[:8]}-{text[8:]}-7000-8000-{number:012x}"


def start_of(run: str) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + int(run[:8] + run[9:13], 16) * MILLISECOND


WEB = ProgramRef("default", "shop", "service", "web")
LOAD = ProgramRef("default", "shop", "workflow", "load")
OTHER = ProgramRef("default", "shop2", "service", "web")  # its application's name begins with the other one
SYSTEM = ProgramRef("system", "shop", "service", "web")
FIRST, SECOND, THIRD, FOURTH = run_id(0, 1), run_id(0, 2), run_id(1, 0), run_id(5, 7)
POOL = [*(WEB.run(one) for one in (FIRST, SECOND, THIRD, FOURTH)), *(ref.run(FIRST) for ref in (LOAD, OTHER, SYSTEM))]
REFS = [WEB, LOAD, OTHER, SYSTEM]
PREFIXES = [WEB[:length] for length in range(5)] + [SYSTEM[:1], OTHER[:2], ("absent",)]

SEEDS = st.integers(0, 2**32)
DOCUMENTS = (None, "no room", {"code": 7, "of": [1.5, None, "ä"]})
AROUND = (None, *(BEGIN + halves * MILLISECOND / 2 for halves in (-1, 0, 1, 2, 9, 10, 11)))
"""Times around the starts of the runs, in half milliseconds."""


class Message(NamedTuple):
    """A message about a run: a method of `runs`, or the status with which the run ends.

    `lead` is how far its source is ahead of the stored one, and `hours` how far its time is ahead of the clock.
    """

    name: str
    lead: int
    hours: int | None
    document: object
    number: int


MESSAGES = (*STATUS_MESSAGES, *CLUSTER_MESSAGES)
END_MESSAGES = ("COMPLETED", "FAILED", "KILLED", "reject")


@dataclasses.dataclass
class Model:
    runs: dict[RunRef, dict[str, Any]] = dataclasses.field(default_factory=dict)
    counts: Counter[tuple[ProgramRef, str]] = dataclasses.field(default_factory=Counter)
    versions: set[tuple[str, str, str]] = dataclasses.field(default_factory=set)


def plain(run: Run | None) -> dict[str, Any] | None:
    """Return a run as the model keeps it, without the fields that are None."""
    if run is None:
        return None
    fields = {name: value for name, value in msgspec.structs.asdict(run).items() if value is not None}
    for name in ("namespace", "application", "program_type", "program", "run"):
        del fields[name]
    return fields


class RunsMachine(SessionMachine[Model]):
    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, Model())
        with self.session() as s:
            for ref in (WEB, OTHER, SYSTEM):
                s.applications.deploy(ref.namespace, ref.application, "1", {})
                self.model.versions.add((ref.namespace, ref.application, "1"))

    def _time(self, hours: int | None) -> dt.datetime | None:
        """Return the `at` of a message, in any time zone; None for that of the clock."""
        return None if hours is None else (self.clock.time + dt.timedelta(hours=hours)).astimezone(FAR_EAST)

    # Messages

    @rule(seed=SEEDS)
    def send(self, seed: int) -> None:
        """Send messages about three runs, each in a transaction of its own unless one is open."""
        chance = random.Random(seed)
        for _ in range(3):
            key = chance.choice(POOL)
            if key not in self.model.runs and chance.random() < 0.8:
                self._provision(key, chance)
            for _ in range(chance.randint(2, 10)):
                message = self._random_message(key, chance)
                note(f"{key.run} of {key.ref}: {message}")
                self._send(key, message)

    @rule(seed=SEEDS)
    def provision(self, seed: int) -> None:
        chance = random.Random(seed)
        for key in chance.sample(POOL, 3):
            self._provision(key, chance)

    def _provision(self, key: RunRef, chance: random.Random) -> None:
        version, source = chance.choice("11112"), chance.randint(0, 9)
        more: dict[str, Any] = {
            "profile": chance.choice((None, "small")),
            "parent_run": chance.choice((None, FIRST, THIRD)),
            "artifact": chance.choice(DOCUMENTS),
            "arguments": chance.choice(({}, {"a": "1", "b": {"c": [1]}})),
            "system": chance.choice(({}, {"user": "ada"})),
            "principal": chance.choice((None, "ada")),
            "peer": chance.choice((None, "west")),
        }
        note(f"provision {key.run} of {key.ref}, version {version}, source {source}, {more}")
        with self.session() as s:
            answer = s.runs.provision(key.ref, key.run, version=version, source=source, **more)
        if key in self.model.runs:
            self._ignored(answer, "EXISTS", key)
        elif (key.namespace, key.application, version) not in self.model.versions:
            self._ignored(answer, "MISSING", key)
        else:
            self.model.counts[key.ref, version] += 1
            states = {"status": "PENDING", "cluster": "PROVISIONING", "active": True, "cluster_open": True}
            self._changed(answer, key, {"version": version, "source": source, **states, **more})

    def _random_message(self, key: RunRef, chance: random.Random) -> Message:
        """Return any message, or one that the state of the run allows; in order, late, or with the stored source."""
        current = self.model.runs.get(key, {})
        following = NEXT_STATUS.get(current.get("status", ""), set())
        legal = [name for name, (status, _) in STATUS_MESSAGES.items() if status in following]
        [names] = chance.choices([legal or MESSAGES, MESSAGES, END_MESSAGES], [4, 4, 2])
        return Message(
            chance.choice(names),
            chance.choice((1, 1, 1, 2, 0, 0, -1)),
            chance.choice((None, chance.randint(-40, 40))),
            chance.choice(DOCUMENTS),
            chance.randint(0, 3),
        )

    def _send(self, key: RunRef, message: Message) -> None:
        source = int(self.model.runs.get(key, {"source": 5})["source"]) + message.lead
        at = self._time(message.hours)
        with self.session() as s:
            if message.name == "reject":
                answer = s.runs.reject(key.ref, key.run, source=source, reason=message.document, at=at)
            elif message.name in ENDS:
                end = RunStatus(message.name)
                answer = s.runs.stop(key.ref, key.run, status=end, source=source, failure=message.document, at=at)
            else:
                more = self._more(message)
                answer = getattr(s.runs, message.name)(key.ref, key.run, source=source, at=at, **more)
        self._answered(answer, key, message, source)

    # What other datasets do with runs, and clean-up

    @rule(
        action=st.sampled_from(("refuse_bad_arguments", "deploy", "delete_version", "delete_history", "expire")),
        seed=SEEDS,
    )
    def upkeep(self, action: str, seed: int) -> None:
        getattr(self, f"_{action}")(random.Random(seed))

    def _refuse_bad_arguments(self, chance: random.Random) -> None:
        key = chance.choice(POOL)
        with self.session() as s:
            for status in ("PENDING", "RUNNING", "REJECTED"):
                with pytest.raises(ValueError, match=status):
                    s.runs.stop(key.ref, key.run, status=RunStatus(status), source=99)
            with pytest.raises(ValueError, match="UUIDv7"):
                s.runs.provision(key.ref, key.run.upper() + "x", version="1", source=99)

    def _deploy(self, chance: random.Random) -> None:
        key = (*chance.choice(REFS)[:2], chance.choice("12"))
        with self.session() as s:
            if key in self.model.versions:
                with pytest.raises(AlreadyExistsError):
                    s.applications.deploy(*key, {})
            else:
                s.applications.deploy(*key, {})
        self.model.versions.add(key)

    def _delete_version(self, chance: random.Random) -> None:
        ref, version = chance.choice(REFS), chance.choice("12")
        key = (*ref[:2], version)
        active = [
            one for one, run in self._found(ref[:2]) if run["status"] not in ENDS and run.get("version") == version
        ]
        with self.session() as s:
            if key not in self.model.versions:
                with pytest.raises(NotFoundError):
                    s.applications.delete_version(*key)
            elif active:
                with pytest.raises(InUseError):
                    s.applications.delete_version(*key)
            else:
                s.applications.delete_version(*key)
                self.model.versions.remove(key)

    def _delete_history(self, chance: random.Random) -> None:
        prefix = chance.choice(PREFIXES)
        ended = [key for key, run in self._found(prefix) if run["status"] in ENDS]
        with self.session() as s:
            assert s.runs.delete_history(*prefix) == len(ended)
        for key in ended:
            del self.model.runs[key]

    def _expire(self, chance: random.Random) -> None:
        before = (self.clock.time + dt.timedelta(days=chance.randint(-1, 2))).date()
        limit = chance.randint(1, 3)
        old = {key for key, run in self.model.runs.items() if "ended_on" in run and run["ended_on"] < before}
        with self.session() as s:
            count = s.runs.expire(before, limit)
            left = {one.run_ref for one in s.runs.get_many(POOL)}
        assert count == min(limit, len(old))
        expired = self.model.runs.keys() - left
        assert len(expired) == count
        assert expired <= old
        for key in expired:
            del self.model.runs[key]

    # Queries of any arguments

    @rule(
        ref=st.sampled_from((WEB, WEB, OTHER)),
        status=st.none() | st.sampled_from(RunStatus),
        bound=st.sampled_from(AROUND),
        limit=st.sampled_from((1, 2, 100)),
    )
    def read_history(self, ref: ProgramRef, status: RunStatus | None, bound: dt.datetime | None, limit: int) -> None:
        for other in AROUND:
            for after, before in ((bound, other), (other, bound)):
                expected = [
                    key.run
                    for key, run in reversed(self._found(ref))
                    if (status is None or run["status"] == status)
                    and (after is None or after <= start_of(key.run))
                    and (before is None or start_of(key.run) < before)
                ]
                found: list[str] = []
                cursor = None
                with self.session() as s:
                    for _ in range(len(expected) // limit + 1):
                        page = s.runs.history(
                            ref, status=status, after=after, before=before, limit=limit, cursor=cursor
                        )
                        found += [one.run for one in page.items]
                        cursor = page.next
                        if cursor is None:
                            break
                assert (found, cursor) == (expected, None)

    @rule(namespace=st.sampled_from(("default", "default", "system")), length=st.sampled_from((0, 1, 48)))
    def find_overlapping(self, namespace: str, length: int) -> None:
        times = [run[time] for run in self.model.runs.values() for time in ("started", "stopped") if time in run]
        for begin in times or [self.clock.time]:
            end = begin + dt.timedelta(hours=length)
            expected = [
                key
                for key, run in self._found((namespace,))
                if "started" in run and run["started"] < end and ("stopped" not in run or run["stopped"] >= begin)
            ]
            with self.session() as s:
                assert [one.run_ref for one in s.runs.overlapping(namespace, begin, end)] == expected

    # What always holds

    @invariant()
    def runs_are_those_of_the_model(self) -> None:
        runs = self._found(())
        with self.session() as s:
            assert [(one.run_ref, plain(one)) for one in s.runs.get_many(reversed(POOL))] == runs
            for key in POOL:
                assert plain(s.runs.get(key.ref, key.run)) == self.model.runs.get(key)
            newest = [key.run for key, _ in reversed(self._found(WEB))]
            assert [one.run for one in s.runs.history(WEB).items] == newest

    @invariant()
    def active_runs_are_those_of_the_model(self) -> None:
        with self.session() as s:
            for prefix in PREFIXES:
                active = [key for key, run in self._found(prefix) if run["status"] not in ENDS]
                assert [one.run_ref for one in s.runs.active(*prefix)] == active
                assert s.runs.count_active(*prefix) == len(active)
                assert s.runs.count_active(*prefix, limit=1) == min(1, len(active))
            unfinished = [key for key, run in self._found(()) if run.get("cluster") in NEXT_CLUSTER]
            assert [one.run_ref for one in s.runs.open_clusters()] == unfinished

    @invariant()
    def counts_and_children_are_those_of_the_model(self) -> None:
        with self.session() as s:
            for ref in REFS:
                by_version = {version: self.model.counts[ref, version] for version in ("1", "2", "3")}
                assert {version: s.runs.count(ref, version) for version in by_version} == by_version
                assert s.runs.count(ref) == sum(by_version.values())
            for parent in (FIRST, SECOND, THIRD):
                children = [key for key, run in self._found(()) if run.get("parent_run") == parent]
                assert [one.run_ref for one in s.runs.children(parent)] == children

    # The model

    def _utc(self, at: int | None) -> dt.datetime:
        return self._time(0 if at is None else at).astimezone(dt.UTC)  # type: ignore[union-attr] # not None is given

    def _found(self, prefix: tuple[str, ...]) -> list[tuple[RunRef, dict[str, Any]]]:
        """Return the runs within a prefix, in key order."""
        return sorted(
            ((key, run) for key, run in self.model.runs.items() if key[: len(prefix)] == tuple(prefix)),
            key=lambda item: item[0],
        )

    def _more(self, message: Message) -> dict[str, Any]:
        """Return what one message has and the others have not."""
        if message.name == "provisioned":
            return {"nodes": message.number}
        if message.name == "stopping" and message.number:
            return {"terminate_by": self._time(message.number)}
        return {}

    def _wanted(self, message: Message) -> dict[str, Any]:
        """Return the fields that a message sets, the state first."""
        at = self._utc(message.hours)
        if message.name in STATUS_MESSAGES:
            status, time = STATUS_MESSAGES[message.name]
            return {"status": status, time: at, **self._more(message)}
        if message.name in CLUSTER_MESSAGES:
            cluster = CLUSTER_MESSAGES[message.name]
            still_open = True if cluster in NEXT_CLUSTER else None
            return {"cluster": cluster, "cluster_open": still_open, **self._more(message)}
        status = "REJECTED" if message.name == "reject" else message.name
        ended = {"active": None, "ended_on": at.date(), "stopped": at, "failure": message.document}
        return {"status": status, **ended}

    def _answered(self, answer: Changed | Ignored, key: RunRef, message: Message, source: int) -> None:
        """Expect the answer to a message, and change the model."""
        current = self.model.runs.get(key)
        changes = self._wanted(message)
        if current is None and message.name == "reject":
            self._changed(answer, key, {**changes, "source": source, "arguments": {}, "system": {}})
            return
        field, state = next(iter(changes.items()))
        following = NEXT_STATUS if field == "status" else NEXT_CLUSTER
        if current is None:
            self._ignored(answer, "MISSING", key)
        elif source < current["source"]:
            self._ignored(answer, "STALE", key)
        elif current.get(field) == state:
            self._ignored(answer, "DUPLICATE", key)
        elif state not in following.get(current.get(field, ""), ()):
            self._ignored(answer, "ILLEGAL", key)
        else:
            self._changed(answer, key, {**current, **changes, "source": source})

    def _ignored(self, answer: Changed | Ignored, reason: str, key: RunRef) -> None:
        assert isinstance(answer, Ignored)
        assert (answer.reason, plain(answer.current)) == (reason, self.model.runs.get(key))

    def _changed(self, answer: Changed | Ignored, key: RunRef, fields: dict[str, Any]) -> None:
        assert isinstance(answer, Changed)
        after = {name: value for name, value in fields.items() if value is not None}
        assert (plain(answer.before), plain(answer.after)) == (self.model.runs.get(key), after)
        assert answer.after.run_ref == key
        self.model.runs[key] = after


def test_runs_are_those_of_a_model(explore: Explore) -> None:
    explore(RunsMachine)
