"""Random commits over several tables with feeds: the laws of feeds hold after each, for every type of table."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from structable.spi import (
    Change,
    Field,
    InvalidFieldError,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    UnsupportedOperationError,
    WriteMode,
)

from .chances import random_row, random_specification
from .feed_case import FeedCase, producers_of, with_feed
from .feed_laws import FeedLaws
from .merge_case import stage_changes
from .model import kept
from .samples import Record
from .type_chances import random_kind, random_type
from .write_jobs import batch

COMMITS = 12
ROWS = 4
TABLES = ("plain", "typed", "bag", "log")


def random_feed(chance: random.Random, name: str) -> TableSpecification:
    """Return a table of the type that its name says, with a feed of any producer that it may have."""
    spec = random_specification(chance, name)
    if name == "typed":
        spec = random_type(chance, spec)
    elif name in ("bag", "log"):
        mode = "change-log" if name == "bag" else "append-only"
        fields = [*spec.value_fields, Field.int("few")]
        spec = TableSpecification(name, fields, indexes=["few"], options={"write-mode": mode})
    return with_feed(spec, chance.choice(producers_of(spec)))


def random_pool(chance: random.Random, spec: TableSpecification) -> list[Record]:
    """Return the rows that commits write, few enough for commits to meet; no sum of `n` is too large."""
    rows = [random_row(chance, spec) for _ in range(6)]
    small = [{**row, "n": chance.randint(-2, 3)} if row.get("n") is not None else row for row in rows]
    return [{name: kept(spec, name, value) for name, value in row.items()} for row in small]


def write_some(chance: random.Random, table: StructuredTable, pool: list[Record]) -> None:
    """Make one random call."""
    spec = table.specification
    rows = chance.choices(pool, k=chance.randint(1, ROWS))
    changes = [(random_kind(chance), row) for row in rows]
    calls: list[Callable[[], object]] = []
    if spec.options.get("write-mode") == "append-only":
        calls = [partial(table.insert_many, rows), partial(table.insert, rows[0])]
    elif spec.keyless:
        calls = [partial(table.insert_many, rows), *[partial(table.apply_changes, changes)] * 5]
        calls.append(partial(table.delete_all, Range.all()))
    else:
        row = rows[0]
        key = tuple(row[name] for name in spec.primary_key)
        calls = [
            partial(table.upsert, row),
            partial(table.upsert_many, rows),
            partial(table.apply_changes, changes),
            partial(table.replace, row),
            partial(table.update, row, default={}),
            partial(table.delete, key),
            partial(table.increment, key, "n"),
            partial(table.delete_all, Range.prefix(key[:1])),
        ]
    chance.choice(calls)()


def write_by_job(storage: Storage, chance: random.Random, spec: TableSpecification, pool: list[Record]) -> None:
    """Write some rows by a job."""
    changes = spec.options.get("write-mode") != "append-only"
    mode = WriteMode.CHANGES if changes else WriteMode.INSERT
    job = storage.begin_write(spec.name, mode=mode, job_id=uuid.uuid4().hex)
    try:
        steps = [(random_kind(chance), row) for row in chance.choices(pool, k=ROWS)]
        if changes:
            staged = stage_changes(storage, job, steps, most=2)
        else:
            staged = [storage.stage(job, 0, 0, [batch([row], spec=spec) for _, row in steps])]
        storage.commit_write(job, staged)
    finally:
        storage.abort_write(job)


def commit_at_random(
    storage: Storage, chance: random.Random, specs: Sequence[TableSpecification], pools: Mapping[str, list[Record]]
) -> str:
    """Make one commit, by a job to the first table or by a transaction to all; return the error that prevented it."""
    try:
        if chance.random() < 0.25:
            write_by_job(storage, chance, specs[0], pools[specs[0].name])
            return ""
        with storage.transaction() as transaction:
            for spec in specs:
                for _ in range(chance.randint(1, 3)):
                    write_some(chance, transaction.table(spec.name), pools[spec.name])
    except (InvalidFieldError, UnsupportedOperationError) as error:
        return type(error).__name__
    return ""


def check_versions_of(found: Mapping[FeedLaws, list[Change]], written: Sequence[TableSpecification]) -> None:
    """Check that what changed by one commit has one version in all feeds, and is of the written tables."""
    versions = {laws: laws.versions(changes) for laws, changes in found.items()}
    assert all(len(one) <= 1 for one in versions.values())
    assert len({version for laws, one in versions.items() if laws.producer != "full-compaction" for version in one}) < 2
    assert [laws.spec.name for laws, one in versions.items() if one and laws.spec not in written] == []


class RandomFeeds(FeedCase):
    """The laws of feeds hold for all commits, made in any way."""

    def test_random_commits_keep_the_laws_of_feeds(self, fed: Storage) -> None:
        """A state and its changes give the later one, ranges never change and concatenate, a commit has one version."""
        for seed in range(max(2, self.max_examples // 10)):
            chance = random.Random(seed)
            specs = [random_feed(chance, name) for name in TABLES]
            for spec in specs:
                fed.admin.create(spec)
            laws = [FeedLaws(fed, spec) for spec in specs]
            pools = {spec.name: random_pool(chance, spec) for spec in specs}
            for _ in range(COMMITS):
                written = chance.sample(specs, chance.randint(1, len(specs)))
                commit_at_random(fed, chance, written, pools)
                found = {one: one.step(fed.table(one.spec.name).scan(), chance) for one in laws}
                check_versions_of(found, written)
                if chance.random() < 0.2:
                    chance.choice(laws).expire(chance)
            for spec in specs:
                fed.admin.drop(spec.name)
