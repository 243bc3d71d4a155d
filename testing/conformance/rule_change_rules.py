"""Rules of `set_rules` and `drop_field`, of retired tables, and of what migrations took away."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from structable.spi import (
    Cast,
    Derived,
    Field,
    FieldType,
    InvalidFieldError,
    InvalidSpecificationError,
    Range,
    Renamed,
    Retired,
    SchemaIncompatibleError,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
    TransactionConflictError,
    col,
    connect,
)

from .field_rule_case import EVENTS, NUMBER, TEXT, FieldRuleCase
from .samples import Record, keys, plain

SINCE = dt.datetime(2026, 11, 20, 12, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))
FIVE = '{"a": {"n": 5}}'
RENAMED = Renamed("note", "remark", ready=True)
WRITES: dict[str, Callable[[StructuredTable], object]] = {
    "upsert": lambda table: table.upsert({"id": 1, "size": 2}),
    "upsert_many": lambda table: table.upsert_many([{"id": 1, "size": 2}]),
    "replace": lambda table: table.replace({"id": 1, "size": 2}),
    "update": lambda table: table.update({"id": 1, "size": 2}),
    "update_many": lambda table: table.update_many([{"id": 1, "size": 2}]),
    "compare_and_swap": lambda table: table.compare_and_swap((1,), "size", 1, 2),
    "increment": lambda table: table.increment((1,), "size"),
}
"""Every way to make `size` 2 in the row {"id": 1, "size": 1}."""


class RuleChangeRules(FieldRuleCase):
    """Schema changes of migrations: atomic, seen by every transaction that begins afterwards."""

    @pytest.fixture
    def impatient(self, migrating: Storage, storage_url: str) -> Iterator[Storage]:
        """Connect to the fresh store with admin calls that barely wait for open transactions."""
        with connect(storage_url, ddl_timeout=0.5) as storage:
            yield storage

    @pytest.fixture
    def other(self, migrating: Storage, storage_url: str) -> Iterator[Storage]:
        """Connect to the store once more."""
        with connect(storage_url) as other:
            yield other

    def test_rules_belong_to_the_specification(self, migrating: Storage, other: Storage) -> None:
        """`get_specification` has the rules that were set; equal ones change nothing, others replace them."""
        migrating.admin.create(EVENTS)
        for rules in ((NUMBER, TEXT), (replace(NUMBER, ready=True), TEXT), (RENAMED,), ()):
            for _ in range(2):
                migrating.admin.set_rules("events", rules)
                spec = EVENTS.evolve(rules=rules)
                assert migrating.admin.get_specification("events") == other.admin.get_specification("events") == spec
                assert other.table("events").specification == spec

    def test_rules_are_changed_only_if_they_are_as_expected(self, migrating: Storage, other: Storage) -> None:
        """If the table's rules are neither `expected` nor the new ones, `set_rules` is `SchemaIncompatibleError`."""
        migrating.admin.create(EVENTS)
        migrating.admin.set_rules("events", iter([NUMBER]), expected=iter([]))
        for expected in ([], [TEXT], [NUMBER, TEXT], [replace(NUMBER, ready=True)]):
            with pytest.raises(SchemaIncompatibleError, match="another call has changed them"):
                other.admin.set_rules("events", [RENAMED], expected=expected)
            assert migrating.admin.get_specification("events").rules == (NUMBER,)
        other.admin.set_rules("events", [NUMBER], expected=[TEXT])
        other.admin.set_rules("events", [NUMBER, TEXT], expected=[NUMBER])
        assert migrating.admin.get_specification("events").rules == (NUMBER, TEXT)

    def test_rules_are_kept_by_every_storage(self, migrating: Storage, other: Storage) -> None:
        """Views and transactions of all storages keep the rules that are set, once `set_rules` has returned."""
        migrating.admin.create(EVENTS)
        tables = [migrating.table("events"), other.table("events")]
        for table in tables:
            table.upsert({"id": 0, "body": FIVE})
            assert table.read((0,), ["number"]) == {"id": 0, "number": None}
        migrating.admin.set_rules("events", [NUMBER])
        for number, table in enumerate(tables, 1):
            assert [row.number for row in table.scan(limit=1)] == [5]
            table.upsert({"id": number, "body": FIVE})
            assert table.read((0,)) == {**dict.fromkeys(EVENTS.field_names), "id": 0, "body": FIVE, "number": 5}
        other.run(lambda tx: tx.table("events").insert({"id": 3, "body": FIVE}))
        migrating.admin.set_rules("events", [])
        for table in tables:
            assert [row.number for row in table.scan()] == [None, 5, 5, 5]
            table.upsert({"id": 0, "number": None})

    def test_new_fields_are_known_under_rules(self, migrating: Storage, other: Storage) -> None:
        """A field that is added under rules is known to every storage at once."""
        migrating.admin.create(EVENTS)
        migrating.admin.set_rules("events", [NUMBER])
        uses: list[Callable[[StructuredTable, str], object]] = [
            lambda table, name: table.upsert({"id": 1, "body": FIVE, name: 1}),
            lambda table, name: table.update({"id": 1, name: 2}),
            lambda table, name: table.read((1,), [name, "number"]),
            lambda table, name: plain(table.scan(columns=[name], where=col(name) > 0)),
            lambda table, name: table.count(where=(col(name) > 0) & (col("number") == 5)),
            lambda table, name: table.update_all(Range.all(), {name: 1}),
        ]
        fields = [*EVENTS.fields]
        table = other.table("events")
        table.upsert({"id": 1, "body": FIVE})
        for number, use in enumerate(uses):
            fields.append(Field.int(f"new{number}"))
            migrating.admin.create_or_update(EVENTS.evolve(fields=fields))
            if number % 2:
                use(table, f"new{number}")
            else:
                with other.transaction() as tx:
                    use(tx.table("events"), f"new{number}")
            assert table.read((1,), ["number"]) == {"id": 1, "number": 5}

    def test_misfit_rules_are_refused(self, migrating: Storage) -> None:
        """Rules that do not fit are `InvalidSpecificationError`; of a table that is not there `TableNotFoundError`."""
        migrating.admin.create(EVENTS)
        for rule in (replace(NUMBER, field="id"), replace(NUMBER, source="size"), Renamed("note", "other")):
            with pytest.raises(InvalidSpecificationError):
                migrating.admin.set_rules("events", [rule])
        with pytest.raises(TableNotFoundError):
            migrating.admin.set_rules("other", [NUMBER])
        assert migrating.admin.get_specification("events") == EVENTS

    def test_new_table_takes_ready_rules_only(self, migrating: Storage) -> None:
        """`create` and `create_or_update` of a new table refuse rules that are not ready, and `Retired`."""
        for rules in ([NUMBER], [Renamed("note", "remark")], [Retired(SINCE)]):
            for create in (migrating.admin.create, migrating.admin.create_or_update):
                with pytest.raises(InvalidSpecificationError, match="new table"):
                    create(EVENTS.evolve(rules=rules))
        assert migrating.admin.list() == []
        spec = EVENTS.evolve(rules=[RENAMED, replace(TEXT, ready=True)])
        migrating.admin.create_or_update(spec)
        assert migrating.admin.get_specification("events") == spec

    def test_update_of_a_table_keeps_its_rules(self, migrating: Storage) -> None:
        """`create_or_update` without rules keeps the table's, whatever it adds; with other rules it is refused."""
        migrating.admin.create(EVENTS)
        migrating.admin.set_rules("events", [NUMBER, TEXT])
        wider = EVENTS.evolve(fields=[*EVENTS.fields, Field.int("more")], indexes=["note", "more"])
        migrating.admin.create_or_update(wider)
        assert migrating.admin.get_specification("events") == wider.evolve(rules=[NUMBER, TEXT])
        migrating.admin.create_or_update(EVENTS)
        migrating.admin.create_or_update(wider.evolve(rules=[TEXT, replace(NUMBER, ready=True)]))
        assert migrating.admin.get_specification("events") == wider.evolve(rules=[NUMBER, TEXT])
        for rules in ([NUMBER], [RENAMED]):
            with pytest.raises(SchemaIncompatibleError, match="set_rules"):
                migrating.admin.create_or_update(EVENTS.evolve(rules=rules))
        fields = [Field.long("size") if field.name == "size" else field for field in wider.fields]
        migrating.admin.create_or_update(wider.evolve(fields=fields))
        migrating.table("events").upsert({"id": 1, "size": 2**40})
        assert migrating.table("events").read((1,), ["size_text"]) == {"id": 1, "size_text": str(2**40)}
        migrating.admin.set_rules("events", [Derived("number", "more", Cast(FieldType.INT))])
        with pytest.raises(SchemaIncompatibleError, match="more"):
            migrating.admin.create_or_update(
                wider.evolve(fields=[Field.long("more") if one.name == "more" else one for one in wider.fields])
            )

    @pytest.mark.parametrize("write", list(WRITES))
    def test_no_write_of_before_is_committed_after(self, impatient: Storage, write: str) -> None:
        """`set_rules` waits for open transactions that wrote, or these conflict: none commits a row by older rules."""
        impatient.admin.create(EVENTS)
        impatient.table("events").upsert({"id": 1, "size": 1})
        transaction = impatient.transaction()
        WRITES[write](transaction.table("events"))
        try:
            impatient.admin.set_rules("events", [replace(TEXT, ready=True)])
            changed = True
        except StorageUnavailableError:
            changed = False
        try:
            transaction.commit()
            committed = True
        except TransactionConflictError:
            transaction.rollback()
            committed = False
        assert committed is not changed
        row = impatient.table("events").read((1,), ["size", "size_text"])
        assert row == {"id": 1, "size": 2 if committed else 1, "size_text": None}

    def test_dropped_field_is_gone(self, migrating: Storage, other: Storage) -> None:
        """`drop_field` removes a field and its values: one that is added later under the name is null everywhere."""
        migrating.admin.create(EVENTS)
        table = migrating.table("events")
        rows: list[Record] = [{"id": number, "size": number, "remark": str(number), "body": "b"} for number in range(3)]
        table.upsert_many(rows)
        assert other.table("events").read((1,), ["size"]) == {"id": 1, "size": 1}
        migrating.admin.drop_field("events", "size")
        left = [field for field in EVENTS.fields if field.name != "size"]
        assert other.admin.get_specification("events") == EVENTS.evolve(fields=left)
        for one in (migrating, other):
            with pytest.raises(InvalidFieldError, match="'size'"):
                one.table("events").upsert({"id": 1, "size": 1})
            with pytest.raises(InvalidFieldError, match="'size'"):
                one.table("events").read((1,), ["size"])
        table.upsert({"id": 1, "remark": "x"})
        assert plain(other.table("events").scan(columns=["remark", "body"])) == [
            {"id": 0, "remark": "0", "body": "b"},
            {"id": 1, "remark": "x", "body": "b"},
            {"id": 2, "remark": "2", "body": "b"},
        ]
        for kind in (Field.string("size"), Field.long("size")):
            migrating.admin.create_or_update(EVENTS.evolve(fields=[*left, kind]))
            assert [row["size"] for row in table.scan()] == [None] * 3
            table.upsert({"id": 2, "size": "s" if kind.type is FieldType.STRING else 5})
            assert [row["size"] for row in other.table("events").scan()][:2] == [None] * 2
            migrating.admin.drop_field("events", "size")
        assert plain(table.scan(columns=["remark"])) == [
            {"id": n, "remark": "x" if n == 1 else str(n)} for n in range(3)
        ]

    def test_needed_field_is_not_dropped(self, migrating: Storage) -> None:
        """A field of the key, an indexed one, and one that a rule names are `SchemaIncompatibleError`."""
        migrating.admin.create(EVENTS)
        migrating.admin.set_rules("events", [NUMBER, Renamed("remark", "size_text")])
        for field in ("id", "note", "number", "body", "remark", "size_text"):
            with pytest.raises(SchemaIncompatibleError, match=field):
                migrating.admin.drop_field("events", field)
        with pytest.raises(InvalidFieldError, match="other"):
            migrating.admin.drop_field("events", "other")
        with pytest.raises(TableNotFoundError):
            migrating.admin.drop_field("other", "size")

    def test_open_transaction_does_not_bring_a_dropped_field_back(self, impatient: Storage) -> None:
        """A transaction that wrote a field before it was dropped conflicts, or the call waits for it."""
        impatient.admin.create(EVENTS)
        transaction = impatient.transaction()
        transaction.table("events").upsert({"id": 1, "size": 1, "remark": "x"})
        try:
            impatient.admin.drop_field("events", "size")
            changed = True
        except StorageUnavailableError:
            changed = False
        try:
            transaction.commit()
            assert not changed
        except TransactionConflictError:
            assert changed
            transaction.rollback()
        if not changed:
            impatient.admin.drop_field("events", "size")
        impatient.admin.create_or_update(EVENTS)
        assert [row["size"] for row in impatient.table("events").scan()] == ([] if changed else [None])

    def test_retired_table_is_not_there(self, migrating: Storage, other: Storage) -> None:
        """A retired table is `TableNotFoundError`, which says so; its specification answers, and its name is taken."""
        migrating.admin.create(EVENTS)
        view = other.table("events")
        view.upsert({"id": 1, "body": FIVE})
        migrating.admin.set_rules("events", [NUMBER, Retired(SINCE)])
        spec = EVENTS.evolve(rules=[NUMBER, Retired(SINCE)])
        for one in (migrating, other):
            assert one.admin.get_specification("events") == spec
            assert not one.admin.exists("events")
            assert one.admin.list() == []
            with pytest.raises(TableNotFoundError, match="retired since 2026-11-20 11:30"):
                one.run(lambda tx: tx.table("events").count())
            with pytest.raises(TableNotFoundError, match="retired"):
                one.table("events").read((1,))
            with pytest.raises(TableNotFoundError, match="retired"):
                one.plan_scan("events")
            with pytest.raises(TableNotFoundError, match="retired"):
                one.begin_write("events", mode="upsert", job_id=self.fresh_id())
        calls: list[Callable[[], object]] = [
            lambda: view.read((1,)),
            lambda: view.upsert({"id": 2}),
            lambda: list(view.scan()),
        ]
        for call in calls:
            with pytest.raises(TableNotFoundError, match="retired"):
                call()
        with pytest.raises(TableAlreadyExistsError):
            migrating.admin.create(EVENTS)
        with pytest.raises(SchemaIncompatibleError, match="retired"):
            migrating.admin.create_or_update(EVENTS)
        migrating.admin.set_rules("events", [])
        assert migrating.admin.list() == ["events"]
        assert keys(view.scan()) == [(1,)]
        migrating.admin.set_rules("events", [Retired(SINCE)])
        migrating.admin.drop("events")
        migrating.admin.create(EVENTS)
        assert keys(view.scan()) == []

    def test_tables_of_every_kind_are_retired(self, migrating: Storage) -> None:
        """Tables without a key and tables that merge can be retired too; they take no other rule."""
        self.require("table_types")
        log = TableSpecification("log", [Field.int("n")], options={"write-mode": "append-only"})
        sums = TableSpecification(
            "sums", [Field.int("k"), Field.int("n")], ["k"], options={"merge-engine": "first-row"}
        )
        for spec in (log, sums):
            migrating.admin.create(spec)
            migrating.admin.set_rules(spec.name, [Retired(SINCE)])
            assert not migrating.admin.exists(spec.name)
            with pytest.raises(InvalidSpecificationError, match=r"primary key|merge engine"):
                migrating.admin.set_rules(spec.name, [Renamed("n", "m")])

    def test_what_a_revision_took_away_does_not_come_back(self, migrating: Storage, other: Storage) -> None:
        """A field or index that a revision took away is refused, unless a revision brings it back."""
        migrating.admin.create(EVENTS)
        migrating.admin.drop_index("events", "note", revision=7)
        migrating.admin.drop_field("events", "size", revision=8)
        with pytest.raises(SchemaIncompatibleError, match=r"revision 8 .*'size'.*; revision 7 .*'note'"):
            other.admin.create_or_update(EVENTS)
        left = EVENTS.evolve(fields=[field for field in EVENTS.fields if field.name != "size"], indexes=[])
        other.admin.create_or_update(left)
        other.admin.create_or_update(left.evolve(fields=[*left.fields, Field.int("more")]))
        with pytest.raises(SchemaIncompatibleError, match="revision 8"):
            other.admin.create_or_update(EVENTS)
        other.admin.create_or_update(EVENTS.evolve(indexes=[]), revision=9)
        with pytest.raises(SchemaIncompatibleError, match="revision 7"):
            migrating.admin.create_or_update(EVENTS)
        migrating.admin.create_or_update(EVENTS, revision=10)
        other.admin.create_or_update(EVENTS)
        migrating.admin.set_rules("events", [Retired(SINCE)], revision=11)
        with pytest.raises(SchemaIncompatibleError, match="retired by revision 11"):
            other.admin.create_or_update(EVENTS)
        migrating.admin.set_rules("events", [])
        migrating.admin.drop_field("events", "more")
        other.admin.create_or_update(EVENTS.evolve(fields=[*EVENTS.fields, Field.int("more")]))

    def test_progress_of_an_index_is_told(self, migrating: Storage) -> None:
        """`create_or_update` calls `progress` with the number of indexed rows, and of all rows where known."""
        migrating.admin.create(EVENTS)
        migrating.table("events").upsert_many([{"id": number, "size": number} for number in range(1_200)])
        told: list[tuple[int, int | None]] = []
        migrating.admin.create_or_update(
            EVENTS.evolve(indexes=["note", "size"]), progress=lambda done, total: told.append((done, total))
        )
        assert told
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert all(total is None or done <= total for done, total in told)
        assert keys(migrating.table("events").scan_index("size", 7)) == [(7,)]

    @pytest.mark.parametrize("producer", ["lookup", "input"])
    def test_feeds_go_on_under_rules(self, migrating: Storage, producer: str) -> None:
        """A change feed records the fields that rules add to writes, and continues without a dropped field."""
        self.require("change_feeds")
        self.require("table_types")
        spec = EVENTS.evolve(options={"changelog-producer": producer})
        migrating.admin.create(spec)
        table, feed = migrating.table("events"), migrating.changes("events")
        table.upsert({"id": 1, "body": FIVE, "size": 1, "remark": "x"})
        begun = feed.latest()
        migrating.admin.set_rules("events", [replace(NUMBER, ready=True)])
        table.upsert({"id": 1, "body": '{"a": {"n": 6}}'})
        table.increment((1,), "size")
        changed = feed.latest()
        migrating.admin.drop_field("events", "size")
        table.upsert({"id": 1, "body": None})
        found = [change.row for change in feed.read(since=begun) if change.kind == "+U"]
        assert [(row["body"], row["number"]) for row in found] == [
            ('{"a": {"n": 6}}', 6),
            ('{"a": {"n": 6}}', 6),
            (None, None),
        ]
        assert all("size" not in row for row in found)
        migrating.admin.create_or_update(spec)
        table.upsert({"id": 1, "size": 7})
        rows = [change.row for change in feed.read(since=changed) if change.kind == "+U"]
        assert [row["size"] for row in rows] == [None, 7]
