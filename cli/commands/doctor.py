"""The commands that check a store: doctor by its content, through the contract, and conformance by the suite."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points, version
from platform import python_version
from typing import Annotated

import typer

from structable.cli.language.arguments import StoreAccess, Url, open_store
from structable.cli.language.errors import CommandError, ExitCode, UsageProblem, explain_error, masked, one_line
from structable.cli.language.table_types import rule_in_words
from structable.spi import (
    ChangesLostError,
    Finding,
    FindingLevel,
    Storage,
    StructableError,
    StructuredTable,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    installed_backends,
    mask_url,
    specification_to_document,
)
from structable.spi.text import specification_from_catalog

FINDINGS_GROUP = "structable.findings"
_SAMPLED_VALUES = 1_000
_HASH = (1 << 64) - 1


def doctor(
    url: Url,
    table: Annotated[list[str] | None, typer.Option(metavar="TABLE", help="Only this table. May be repeated.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="First finish the work of ended processes, waiting for it if needed.")
    ] = False,
) -> None:
    """Check a store: backend, connection, its own state, every table's specification, rows, count and indexes.

    All rows are read, each table in one snapshot, while other processes may write. The exit code is 1 if a problem
    is found.
    """
    colours = {
        FindingLevel.OK: typer.colors.GREEN,
        FindingLevel.NOTE: typer.colors.YELLOW,
        FindingLevel.PROBLEM: typer.colors.RED,
    }
    problems = 0
    for finding in examine(url, table, repair=repair):
        problems += finding.level is FindingLevel.PROBLEM
        text = one_line(masked(finding.text, [url]))
        typer.echo(f"{typer.style(f'{finding.level:<7}', fg=colours[finding.level])}  {finding.subject}: {text}")
    if problems:
        raise typer.Exit(ExitCode.FAILED)


def examine(url: str, tables: list[str] | None = None, *, repair: bool = False) -> Iterator[Finding]:
    """Yield the findings of a check of a store, each as soon as it is known; only a malformed URL raises."""
    yield Finding(FindingLevel.OK, "program", f"structable {version('structable')}, Python {python_version()}")
    scheme = url.partition("://")[0].lower()
    for one in installed_backends(scheme):
        good = one.backend is not None
        text = f"{one.provider}: {one.backend.description}" if one.backend else one.problem
        yield Finding(FindingLevel.OK if good else FindingLevel.PROBLEM, f"backend {scheme}", text)
    try:
        storage = open_store(url, StoreAccess.WRITE if repair else StoreAccess.READ)
    except StructableError as error:
        yield Finding(FindingLevel.PROBLEM, "connection", explain_error(error)[0])
        return
    with storage:
        yield from _examine_store(storage, url, tables, repair)


def _examine_store(storage: Storage, url: str, tables: list[str] | None, repair: bool) -> Iterator[Finding]:
    try:
        names = storage.admin.list()
    except StructableError as error:
        yield Finding(FindingLevel.PROBLEM, "connection", f"the tables cannot be listed: {error}")
        return
    yield Finding(FindingLevel.OK, "connection", mask_url(url))
    try:
        if repair:
            yield from storage.repair()
        yield from storage.diagnose()
    except StructableError as error:
        yield Finding(FindingLevel.PROBLEM, "state", str(error))
    if tables is None:
        yield from _findings_of_others(storage)
    yield Finding(FindingLevel.OK, "tables", f"{len(names):,}")
    for name in names if tables is None else tables:
        try:
            yield from _examine_table(storage, name)
        except StructableError as error:
            yield Finding(FindingLevel.PROBLEM, f"table {name}", str(error))


def _findings_of_others(storage: Storage) -> Iterator[Finding]:
    """Yield the findings of other packages: functions of a storage, in the entry points of `structable.findings`."""
    for entry in sorted(entry_points(group=FINDINGS_GROUP), key=lambda entry: entry.name):
        try:
            yield from entry.load()(storage)
        except ImportError as error:
            yield Finding(FindingLevel.NOTE, entry.name, f"not examined: {error}")
        except StructableError as error:
            yield Finding(FindingLevel.PROBLEM, entry.name, str(error))


def _examine_table(storage: Storage, name: str) -> Iterator[Finding]:
    spec = storage.admin.get_specification(name)
    if spec.name != name or specification_from_catalog(specification_to_document(spec)) != spec:
        yield Finding(FindingLevel.PROBLEM, f"table {name}", f"the store returned another specification: {spec!r}")
        return
    for rule in spec.rules:
        yield Finding(FindingLevel.OK, f"table {name}", f"rule: {rule_in_words(rule)}")
    if spec.table_options.log:
        try:
            yield _examine_log(storage, spec)
        except ChangesLostError:
            yield _examine_log(storage, spec)  # the oldest rows expired during the read: the log begins later now
        return
    with storage.transaction(read_only=True) as transaction:
        yield from _examine_rows(transaction.table(name), spec)
    yield _examine_plan(storage, spec)


def _examine_log(storage: Storage, spec: TableSpecification) -> Finding:
    """Read a whole log, and check by the numbers of changes that no change of a commit is missing."""
    count = gaps = number = 0
    version: int | None = None
    with storage.changes(spec.name).read() as changes:
        for change in changes:
            if change.version != version:
                version, number = change.version, 0
            gaps += change.number != number
            count, number = count + 1, number + 1
    if gaps:
        text = f"{gaps:,} of {count:,} changes have a number other than their position"
        return Finding(FindingLevel.PROBLEM, f"table {spec.name}", text)
    return Finding(FindingLevel.OK, f"table {spec.name}", f"{count:,} changes of a log are readable")


class _RowDigest:
    """The rows of a scan, reduced to their number and, for each field, a sum that does not depend on their order."""

    def __init__(self, fields: tuple[str, ...], *, keyless: bool) -> None:
        self.count = 0
        self.disorder = 0  # rows not above the position of the previous row; without a key, rows below it
        self._keyless = keyless
        self.sums = dict.fromkeys(fields, 0)
        self._before: tuple[object, ...] | None = None

    def add(self, position: tuple[object, ...], key: tuple[Value, ...], values: dict[str, Value]) -> None:
        self.count += 1
        if self._before is not None:
            self.disorder += not (self._before < position or (self._keyless and self._before == position))
        self._before = position
        for field, value in values.items():
            self.sums[field] = (self.sums[field] + hash((key, value))) & _HASH


def _examine_rows(table: StructuredTable, spec: TableSpecification) -> Iterator[Finding]:
    subject = f"table {spec.name}"
    rows = _RowDigest(spec.indexes, keyless=spec.keyless)
    samples: dict[str, dict[Value, int]] = {field: {} for field in spec.indexes}
    for row in table.scan():
        key, values = row.key, {field: row[field] for field in spec.indexes}
        rows.add(key, key, values)
        for field, value in values.items():
            seen = samples[field]
            if value in seen or len(seen) < _SAMPLED_VALUES:
                seen[value] = seen.get(value, 0) + 1
    if rows.disorder:
        yield Finding(FindingLevel.PROBLEM, subject, f"{rows.disorder:,} rows are not in key order")
    counted = table.count()
    if counted != rows.count:
        yield Finding(FindingLevel.PROBLEM, subject, f"a scan finds {rows.count:,} rows, count() {counted:,}")
    else:
        yield Finding(FindingLevel.OK, subject, f"{rows.count:,} rows are readable")
    for field in spec.indexes:
        explanation = table.explain(order_by=field)
        if explanation.index == field:
            yield _examine_index(table, spec, field, rows)
        else:
            yield _sample_index(table, spec, field, samples[field])


def _examine_index(table: StructuredTable, spec: TableSpecification, field: str, rows: _RowDigest) -> Finding:
    """Read the whole index in order and compare: the same rows, each once, ordered by their values."""
    subject = f"index {spec.name}.{field}"
    found = _RowDigest((field,), keyless=spec.keyless)
    for row in table.scan(columns=[field], order_by=field):
        value = row[field]
        position = (value is not None, *(() if value is None else (value,)), *row.key)
        found.add(position, row.key, {field: value})
    if found.count != rows.count:
        return Finding(FindingLevel.PROBLEM, subject, f"it has {found.count:,} rows, the table has {rows.count:,}")
    if found.disorder or found.sums[field] != rows.sums[field]:
        text = f"it does not agree with the rows ({found.disorder:,} are out of order)"
        return Finding(FindingLevel.PROBLEM, subject, text)
    return Finding(FindingLevel.OK, subject, f"agrees with all {rows.count:,} rows")


def _sample_index(table: StructuredTable, spec: TableSpecification, field: str, values: dict[Value, int]) -> Finding:
    """Look up values, for a store that does not read the whole index in order."""
    subject = f"index {spec.name}.{field}"
    for value, expected in values.items():
        found = 0
        for row in table.scan_index(field, value, columns=[field]):
            found += row[field] == value
        if found != expected:
            return Finding(
                FindingLevel.PROBLEM, subject, f"it finds {found:,} rows of {value!r}, the table has {expected:,}"
            )
    return Finding(FindingLevel.OK, subject, f"agrees with the rows of {len(values):,} values")


def _examine_plan(storage: Storage, spec: TableSpecification) -> Finding:
    subject = f"parallel scan {spec.name}"
    try:
        with storage.plan_scan(spec.name, columns=spec.primary_key or spec.field_names[:1], splits=2) as plan:
            rows = sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split))
            return Finding(
                FindingLevel.OK, subject, f"{rows:,} rows in {len(plan.splits)} split{'s' * (len(plan.splits) != 1)}"
            )
    except UnsupportedOperationError as error:
        return Finding(FindingLevel.NOTE, subject, str(error))


def conformance(
    url: Url,
    keywords: Annotated[
        str | None,
        typer.Option("-k", metavar="EXPRESSION", help="Only the rules whose names match, as pytest's -k has it."),
    ] = None,
    stop: Annotated[bool, typer.Option("-x", help="Stop at the first failure.")] = False,
) -> None:
    """Run the conformance suite: each rule of the contract is a test, on a store of its own.

    {fresh} in the URL is replaced by a new name for each test, as in scheme:///tmp/stores/{fresh}. Remove what
    the tests leave behind under these names. The exit code is 1 if a test fails.
    """
    try:
        from structable.testing.conformance import run
    except ModuleNotFoundError as missing:
        raise CommandError(str(missing)) from missing
    arguments = [*(() if keywords is None else ("-k", keywords)), *(("-x",) if stop else ())]
    try:
        failed = run(url, arguments)
    except StructableError:
        raise
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    if failed:
        raise typer.Exit(ExitCode.FAILED)
