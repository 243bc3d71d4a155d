"""The findings of `structable doctor` about the groups of topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from structable.datasets import Feed, GroupStatus, NotFoundError, SystemData, Topic
from structable.datasets.messaging.groups import BEATS
from structable.datasets.system.messages import GroupSource
from structable.datasets.tables.messaging import GROUP_BEATS, SUBSCRIPTIONS, TABLES
from structable.spi import Finding, FindingLevel, Storage, StructableError

_Key = tuple[str, str]

WATCHED_SECONDS = 6.0
"""The seconds for which beats are watched: a member with the usual ttl beats every 5 seconds."""
_LOOK_SECONDS = 0.2


def findings(storage: Storage) -> Iterator[Finding]:
    """Yield a finding for each group of each prefix in the store; it takes some seconds where members do not beat."""
    names = set(storage.admin.list())
    for name in sorted(one for one in names if one.endswith(SUBSCRIPTIONS.name)):
        prefix = name.removesuffix(SUBSCRIPTIONS.name)
        there = [table.named(prefix + table.name) for table in TABLES if prefix + table.name in names]
        if any(table.differences(storage.admin.get_specification(table.name)) for table in there):
            continue
        missing = [prefix + table.name for table in TABLES if prefix + table.name not in names]
        if missing:
            text = f"{', '.join(missing)} missing, as after a creation that was killed; run `structable system init`"
            yield Finding(FindingLevel.NOTE, f"groups in {name}", text)
            continue
        yield from _of_prefix(SystemData(storage, prefix=prefix), name)


def _of_prefix(system: SystemData, table: str) -> Iterator[Finding]:
    with SUBSCRIPTIONS.named(table)(system.storage).scan() as rows:
        groups = list(rows)
    states: dict[_Key, GroupStatus | str] = {}
    for topic, of_topic in groupby(groups, lambda row: row.topic):
        found = _states(system, topic)
        for row in of_topic:
            gone = "it was deleted just now"
            states[topic, row.group] = found if isinstance(found, str) else found.get(row.group, gone)
    beating = _beating(
        system, {key for key, state in states.items() if isinstance(state, GroupStatus) and state.lag and state.owner}
    )
    for (topic, group), state in states.items():
        subject = f"group {group} of {topic} in {table}"
        if isinstance(state, str):
            yield Finding(FindingLevel.NOTE, subject, state)
        elif not state.lag:
            yield Finding(FindingLevel.OK, subject, "no message waits")
        elif (topic, group) in beating:
            yield Finding(FindingLevel.OK, subject, f"{_waiting(state)}, and its member beats")
        elif state.owner is None:
            yield Finding(FindingLevel.NOTE, subject, f"{_waiting(state)}, and no member is there; start one")
        else:
            text = (
                f"{_waiting(state)}, and its member {state.owner!r} did not beat for {WATCHED_SECONDS:.0f} s: unless "
                f"its ttl is over {WATCHED_SECONDS * BEATS:.0f} s, it has stopped; another one takes over after the ttl"
            )
            yield Finding(FindingLevel.NOTE, subject, text)


def _states(system: SystemData, topic: str) -> dict[str, GroupStatus] | str:
    """Return the progress of a topic's groups, or why it is unknown."""
    name = topic.removeprefix("feed/")
    source: GroupSource[Any] = Topic(name, bytes) if name == topic else Feed(name)
    try:
        return {one.group: one for one in system.topics.status(source).groups}
    except NotFoundError:
        return "its topic is gone: `system.topics.delete` removes the group, too"
    except StructableError as error:
        return str(error)


def _waiting(state: GroupStatus) -> str:
    about = "about " if state.estimated else ""
    return f"{about}{state.lag:,} messages wait, the first for {state.seconds:,.0f} s"


def _beating(system: SystemData, keys: set[_Key]) -> set[_Key]:
    """Return the groups whose members beat during the watch."""

    def beats() -> dict[_Key, int]:
        with GROUP_BEATS.named(system.prefix + GROUP_BEATS.name)(system.storage).scan() as rows:
            return {(row.topic, row.group): row.beat for row in rows}

    if not keys:
        return set()
    before, end = beats(), time.monotonic() + WATCHED_SECONDS
    while True:
        now = beats()
        moved = {key for key in keys if now.get(key) != before.get(key)}
        if moved == keys or time.monotonic() >= end:
            return moved
        time.sleep(_LOOK_SECONDS)
