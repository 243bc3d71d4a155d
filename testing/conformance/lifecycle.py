"""Rules of `connect`, `Storage` and its end."""

from __future__ import annotations

import gc
import math
import pickle
from collections.abc import Callable

import pytest

import structable.spi
from structable.spi import (
    BackendNotFoundError,
    CommitOutcomeUnknownError,
    FieldSizeLimitError,
    InvalidFieldError,
    PlanChangedError,
    PlanError,
    RecordExistsError,
    RecordNotFoundError,
    SchemaIncompatibleError,
    Storage,
    StorageUnavailableError,
    StorageUrl,
    StructableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TransactionClosedError,
    TransactionConflictError,
    connect,
)

from .case import ConformanceCase
from .samples import ITEMS, NOTED, item, keys, plain


def with_parameter(url: str, parameter: str) -> str:
    """Return a URL with one more parameter."""
    return f"{url}{'&' if '?' in url else '?'}{parameter}"


class LifecycleRules(ConformanceCase):
    """URLs, options, opening and closing."""

    def test_fresh_store_is_empty(self, storage: Storage) -> None:
        """A missing store is created at first use, and is empty."""
        assert storage.admin.list() == []
        assert not storage.closed

    def test_storage_is_a_context_manager(self, storage_url: str) -> None:
        """`Storage` is a context manager that closes it."""
        with connect(storage_url) as storage:
            assert not storage.closed
            assert storage.admin.list() == []
        assert storage.closed

    def test_auto_commit_is_declared(self, storage: Storage) -> None:
        """`auto_commit` is true of the view of a storage, and false of a table in a transaction."""
        storage.admin.create(ITEMS)
        assert storage.table(ITEMS.name).auto_commit
        with storage.transaction(read_only=True) as transaction:
            assert not transaction.table(ITEMS.name).auto_commit

    def test_close_is_idempotent(self, storage_url: str) -> None:
        """`close()` may be called again, also inside its `with` block, and on a storage that was never used."""
        connect(storage_url).close()
        with connect(storage_url) as storage:
            storage.admin.create(ITEMS)
            storage.close()
            storage.close()
            assert storage.closed

    def test_use_after_close(self, storage_url: str) -> None:
        """A closed storage raises structable's own error, at once and without a retry."""
        storage = connect(storage_url)
        storage.admin.create(ITEMS)
        view = storage.table("items")
        view.upsert({"id": 1})
        storage.close()
        uses: list[Callable[[], object]] = [
            lambda: storage.transaction().table("items").count(),
            lambda: storage.run(lambda transaction: transaction.table("items").count()),
            lambda: storage.table("items").count(),
            lambda: view.read((1,)),
            lambda: view.upsert({"id": 2}),
            lambda: list(view.scan()),
            storage.admin.list,
            lambda: storage.admin.drop("items"),
            lambda: storage.plan_scan("items"),
            lambda: storage.begin_write("items", mode="upsert", job_id="job"),
        ]
        for use in uses:
            with pytest.raises(StructableError):
                use()

    def test_close_ends_what_is_open(self, storage_url: str) -> None:
        """`close` ends an open transaction, which is not committed and can no longer be used."""
        storage = connect(storage_url)
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many([{"id": number} for number in range(50)])
        transaction, scan = storage.transaction(), storage.table("items").scan()
        table = transaction.table("items")
        rows = table.scan()
        next(rows)
        next(scan)
        table.upsert({"id": 100})
        storage.close()
        uses: list[Callable[[], object]] = [
            lambda: table.read((1,)),
            lambda: list(rows),
            lambda: table.upsert({"id": 101}),
            transaction.commit,
        ]
        for use in uses:
            with pytest.raises(StructableError):
                use()
        transaction.rollback()
        scan.close()
        rows.close()
        with connect(storage_url) as again:
            if again.admin.exists("items"):
                assert keys(again.table("items").scan()) == [(number,) for number in range(50)]

    def test_committed_rows_outlive_the_storage(self, storage_url: str) -> None:
        """Committed data is there when the store is connected again: tables, rows, indexes and schema changes."""
        self.require("restartable")
        with connect(storage_url) as storage:
            storage.admin.create(ITEMS)
            storage.admin.create(NOTED)
            storage.table("items").upsert_many([item(number, tag="a", n=number) for number in range(100)])
            storage.admin.drop_index("items", "rank")
            storage.admin.drop("noted")
            open_at_the_end = storage.transaction()
            open_at_the_end.table("items").upsert({"id": 1000})
        del open_at_the_end
        gc.collect()
        with connect(storage_url) as storage:
            assert storage.admin.list() == ["items"]
            assert storage.admin.get_specification("items").indexes == ("tag",)
            assert plain(storage.table("items").scan()) == [item(number, tag="a", n=number) for number in range(100)]
            assert len(list(storage.table("items").scan_index("tag", "a"))) == 100
            storage.table("items").delete((50,))
        with connect(storage_url) as storage:
            assert storage.table("items").count() == 99

    def test_unknown_option(self, storage_url: str) -> None:
        """An unknown option, as a keyword or a URL parameter, is a `ValueError` that lists the known ones."""
        attempts: list[Callable[[], object]] = [
            lambda: connect(storage_url, no_such_option=1),
            lambda: connect(with_parameter(storage_url, "no_such_option=1")),
        ]
        for attempt in attempts:
            with pytest.raises(ValueError, match="no_such_option") as refusal:
                attempt()
            assert "pool_timeout" in str(refusal.value)
            assert "ddl_timeout" in str(refusal.value)

    def test_options_as_parameters_and_keywords(self, storage_url: str) -> None:
        """URL parameters and keywords are the same options; one that does not fit is a `ValueError` that names it.

        Times of more than 2,000,000 seconds, which timers cannot count, are a `ValueError`, too.
        """
        with connect(storage_url, pool_timeout=2_000_000, ddl_timeout=2_000_000) as storage:
            storage.admin.create(ITEMS)
            storage.table(ITEMS.name).upsert({"id": 1})
            storage.admin.drop(ITEMS.name)
        with connect(with_parameter(storage_url, "pool_timeout=5"), ddl_timeout=5) as storage:
            assert storage.admin.list() == []
        attempts: list[Callable[[], object]] = [
            lambda: connect(storage_url, pool_timeout="soon"),
            lambda: connect(with_parameter(storage_url, "pool_timeout=soon")),
            lambda: connect(storage_url, ddl_timeout=-1),
            lambda: connect(storage_url, pool_timeout=math.inf),
            lambda: connect(storage_url, ddl_timeout=math.nan),
            lambda: connect(with_parameter(storage_url, "ddl_timeout=1e300")),
        ]
        for attempt in attempts:
            with pytest.raises(ValueError, match="timeout"):
                attempt()

    def test_unknown_scheme(self) -> None:
        """An unknown scheme is `BackendNotFoundError`, and the message lists the installed ones."""
        with pytest.raises(BackendNotFoundError) as refusal:
            connect("nosuchstore://somewhere")
        for backend in structable.spi.installed_backends():
            assert backend.scheme in str(refusal.value)

    def test_url_is_shown_without_its_password(self, storage: Storage, storage_url: str) -> None:
        """`url` is the URL of the connection; a password in it is always masked."""
        given, shown = StorageUrl.parse(storage_url), StorageUrl.parse(storage.url)
        assert (shown.scheme, shown.user, shown.hosts, shown.path) == (
            given.scheme,
            given.user,
            given.hosts,
            given.path,
        )
        if given.password:
            for text in (storage.url, repr(storage), str(storage)):
                assert given.password not in text

    @pytest.mark.parametrize(
        "error",
        [
            InvalidFieldError("t", "f", "reason"),
            FieldSizeLimitError("t", "f", 3, 2),
            TableNotFoundError("t"),
            TableAlreadyExistsError("t"),
            RecordNotFoundError("t", (1, "a")),
            RecordExistsError("t", (1, "a")),
            SchemaIncompatibleError("t", ["one", "two"]),
            PlanError("pipeline 'p'", []),
            PlanChangedError("pipeline 'p'", ["one", "two"], "Cure."),
            TransactionConflictError("conflict"),
            TransactionClosedError("closed"),
            CommitOutcomeUnknownError("unknown"),
            StorageUnavailableError("away"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_errors_travel(self, error: StructableError) -> None:
        """All errors are picklable, with their message and facts."""
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert vars(copy) == vars(error)

    def test_errors_of_a_backend_travel(self, storage: Storage) -> None:
        """Errors of a backend can be pickled and sent from another process."""
        storage.admin.create(ITEMS)
        table = storage.table("items")
        table.insert({"id": 1})
        failing: list[Callable[[], object]] = [
            lambda: table.insert({"id": 1}),
            lambda: table.update({"id": 2}),
            lambda: table.upsert({"id": 1, "n": "x"}),
            lambda: storage.admin.create(ITEMS),
            lambda: storage.table("missing").count(),
        ]
        for fail in failing:
            with pytest.raises(StructableError) as raised:
                fail()
            copy = pickle.loads(pickle.dumps(raised.value))
            assert (type(copy), str(copy), vars(copy)) == (type(raised.value), str(raised.value), vars(raised.value))
