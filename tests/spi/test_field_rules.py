"""Rules in specifications: what fits, and their documents and digest."""

import datetime as dt
import json
import sys
from dataclasses import replace
from types import FrameType

import pytest

from structable.spi import (
    Cast,
    Derived,
    Field,
    FieldRule,
    FieldType,
    InvalidSpecificationError,
    JsonField,
    Lower,
    Renamed,
    Retired,
    TableSpecification,
    col,
    connect,
    specification_from_document,
    specification_to_document,
)
from structable.spi.authors import rules_digest
from structable.spi.text import specification_from_catalog

SPEC = TableSpecification(
    "t", [Field.string("k"), Field.string("a"), Field.string("b"), Field.int("n"), Field.string("s")], ["k"]
)
SINCE = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone(dt.timedelta(hours=1)))
NAME = Derived("a", "b", JsonField(("name",), FieldType.STRING))
RULES: tuple[FieldRule, ...] = (NAME, Renamed("b", "s", ready=True), Retired(SINCE))

WRONG: list[tuple[object, str]] = [
    (5, "must be a list of Derived"),
    (["derived"], "is not a rule"),
    ([replace(NAME, field="x")], "'x', which is not a field"),
    ([replace(NAME, source=5)], "5, which is not a field"),  # type: ignore[arg-type]
    ([replace(NAME, field="k", function=Lower())], "key field 'k' cannot be derived"),
    ([replace(NAME, field="n")], "does not hold every string"),
    ([replace(NAME, function=len)], "is not a function"),  # type: ignore[arg-type]
    ([replace(NAME, ready=1)], "ready is 1"),  # type: ignore[arg-type]
    ([NAME, replace(NAME, function=Lower())], "'a' is subject to two rules"),
    ([NAME, Renamed("s", "a")], "'a' is subject to two rules"),
    ([Derived("a", "b", Lower()), Derived("b", "s", Lower()), Derived("s", "a", Lower())], "computed from itself"),
    ([Derived("a", "a", Lower())], "computed from itself"),
    ([Renamed("k", "a")], "cannot be renamed"),
    ([Renamed("n", "a")], "'n' is int"),
    ([Renamed("a", "a")], "renamed twice"),
    ([Renamed("a", "b"), Renamed("b", "s")], "renamed twice"),
    ([Renamed("a", "x")], "'x', which is not a field"),
    ([Retired(SINCE), Retired(SINCE)], "retire it twice"),
]


@pytest.mark.parametrize(("rules", "problem"), WRONG)
def test_misfit_rules_are_refused(rules: object, problem: str) -> None:
    with pytest.raises(InvalidSpecificationError, match=problem):
        SPEC.evolve(rules=rules)


def test_rules_of_fields_need_a_key_and_no_merge_engine() -> None:
    log = TableSpecification("log", SPEC.fields, options={"write-mode": "append-only"})
    last = SPEC.evolve(options={"sequence.field": "n"})
    for spec in (log, last, SPEC.evolve(options={"merge-engine": "partial-update"})):
        with pytest.raises(InvalidSpecificationError, match=r"need a primary key|merge engine or sequence\.field"):
            spec.evolve(rules=[NAME])
        assert spec.evolve(rules=[Retired(SINCE)]).rules == (Retired(SINCE),)


def test_retired_needs_an_aware_time() -> None:
    assert Retired(SINCE).since == SINCE
    assert Retired(SINCE) == Retired(SINCE.astimezone(dt.UTC))
    for since in (dt.datetime(2026, 11, 20), "2026-11-20T00:00:00Z"):
        with pytest.raises(InvalidSpecificationError, match="aware"):
            Retired(since)  # type: ignore[arg-type]


def test_documents_are_json_and_lose_nothing() -> None:
    spec = SPEC.evolve(rules=RULES, options={"user.x": "y"})
    document = json.loads(json.dumps(specification_to_document(spec)))
    assert document["requires"] == ["field-rules"]
    assert specification_from_document(document) == specification_from_catalog(document) == spec
    assert "rules" not in specification_to_document(SPEC)


def test_unknown_rules_are_one_clear_error() -> None:
    document = json.loads(json.dumps(specification_to_document(SPEC.evolve(rules=[NAME]))))
    for rules in ([{"kind": "masked", "field": "a"}], [{**document["rules"][0], "function": {"kind": "upper"}}], ["x"]):
        with pytest.raises(InvalidSpecificationError, match="this version of structable"):
            specification_from_catalog({**document, "rules": rules})
    misfits: list[object] = [{}, [{"kind": "renamed", "old": "a"}], [{"kind": "retired", "since": "now"}]]
    for misfit in misfits:
        with pytest.raises(InvalidSpecificationError):
            specification_from_catalog({**document, "rules": misfit})
    with pytest.raises(InvalidSpecificationError, match="use a newer one"):
        specification_from_catalog({**document, "requires": ["field-rules", "masks"]})


def test_digest_is_of_what_rules_make_of_writes() -> None:
    assert rules_digest([]) == rules_digest([Retired(SINCE)]) == ""
    ready = [replace(rule, ready=True) for rule in RULES if not isinstance(rule, Retired)]
    assert rules_digest(RULES) == rules_digest(ready[::-1])
    others = [[NAME], [replace(NAME, source="s")], [Derived("s", "n", Cast("string"))], RULES]
    assert len({rules_digest(rules) for rules in others}) == len(others)


def test_a_table_without_rules_runs_nothing_of_them() -> None:
    """It costs no more than a test for None where a transaction names it."""
    ruled = {"row_rules", "ruled_table", "computed_rows", "ruled_batches", "ruled"}
    called: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        called.add(str(frame.f_globals.get("__name__")).rpartition(".")[2])

    with connect("memory://") as storage:
        storage.admin.create(TableSpecification("t", [Field.long("k"), Field.string("v")], ["k"], ["v"]))
        view = storage.table("t")
        sys.setprofile(note)
        try:
            view.upsert({"k": 1, "v": "a"})
            view.update({"k": 1, "v": "b"})
            view.upsert_many([{"k": 2}, {"k": 3}])
            storage.run(lambda tx: tx.table("t").increment_many([]))
            assert [row.k for row in view.scan(where=col("v") == "b")] == [1]
            assert view.read((1,)) == {"k": 1, "v": "b"}
            with storage.transaction() as tx:
                tx.table("t").replace({"k": 4})
        finally:
            sys.setprofile(None)
    assert "table" in called
    assert not called & ruled
