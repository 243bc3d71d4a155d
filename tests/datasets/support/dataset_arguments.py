# ruff: noqa: ANN401  an argument of a dataset may be anything
"""Random arguments of calls of the datasets, valid and not, with names that are few."""

from __future__ import annotations

import datetime as dt
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from structable.datasets import (
    ArtifactRange,
    DatasetRef,
    EndpointField,
    FieldLineage,
    FieldOperation,
    MetadataScope,
    ProgramRef,
    ProvidedClass,
    ProvidedPlugin,
    RunRef,
    Session,
    Side,
    program_trigger,
)
from structable.datasets.identifiers import joined

BEGIN = dt.datetime(2026, 1, 5, 12, tzinfo=dt.UTC)
_NAMESPACES = ("default",) * 5 + ("sales", "sales", "team-1", "system", "absent")
_APPLICATIONS = ("shop", "shop2", "läden/ω", "\U0001f4b0", "x" * 255)
NAMES = ("a", "ab", "B", "ä", "\uff5e", "\U0001f600", "a/b", "a b", "y" * 255)
_BAD_NAMES = ("", "z" * 256, "a\0b", "ä" * 128)
_TEXTS = ("", "a", "Größe 7", "\U0001f600", "a\0b", 'q"\\', "line\nline")


Arguments = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Read:
    """An argument that a session reads before the call: the result of another call, or one of its items."""

    dataset: str
    method: str
    arguments: tuple[Any, ...]
    item: int | None = None

    def made(self, s: Session) -> Any:
        found = getattr(getattr(s, self.dataset), self.method)(*self.arguments)
        if self.item is None:
            return found
        return found[self.item % len(found)] if found else None


@dataclass(frozen=True)
class Call:
    """A call of a dataset's method in a session."""

    dataset: str
    method: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __str__(self) -> str:
        given = [f"{one!r:.300}" for one in self.arguments]
        given += [f"{name}={one!r:.300}" for name, one in self.options.items()]
        return f"s.{self.dataset}.{self.method}({', '.join(given)})"

    def on(self, s: Session) -> Any:
        """Return the result; None if an argument that must be read first is absent."""
        arguments = [one.made(s) if isinstance(one, Read) else one for one in self.arguments]
        if any(made is None and isinstance(one, Read) for made, one in zip(arguments, self.arguments, strict=True)):
            return None
        return getattr(getattr(s, self.dataset), self.method)(*arguments, **self.options)


class _Key(NamedTuple):
    """A schedule's key."""

    namespace: str
    application: str
    schedule: str


class Maker:
    """Random arguments."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        # Few at a time, so that calls meet.
        self.applications = chance.sample(_APPLICATIONS, 2)
        self.names = chance.sample(NAMES, 3)
        texts = [joined(namespace, one, "a") for namespace in ("default", "sales") for one in self.applications]
        self.partitions = [zlib.crc32(text.encode()) % 16 for text in texts]

    def one(self, *values: Any) -> Any:
        return self.chance.choice(values)

    def namespace(self) -> str:
        return self.chance.choice(_NAMESPACES)

    def application(self) -> str:
        return self.chance.choice(self.applications)

    def name(self) -> str:
        return self.chance.choice(_BAD_NAMES if self.chance.random() < 0.03 else self.names)

    def version(self) -> str:
        return self.chance.choice(("1", "1", "ω"))

    def ref(self) -> ProgramRef:
        return ProgramRef(
            self.one("default", "default", "sales"), self.application(), "service", self.one("web", "a/b")
        )

    def run(self) -> str:
        start = int(BEGIN.timestamp() * 1000) + self.chance.randint(-1, 1)
        text = f"{start:012x}"
        if self.chance.random() < 0.02:
            return text
        return f"{text[:8]}-{text[8:]}-7000-8000-{self.chance.choice((0, 0, 1)):012x}"

    def run_ref(self) -> RunRef:
        return self.ref().run(self.run())

    def dataset(self) -> DatasetRef:
        return DatasetRef(self.namespace(), self.name())

    def at(self) -> dt.datetime:
        zone = self.one(dt.UTC, dt.timezone(dt.timedelta(hours=-7)))
        return BEGIN.astimezone(zone) + dt.timedelta(
            milliseconds=self.one(-86_400_000, -1, 0, 0.5, 1, 60_000, 86_400_000)
        )

    def maybe_at(self) -> dict[str, Any]:
        return {"at": self.at()} if self.chance.random() < 0.3 else {}

    def day(self) -> dt.date:
        return BEGIN.date() + dt.timedelta(days=self.chance.randint(-1, 2))

    def text(self) -> str:
        return self.chance.choice(_TEXTS)

    def document(self, depth: int = 0) -> Any:
        chance = self.chance
        if depth < 2 and chance.random() < 0.5:
            if chance.random() < 0.3:
                return [self.document(depth + 1) for _ in range(chance.randint(0, 3))]
            return {self.text(): self.document(depth + 1) for _ in range(chance.randint(0, 3))}
        return chance.choice((None, True, 0, -1, 2**53, 1.5, 1e300, -0.0, *_TEXTS))

    def properties(self) -> dict[str, Any]:
        return {self.text(): self.document(1) for _ in range(self.chance.randint(0, 3))}

    def texts(self) -> dict[str, str]:
        return {self.one("Owner", "größe", "x"): self.text() for _ in range(self.chance.randint(0, 2))}

    def source(self) -> int:
        return self.chance.randint(0, 5)

    def limit(self) -> int:
        return self.chance.choice((1, 2, 100))

    def scope(self) -> tuple[str, ...]:
        return (self.namespace(), self.application(), "service", self.name())[: self.chance.randint(0, 4)]

    def schedule(self) -> _Key:
        return _Key(self.one("default", "default", "sales"), self.application(), self.one("a", "ä/b"))

    def ns_name(self) -> tuple[str, str]:
        return self.namespace(), self.name()

    def run_key(self) -> tuple[ProgramRef, str]:
        return self.ref(), self.run()

    def scheduled(self) -> Read:
        return Read("schedules", "get", self.schedule())

    def job(self) -> Read:
        return Read("schedule_jobs", "jobs", (self.chance.choice(self.partitions),), self.chance.randrange(4))

    def entity(self) -> str:
        return str(self.one("default", "default/shop", "default/shop/web", "a//b", "ä"))

    def task_key(self) -> tuple[str, ...]:
        return (*self.run_ref(), self.one("PROVISION", "DEPROVISION"))

    def task_state(self) -> str:
        return str(self.one("NEW", "RUNNING", "DONE"))

    def operation(self) -> tuple[str, str]:
        return self.namespace(), self.one("1", "ä")

    def described(self) -> tuple[str, MetadataScope]:
        return self.name(), self.one(*MetadataScope)

    def tags(self) -> list[str]:
        return [self.one("Red", "größe x", "\U0001f600", "a_b") for _ in range(self.chance.randint(0, 2))]

    def synced(self) -> tuple[str, Side, str, str]:
        return self.namespace(), self.one(*Side), "application", self.name()

    def context(self) -> str:
        return str(self.one("default:shop", "ä"))

    def version_number(self) -> str:
        return str(self.one("1.9.0", "1.10.0", "1.9.0-SNAPSHOT", "2", "1..2"))

    def brought(self) -> dict[str, Any]:
        chance = self.chance
        ranges = [
            ArtifactRange(self.one("default", "system"), self.name(), low, self.one(None, "2", "1.10.0"), True, False)
            for low in chance.sample((None, "1.9.0", "1.9.0-SNAPSHOT"), chance.randint(0, 2))
        ]
        plugins = [ProvidedPlugin(self.one("sink", "source"), self.name(), self.document(1)) for _ in range(2)]
        return {
            "parents": ranges,
            "plugins": plugins[: chance.randint(0, 2)],
            "application_classes": [ProvidedClass(self.name(), self.document(1))],
            "properties": self.texts(),
        }

    def field_lineage(self) -> FieldLineage:
        source, destination = self.dataset(), self.dataset()
        fields = self.chance.sample(("a", "b", "ä"), 2)
        operations = [
            FieldOperation("read", outputs=tuple(fields), source=source),
            FieldOperation("make", inputs=(("read", fields[0]),), outputs=("c",)),
            FieldOperation("write", inputs=(("make", "c"), ("read", self.one("a", "b"))), destination=destination),
        ]
        return FieldLineage([source], {destination: self.texts()}, operations)

    def endpoint_field(self) -> EndpointField:
        return EndpointField(*self.dataset(), self.one("a", "b", "c"))

    def trigger(self) -> str:
        return str(self.one("time:x", "data:ä", program_trigger(self.ref())))
