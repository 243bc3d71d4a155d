"""doctor: its findings in a sound store and in faulty ones."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from structable.cli.commands import doctor
from structable.cli.language.arguments import StoreAccess
from structable.spi import (
    DataCorruptionError,
    Finding,
    FindingLevel,
    Row,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    UnsupportedOperationError,
    connect,
)
from tests.cli.conftest import Command, every_store


def lines(text: str) -> list[tuple[str, str]]:
    found = []
    for line in text.splitlines():
        level, rest = line.split(maxsplit=1)
        found.append((level, rest))
    return found


@every_store
def test_a_sound_store(structable: Command, url: str, storage: Storage) -> None:
    outcome = structable("doctor", url)
    assert (outcome.code, outcome.err) == (0, "")
    found = lines(outcome.out)
    assert {level for level, _ in found} == {"ok"}
    texts = [text for _, text in found]
    assert "tables: 2" in texts
    assert "table runs: 4 rows are readable" in texts
    # Whole, or by its values if the store sorts so small a table instead of reading its index.
    whole = "index runs.status: agrees with all 4 rows" in texts
    assert whole or "index runs.status: agrees with the rows of 3 values" in texts
    assert whole or url.startswith("postgresql:")
    assert any(text.startswith("index everything.text: agrees with ") for text in texts)
    assert any(text.startswith("parallel scan runs: 4 rows") for text in texts)


def test_only_some_tables(structable: Command, url: str, storage: Storage) -> None:
    assert "everything" not in structable("doctor", url, "--table", "runs").out


def test_an_absent_table_is_a_problem(structable: Command, url: str, storage: Storage) -> None:
    outcome = structable("doctor", url, "--table", "nothing")
    assert outcome.code == 1
    assert lines(outcome.out)[-1] == ("problem", "table nothing: table 'nothing' does not exist")


def test_an_unknown_backend_is_a_problem(structable: Command) -> None:
    outcome = structable("doctor", "nosuch://x")
    assert outcome.code == 1
    assert lines(outcome.out)[-1][1].startswith("connection: no backend for nosuch:// is installed")


def test_a_malformed_url_is_a_usage_error(structable: Command) -> None:
    outcome = structable("doctor", "memory://x?nope=1")
    assert outcome.code == 2
    assert outcome.err.startswith("structable: backend 'memory' has no option 'nope'")


class Faulty:
    """Passes all calls on to the wrapped object, except those that a test replaces."""

    def __init__(self, wrapped: object, **replaced: object) -> None:
        self.wrapped = wrapped
        self.__dict__.update(replaced)

    # Any: it stands for a storage, a transaction or a table.
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.wrapped, name)

    def __enter__(self) -> "Faulty":
        return self

    def __exit__(self, *error: object) -> None:
        self.wrapped.__exit__(*error)  # type: ignore[attr-defined]


def test_a_stores_own_state(structable: Command, url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is repaired first on request, and its problems are problems like any other."""

    def store(repair: Callable[[], Iterator[Finding]]) -> None:
        def diagnose() -> Iterator[Finding]:
            yield Finding(FindingLevel.NOTE, "transactions", "1 pending")

        def open_store(url: str, access: StoreAccess) -> Faulty:
            return Faulty(connect(url), diagnose=diagnose, repair=repair)

        monkeypatch.setattr(doctor, "open_store", open_store)

    def repaired() -> Iterator[Finding]:
        yield Finding(FindingLevel.OK, "repair", "2 are finished")

    def failing() -> Iterator[Finding]:
        raise StorageUnavailableError("no answer")

    store(repaired)
    outcome = structable("doctor", url)
    assert outcome.code == 0
    assert "note     transactions: 1 pending" in outcome.out
    assert "finished" not in outcome.out
    texts = [text for _, text in lines(structable("doctor", url, "--repair").out)]
    assert texts.index("repair: 2 are finished") < texts.index("transactions: 1 pending") < texts.index("tables: 2")

    store(failing)
    outcome = structable("doctor", url, "--repair")
    assert outcome.code == 1
    assert "problem  state: no answer" in outcome.out
    assert "ok       table runs: 4 rows are readable" in outcome.out


Method = Callable[..., Any]
WithTable = Callable[..., None]


@pytest.fixture
def with_table(monkeypatch: pytest.MonkeyPatch, storage: Storage) -> WithTable:
    """Let the doctor see tables with replaced methods, each made from the real table by a function."""

    def replace(**methods: Callable[[StructuredTable], Method]) -> None:
        def open_store(url: str, access: StoreAccess) -> Faulty:
            real = connect(url)

            def transaction(*, read_only: bool) -> Faulty:
                begun = real.transaction(read_only=read_only)

                def table(name: str) -> Faulty:
                    found = begun.table(name)
                    return Faulty(found, **{method: make(found) for method, make in methods.items()})

                return Faulty(begun, table=table)

            return Faulty(real, transaction=transaction)

        monkeypatch.setattr(doctor, "open_store", open_store)

    return replace


def index_scan(change: Callable[[list[Row]], list[Row]]) -> Callable[[StructuredTable], Method]:
    def make(table: StructuredTable) -> Method:
        def scan(**options: Any) -> Iterator[Row]:  # noqa: ANN401
            rows = list(table.scan(**options))
            return iter(change(rows) if "order_by" in options else rows)

        return scan

    return make


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda rows: rows[1:], "it has 3 rows, the table has 4"),
        (lambda rows: rows + rows[-1:], "it has 5 rows, the table has 4"),
        (lambda rows: [*rows[:-1], rows[0]], "it does not agree with the rows (1 are out of order)"),
        (lambda rows: rows[::-1], "it does not agree with the rows (3 are out of order)"),
    ],
)
def test_an_index_that_does_not_agree(
    structable: Command,
    url: str,
    with_table: WithTable,
    change: Callable[[list[Row]], list[Row]],
    text: str,
) -> None:
    with_table(scan=index_scan(change))
    outcome = structable("doctor", url, "--table", "runs")
    assert outcome.code == 1
    assert ("problem", f"index runs.status: {text}") in lines(outcome.out)


def test_an_index_that_is_only_looked_up(structable: Command, url: str, with_table: WithTable) -> None:
    with_table(explain=lambda table: lambda **options: table.explain())
    assert "index runs.status: agrees with the rows of 3 values" in structable("doctor", url, "--table", "runs").out
    with_table(
        explain=lambda table: lambda **options: table.explain(),
        scan_index=lambda table: lambda field, value, **options: iter(list(table.scan_index(field, value))[1:]),
    )
    outcome = structable("doctor", url, "--table", "runs")
    assert outcome.code == 1
    assert "the table has" in outcome.out


def test_a_count_that_does_not_agree(structable: Command, url: str, with_table: WithTable) -> None:
    with_table(count=lambda table: lambda: 5)
    assert "problem  table runs: a scan finds 4 rows, count() 5" in structable("doctor", url).out


def test_rows_that_are_out_of_order(structable: Command, url: str, with_table: WithTable) -> None:
    with_table(scan=lambda table: lambda **options: iter(list(table.scan(**options))[::-1]))
    assert "problem  table runs: 3 rows are not in key order" in structable("doctor", url).out


def test_data_that_cannot_be_decoded(structable: Command, url: str, with_table: WithTable) -> None:
    def corrupt(table: StructuredTable) -> Method:
        def scan(**options: object) -> Iterator[Row]:
            raise DataCorruptionError("row 0x01 cannot be decoded")

        return scan

    with_table(scan=corrupt)
    outcome = structable("doctor", url)
    assert outcome.code == 1
    assert "problem  table runs: row 0x01 cannot be decoded" in outcome.out
    assert "problem  table everything: row 0x01 cannot be decoded" in outcome.out


def test_a_store_without_parallel_scans_is_no_problem(
    structable: Command, url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_scan(table: str, **options: object) -> None:
        raise UnsupportedOperationError("one process only")

    monkeypatch.setattr(doctor, "open_store", lambda url, access: Faulty(connect(url), plan_scan=plan_scan))
    outcome = structable("doctor", url, "--table", "runs")
    assert outcome.code == 0
    assert "note     parallel scan runs: one process only" in outcome.out
