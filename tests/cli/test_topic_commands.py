"""`structable topic`, and what `doctor` says of groups."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from structable.datasets import Feed, Message, Record, Session, SystemData, Topic, TopicStatus
from structable.datasets.commands import group_findings
from structable.datasets.messaging import Topics
from structable.datasets.system.messages import GroupSource
from structable.spi import Field, FindingLevel, TableSpecification, connect
from tests.cli.conftest import Command
from tests.cli.support.signals import inherited

ROOT = Path(__file__).parents[2]


class Event(Record):
    what: str


EVENTS = Topic("run-events", Event)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"leveldb://{tmp_path}/store"
    with connect(url) as storage:
        SystemData.create(storage)
        SystemData(storage).topics.create(EVENTS)
        options = {"changelog-producer": "lookup"}
        storage.admin.create(TableSpecification("rows", [Field.long("id")], primary_key=["id"], options=options))
    return url


def publish(url: str, *texts: str) -> None:
    with SystemData.open(url) as system, system.transaction() as s:
        for text in texts:
            s.publish(EVENTS, Event(what=text), key="k")


def give_up(url: str, count: int) -> None:
    """Let a group give up the first messages."""

    def refuse(s: Session, messages: list[Message[Event]]) -> None:
        raise ValueError("broken")

    with SystemData.open(url) as system, system.consumer(EVENTS, group="g", max_attempts=1) as consumer:
        for _ in range(count):
            with contextlib.suppress(ValueError):
                consumer.process(refuse, limit=1, wait=0)  # type: ignore[arg-type] # a list is a sequence


def test_list_and_show(structable: Command, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert structable("topic", "list", url) == (0, "run-events\n", "")
    assert structable("topic", "show", url, "run-events").out.startswith("kept after ")
    publish(url, *"abc")
    give_up(url, 1)
    monkeypatch.setenv("STRUCTABLE_URL", url)
    assert json.loads(structable("topic", "list", "--format", "json").out) == ["run-events"]
    shown = json.loads(structable("topic", "show", "run-events", "--format", "json").out)
    (group,) = shown["groups"]
    assert (group["group"], group["lag"], group["owner"], group["estimated"]) == ("g", 2, None, False)
    lines = structable("topic", "show", "run-events").out.splitlines()
    assert lines[1].split() == ["group", "lag", "seconds", "attempts", "owner"]
    assert lines[2].split()[:2] == ["g", "2"]


def test_dead_letters_and_redrive(structable: Command, url: str) -> None:
    publish(url, *"ab")
    give_up(url, 2)
    first, second = json.loads(structable("topic", "dead", url, "run-events", "g", "--format", "json").out)
    assert (first["body"], first["key"], first["error"]) == ({"what": "a"}, "k", "ValueError: broken")
    assert "1 attempts  ValueError: broken" in structable("topic", "dead", url, "run-events", "g").out
    done = structable("topic", "redrive", url, "run-events", "g", "--id", second["id"])
    assert done == (0, "1 published again\n", "")
    done = structable("topic", "redrive", url, "run-events", "g", "--format", "json")
    assert json.loads(done.out) == {"redriven": 1}
    assert structable("topic", "redrive", url, "run-events", "g", "--id", second["id"]).code == 3
    lines = structable("topic", "tail", url, "run-events", "--since", "first", "--no-follow").out.splitlines()
    assert [line.rpartition("  ")[2] for line in lines] == [f'{{"what": "{what}"}}' for what in "abba"]


def test_seek_and_tail(structable: Command, url: str) -> None:
    publish(url, *"abc")
    with SystemData.open(url) as system:
        system.consumer(EVENTS, group="g").close()
    tail = ("topic", "tail", url, "run-events", "--format", "json", "--no-follow", "--since")
    messages = [json.loads(line) for line in structable(*tail, "first").out.splitlines()]
    assert [message["body"] for message in messages] == [{"what": what} for what in "abc"]
    assert structable(*tail, "end").out == ""
    assert len(structable(*tail, messages[1]["id"]).out.splitlines()) == 1
    assert len(structable(*tail, "2000-01-01T00:00:00Z", "--limit", 2).out.splitlines()) == 2
    assert structable("topic", "seek", url, "run-events", "g", messages[0]["id"]).code == 0
    done = structable("topic", "seek", url, "run-events", "g", "end", "--format", "json")
    assert json.loads(done.out) == {"group": "g", "place": "end"}
    shown = json.loads(structable("topic", "show", url, "run-events", "--format", "json").out)
    assert shown["groups"][0]["lag"] == 0


def test_tail_follows(url: str) -> None:
    command = [sys.executable, "-m", "structable.cli", "topic", "tail", url, "run-events", "--since", "first"]
    with subprocess.Popen([*command, "--limit", "2"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            publish(url, "a")
            assert process.stdout is not None
            assert '{"what": "a"}' in process.stdout.readline()
            publish(url, "b")
            assert '{"what": "b"}' in process.stdout.readline()
            assert process.wait() == 0
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_tail(url: str, number: signal.Signals, code: int) -> None:
    publish(url, "a")
    command = [sys.executable, "-m", "structable.cli", "topic", "tail", url, "run-events", "--since", "first"]
    with (
        inherited(),
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert '{"what": "a"}' in process.stdout.readline()
            process.send_signal(number)
            _, errors = process.communicate()
            assert (process.returncode, "Traceback" in errors) == (code, False)
        finally:
            process.kill()


def test_each_message_is_one_line(structable: Command, url: str) -> None:
    raw = Topic(EVENTS.name, bytes)
    with SystemData.open(url) as system, system.transaction() as s:
        s.publish(raw, b"[" * 100_000, key="a\n\x1bb")
    with SystemData.open(url) as system, system.consumer(raw, group="g", max_attempts=1) as consumer:
        consumer.poll(wait=0).retry("on one line\nand another")
    for arguments in (("tail", url, "run-events", "--since", "first", "--no-follow"), ("dead", url, "run-events", "g")):
        done = structable("topic", *arguments)
        assert (done.code, done.out.count("\n"), "  a \\x1bb  " in done.out) == (0, 1, True)


@pytest.mark.parametrize("body", ["NaN", '{"a": [-Infinity]}', "1e999"])
def test_json_of_a_body_that_only_python_reads(structable: Command, url: str, body: str) -> None:
    with SystemData.open(url) as system, system.transaction() as s:
        s.publish(Topic(EVENTS.name, bytes), body.encode())
    done = structable("topic", "tail", url, "run-events", "--since", "first", "--no-follow", "--format", "json")
    assert json.loads(done.out, parse_constant=pytest.fail)["body"] == body


def test_groups_over_the_feed_of_a_table(structable: Command, url: str) -> None:
    with SystemData.open(url) as system:
        system.consumer(Feed("rows"), group="g").close()
        system.storage.table("rows").upsert({"id": 1})
    assert json.loads(structable("topic", "show", url, "feed/rows", "--format", "json").out)["groups"][0]["lag"] == 1
    assert (
        '{"kind": "+I", "row": {"id": 1}}'
        in structable("topic", "tail", url, "feed/rows", "--since", "first", "--no-follow").out
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("show", "URL", "Bad"), 2, "a-z"),
        (("show", "URL", "absent"), 3, "absent"),
        (("show", "URL"), 2, "every other argument"),
        (("seek", "URL", "run-events", "g", "now"), 2, "VERSION.NUMBER"),
        (("seek", "URL", "run-events", "g", "2026-01-01"), 2, "no zone"),
        (("seek", "URL", "run-events", "g", "first"), 3, "'g'"),
        (("redrive", "URL", "run-events", "g", "--id", "x"), 2, "VERSION.NUMBER"),
    ],
)
def test_misuse(structable: Command, url: str, arguments: tuple[str, ...], code: int, message: str) -> None:
    failed = structable("topic", *[url if one == "URL" else one for one in arguments])
    assert failed.code == code
    assert message in " ".join(failed.err.replace("│", " ").split())


def test_doctor_notes_groups_without_a_member_that_beats(
    structable: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_findings, "WATCHED_SECONDS", 0.3)
    with SystemData.open(url) as system:
        system.consumer(EVENTS, group="g").close()
    assert "ok       group g of run-events in sys_subscriptions: no message waits\n" in structable("doctor", url).out
    publish(url, "a")
    assert "1 messages wait, the first for" in structable("doctor", url).out
    assert "no member is there; start one" in structable("doctor", url).out
    with SystemData.open(url) as system:
        consumer = system.consumer(EVENTS, group="g", ttl=3600)
        consumer.poll(wait=0)
        consumer.stop_beating()
    checked = structable("doctor", url)
    assert checked.code == 0
    assert "did not beat for 0 s: unless its ttl is over 1 s, it has stopped" in checked.out


def test_doctor_with_long_names_and_tables_that_are_missing(structable: Command, url: str) -> None:
    with connect(url) as storage:
        SystemData(storage).topics.create(Topic("a" * 37, bytes))
        for name in ("x" * 48, "x" * 44 + "jobs", "x" * 35 + "subscriptions"):
            storage.admin.create(TableSpecification(name, [Field.long("id")], primary_key=["id"]))
        storage.admin.drop("sys_dead_letters")
    checked = structable("doctor", url)
    assert checked.code == 0
    assert "note     groups in sys_subscriptions: sys_dead_letters missing" in checked.out


def test_doctor_reads_a_topic_once_for_all_its_groups(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(url, "a")
    with SystemData.open(url) as system:
        for group in "gh":
            system.consumer(EVENTS, group=group).close()
        read: list[str] = []
        status = Topics.status

        def counted(self: Topics, topic: GroupSource[object]) -> TopicStatus:
            read.append(topic.subject)
            return status(self, topic)

        monkeypatch.setattr(Topics, "status", counted)
        found = list(group_findings.findings(system.storage))
    assert ([one.level for one in found], read) == ([FindingLevel.NOTE] * 2, ["run-events"])
