"""Random programs of writers, workers and crashes, and the batch join that the result must equal after every commit."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import ForeignKeyJoin, JoinWorker
from structable.spark_bridge.joins.failpoints import FAILPOINTS, failpoints
from structable.spark_bridge.joins.progress import PROGRESS, ProgressRecord, read_record
from structable.spi import Field, RowKind, Storage, StructuredTable, TableNotFoundError, TableSpecification, Value

from .clocks import LeaseClock
from .tables import FEED, Limits

Key = tuple[Any, ...]
Rows = dict[Key, dict[str, Any]]


class Crash(BaseException):
    """The worker's process is killed here."""


def doubled(left: Mapping[str, Any], right: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Join a row, but none whose number is 3."""
    if left["n"] == 3:
        return None
    return {"twice": None if left["n"] is None else 2 * left["n"], "of": None if right is None else right["name"]}


@dataclass(frozen=True)
class Shape:
    """Tables to join: the left's specification and the right's, and the foreign key in the order of the right's key."""

    left: TableSpecification
    right: TableSpecification
    on: dict[str, str]


def _shape(kind: str, names: tuple[str, str], soft: bool) -> Shape:
    options = {**FEED, "soft-delete.field": "gone"} if soft else FEED
    gone = [Field.boolean("gone")] if soft else []
    values = [Field.int("n"), Field.double("x"), Field.string("unselected")]
    named = [Field.string("name"), Field.double("y"), Field.string("other")]
    match kind:
        case "index":
            left = TableSpecification(
                names[0], [Field.long("id"), Field.string("p"), *values, *gone], ["id"], ["p"], options
            )
            right = TableSpecification(names[1], [Field.string("k"), *named, *gone], ["k"], options=options)
            return Shape(left, right, {"p": "k"})
        case "prefix":
            left = TableSpecification(
                names[0], [Field.string("p"), Field.long("id"), *values, *gone], ["p", "id"], options=options
            )
            right = TableSpecification(names[1], [Field.string("k"), *named, *gone], ["k"], options=options)
            return Shape(left, right, {"p": "k"})
        case "composite":
            fields = [Field.long("id"), Field.string("p"), Field.int("q"), *values, *gone]
            left = TableSpecification(names[0], fields, ["id"], ["q"], options)
            fields = [Field.string("k"), Field.int("m"), *named, *gone]
            right = TableSpecification(names[1], fields, ["k", "m"], options=options)
            return Shape(left, right, {"q": "m", "p": "k"})
        case _:
            fields = [Field.string("id"), Field.string("p"), *values, *named, *gone]
            one = TableSpecification(names[0], fields, ["id"], ["p"], options)
            return Shape(one, one, {"p": "id"})


def plain(table: StructuredTable) -> Rows:
    with table.scan() as rows:
        return {row.key: dict(row) for row in rows}


def batch_join(join: ForeignKeyJoin, shape: Shape, lefts: Rows, rights: Rows) -> Rows:
    """Join two tables as the contract says, row by row, without any code of the product."""
    on = join.on if isinstance(join.on, dict) else dict(zip(join.on, shape.right.primary_key, strict=True))
    by_key = {theirs: ours for ours, theirs in on.items()}
    joined = {}
    for key, left in lefts.items():
        if left.get("gone"):
            continue
        reference = tuple(left[by_key[name]] for name in shape.right.primary_key)
        right = None if None in reference else rights.get(reference)
        if right is not None and right.get("gone"):
            right = None
        if right is None and join.how == "inner":
            continue
        row = dict(zip(shape.left.primary_key, key, strict=True))
        if join.joiner is not None:
            made = doubled(left, right)
            if made is None:
                continue
            row |= made
        else:
            assert join.select is not None
            for name, source in join.select.items():
                side, field = source.split(".")
                row[name] = left[field] if side == "left" else None if right is None else right[field]
        joined[key] = row
    return joined


def equal(one: Rows, other: Rows) -> bool:
    """Compare tables, in which NaN equals NaN."""

    def comparable(rows: Rows) -> dict[Key, dict[str, Any]]:
        return {
            key: {name: "NaN" if value != value else value for name, value in row.items()} for key, row in rows.items()
        }

    return comparable(one) == comparable(other)


def state_of(record: ProgressRecord) -> list[tuple[int, int]]:
    """Return the versions of both tables at one of which the result must stand."""
    assert record.positions is not None
    found = [record.positions]
    if record.intent is not None:
        found.append(record.intent.positions)
    return [(one.left.version, one.right.version) for one in found]


class Program:
    """One random program on one store; `run` raises AssertionError where the result is wrong.

    Parameters
    ----------
    storage : Storage
        The store.
    url : str
        Its URL.
    seed : int
        Chooses all.
    clock : LeaseClock
        The clock of leases.
    """

    def __init__(self, storage: Storage, url: str, seed: int, clock: LeaseClock) -> None:
        self.random = random.Random(seed)
        self.storage, self.clock = storage, clock
        one = self.random.choice
        kind: str = one(["index", "prefix", "composite", "self"])
        names = (f"l{seed}", f"l{seed}" if kind == "self" else f"r{seed}")
        self.shape = _shape(kind, names, soft=self.random.random() < 0.3)
        how: Literal["inner", "left"] = one(["inner", "left"])
        select = {"n": "left.n", "x": "left.x", "name_of": "right.name", "y_of": "right.y"}
        joins = self.random.random() < 0.25
        self.join = ForeignKeyJoin(
            f"j{seed}",
            TableRef(url, names[0]),
            TableRef(url, names[1]),
            self.shape.on,
            how,
            select=None if joins else select,
            joiner=doubled if joins else None,
            result_fields=[Field.int("twice"), Field.string("of")] if joins else None,
            result=TableRef(url, f"j{seed}"),
        )
        limits: list[Limits] = [{}, {}, {"small": 1, "large": 3}, {"small": 0}, {"small": 0, "large": 0}]
        self.limits = one(limits)
        for spec in {self.shape.left.name: self.shape.left, self.shape.right.name: self.shape.right}.values():
            storage.admin.create(spec)
        self.left, self.right = storage.table(names[0]), storage.table(names[1])
        self.history: list[tuple[int, Rows, Rows]] = []
        self.workers = [JoinWorker(self.join, **self.limits)]
        self.log: list[str] = [f"{kind} {how} {self.limits} joiner={joins}"]
        self.note()

    def note(self) -> None:
        """Remember the tables as of now, which only the program writes."""
        with self.storage.transaction(read_only=True) as tx:
            version = tx.position(self.left.specification.name).version
            left = plain(tx.table(self.left.specification.name))
            right = plain(tx.table(self.right.specification.name))
        self.history.append((version, left, right))

    def run(self, length: int = 14) -> None:
        try:
            for _ in range(length):
                action = self.random.choices(
                    [self.write, self.step, self.crash, self.meet, self.expire, self.remake],
                    [40, 25, 12, 12, 5, 2],
                )[0]
                action()
                self.check()
            self.clock.pass_lease()
            last = self.workers[0].run_available()
            assert last.left_position is not None
            self.check()
            self.check_end()
        except AssertionError as error:
            error.add_note("\n".join(self.log))
            raise

    def close(self) -> None:
        failpoints.clear()
        for worker in self.workers:
            worker.close()
        for name in {self.left.specification.name, self.right.specification.name, self.join.result.name}:
            self.storage.admin.drop(name)

    def write(self) -> None:
        """Change rows of both tables in one transaction."""
        one = self.random.choice
        with self.storage.transaction() as tx:
            left, right = tx.table(self.left.specification.name), tx.table(self.right.specification.name)
            for _ in range(one([1, 1, 2, 4])):
                table, spec = one([(left, self.shape.left), (right, self.shape.right)])
                key = {name: self.value(spec, name, key=True) for name in spec.primary_key}
                what = one(["delete", "some", "all", "all"])
                self.log.append(f"{what} {spec.name} {key}")
                if what == "delete":
                    table.apply_changes([(RowKind.DELETE, key)])
                else:
                    names = [field.name for field in spec.value_fields if field.name != "gone"]
                    if what == "some":
                        names = self.random.sample(names, one([1, 2]))
                    table.upsert({**key, **{name: self.value(spec, name) for name in names}})
        self.note()

    def value(self, spec: TableSpecification, name: str, *, key: bool = False) -> Value:
        one = self.random.choice
        match spec.field(name).type.value:
            case "long":
                return one([1, 2, 3, 4])
            case "int":
                return one([1, 2, 3] if key else [1, 2, 3, None])
            case "double":
                return one([0.0, -0.0, float("nan"), 1.5, None])
            case _:
                texts = ["f1", "f2"] if name in ("p", "k", "id") else ["a", "b"]
                return one(texts if key else [*texts, None])

    def worker(self) -> JoinWorker:
        return self.random.choice(self.workers)

    def step(self) -> None:
        progress = self.worker().step()
        self.log.append(f"step {progress}")

    def crash(self) -> None:
        """Kill a worker at a failpoint, or, if its step does not come by there, let it finish."""
        point = self.random.choice(FAILPOINTS)
        worker = self.worker()
        reached = False

        def die() -> None:
            nonlocal reached
            reached = True
            raise Crash

        failpoints[point] = die
        try:
            worker.step()
        except Crash:
            pass
        finally:
            failpoints.clear()
        self.log.append(f"crash at {point}: {reached}")
        if reached:
            self.workers.remove(worker)
            worker.close()
            self.workers.append(JoinWorker(self.join, **self.limits))
            if self.random.random() < 0.7:
                self.clock.pass_lease()

    def meet(self) -> None:
        """Let a second worker and writers come between, at a failpoint of a step."""
        if len(self.workers) == 1:
            self.workers.append(JoinWorker(self.join, **self.limits))
        first, second = self.random.sample(self.workers, 2)
        point = self.random.choice(FAILPOINTS)
        actions: list[Callable[[], object]] = [second.step, self.write, self.clock.pass_lease]
        chosen = [self.random.choice(actions) for _ in range(3)]

        def between() -> None:
            failpoints.clear()
            self.log.append(f"at {point}: {[action.__name__ for action in chosen]}")
            for action in chosen:
                action()
                self.check()

        failpoints[point] = between
        try:
            first.step()
        finally:
            failpoints.clear()

    def expire(self) -> None:
        """Let the changes of a table expire."""
        self.log.append("expire")
        feed = self.storage.changes(self.random.choice([self.left, self.right]).specification.name)
        feed.expire(feed.latest())

    def remake(self) -> None:
        """Drop the result."""
        self.log.append("drop the result")
        self.storage.admin.drop(self.join.result.name)

    def check(self) -> None:
        """Check that the result stands at the recorded positions, or those of the intent."""
        with self.storage.transaction(read_only=True) as tx:
            try:
                record = read_record(tx.table(PROGRESS.name), self.join.name)
                result = plain(tx.table(self.join.result.name))
            except TableNotFoundError:
                return
        if record is None or record.positions is None:
            return
        assert any(equal(result, self.joined_at(*versions)) for versions in state_of(record)), (result, record)

    def joined_at(self, left_version: int, right_version: int) -> Rows:
        lefts = [left for version, left, _ in self.history if version <= left_version][-1]
        rights = [right for version, _, right in self.history if version <= right_version][-1]
        return batch_join(self.join, self.shape, lefts, rights)

    def check_end(self) -> None:
        """Check that the result is the join of both tables now, and that its feed tells how it came to be."""
        _, left, right = self.history[-1]
        result = plain(self.storage.table(self.join.result.name))
        assert equal(result, batch_join(self.join, self.shape, left, right)), result
        assert self.workers[0].verify() == 0
        told: Rows = {}
        changes = list(self.storage.changes(self.join.result.name).read())
        for change in changes:
            key = tuple(change.row[name] for name in self.shape.left.primary_key)
            if change.kind.retracts:
                assert equal({key: told.pop(key)}, {key: dict(change.row)})
            else:
                assert key not in told
                told[key] = dict(change.row)
        assert equal(told, result)
        for before, after in pairwise(changes):
            if before.kind is RowKind.UPDATE_BEFORE:
                assert not equal({(): dict(before.row)}, {(): dict(after.row)})


def run_program(storage: Storage, url: str, seed: int, clock: LeaseClock) -> None:
    """Run the program of a seed, which an error names."""
    program = Program(storage, url, seed, clock)
    try:
        program.run()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        program.close()
