"""Folders of revisions: their names, scripts, and what a change of a script means."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from structable.migrations import (
    Folder,
    LiveClientsError,
    MigrationError,
    Migrator,
    RevisionChangedError,
    RevisionError,
    VerificationError,
)
from structable.migrations.operations import RevisionOperations
from structable.spi import Storage
from tests.migrations.support.folders import Scripts, put_runs


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("0001_two.py", r"0001_one\.py and .*0001_two\.py have the same number"),
        ("0003_three.py", r"0003_three\.py comes after .*0001_one\.py: a revision 0002 is missing"),
    ],
)
def test_a_wrong_number_names_both_files(scripts: Scripts, name: str, reason: str) -> None:
    scripts.add("one", up="pass")
    (scripts.path / name).write_text("def up(op): pass\n")
    with pytest.raises(RevisionError, match=reason):
        Folder(scripts.path).revisions()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("op.add_field('t', 'n')", "is not a field"),
        ("op.add_field('t', op.long('n'), source='p')", "give derive and source together"),
        ("op.add_field('t', op.long('n'), derive=op.lower(), source='p', default=1)", "has no default"),
        ("op.add_field('t', op.int('n'), default='x')", "an int is needed"),
        ("op.drop_rule('t', 'n')", "is an operation of contract, not of up"),
        ("op.rewrite('t', 'nothing')", "does not name a function"),
        ("op.drop_table('t', keep_days=-1)", "keep_days is -1"),
        ("op.drop_table('t', keep_days=10**9)", "keep_days is 1000000000"),
        ("op.rewrite('t', 'm:f', where=3)", "where is 3"),
        ("op.create_table('t')", "takes a table of op.table"),
        ("op.create_table(op.table('t', [op.long('n')], ['m']))", "InvalidSpecificationError"),
        ("op.unknown()", "AttributeError"),
        ("op.string(nam)", "NameError"),
        ("op.add_field('t', op.long('bad name'))", "InvalidSpecificationError.*'bad name'"),
        ("op.add_field('t', op.decimal('d', 50, 2))", "InvalidSpecificationError.*50"),
        ("op.rename_field('t', 'a', 'b c')", "InvalidSpecificationError.*'b c'"),
        ("op.add_index('t')", "TypeError"),
    ],
)
def test_wrong_scripts_are_refused_by_name(scripts: Scripts, body: str, reason: str) -> None:
    file = scripts.add("wrong", up=body)
    with pytest.raises(RevisionError, match=reason) as raised:
        Folder(scripts.path).revisions()
    assert str(file) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("0001_x.py", "raise ValueError('no')\n", "cannot be loaded: ValueError: no"),
        ("0001_x.py", "x = 1\n", r"has no function up\(op\)"),
        ("0001_x.py", "up = 1\n", "up is not a function"),
        ("0001-x.py", "def up(op): pass\n", "its name must be like"),
    ],
)
def test_what_is_no_script_is_refused(scripts: Scripts, name: str, text: str, reason: str) -> None:
    (scripts.path / name).write_text(text)
    with pytest.raises(RevisionError, match=reason):
        Folder(scripts.path).revisions()


def test_an_absent_folder_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(RevisionError, match="structable migrate init"):
        Folder(tmp_path / "none").revisions()


EVERY_OPERATION = """
fields = [op.string("k"), op.decimal("d", 10, 2), op.string("doc")]
op.create_table(op.table("t", fields, ["k"], ["doc"], {"user.a": "b"}))
op.add_field("t", op.long("n"), derive=op.json_field(("a", 0, "b"), "long", strict=True), source="doc")
op.add_field("t", op.string("low"), derive=op.lower(), source="doc")
op.add_field("t", op.string("text"), derive=op.cast("string"), source="d")
import datetime as dt
op.add_field("t", op.timestamp("at"), default=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
op.add_field("t", op.bytes("raw"), default=b"\\x00\\xff")
op.widen_field("t", op.long("i"))
op.add_index("t", "n")
op.drop_index("t", "doc")
op.rename_field("t", "a", "b")
op.drop_field("t", "c")
op.drop_table("u", keep_days=0)
op.rewrite("t", "m.o:f", where="n > 3")
op.run("m:g")
"""


def test_operations_are_what_was_stored(scripts: Scripts) -> None:
    scripts.add("all", up=EVERY_OPERATION, contract="op.drop_rule('t', 'n')", down="op.run('m:h')")
    [revision] = Folder(scripts.path).revisions()
    again = RevisionOperations.from_text(revision.operations.to_text())
    assert again == revision.operations
    assert again.digest == revision.operations.digest


def test_comments_may_change_and_operations_must_not(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 3)
    file = scripts.add("field", up='op.add_field("runs", op.int("a"))')
    migrator = Migrator(store, scripts.path)
    migrator.up()
    scripts.write(file, up='# why\nop.add_field("runs", op.int("a"))')
    migrator.up()
    scripts.write(file, up='op.add_field("runs", op.int("b"))')
    for call in (migrator.up, migrator.plan):
        with pytest.raises(RevisionChangedError, match=r"0001_field\.py records other operations") as raised:
            call()
        assert raised.value.revision == 1


def test_errors_are_picklable() -> None:
    errors = [LiveClientsError(3, ["a"]), VerificationError("t", "f", 2, ["x"]), RevisionChangedError(1, "f")]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
        assert isinstance(again, MigrationError)
