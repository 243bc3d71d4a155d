"""`run`: the whole suite against the store of a URL pattern, without a class; `structable conformance URL` calls it."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from structable.spi import Field, Storage, TableSpecification, UnsupportedOperationError, connect

from .capabilities import Capabilities
from .masking import Masking, secrets_of

__all__ = ["PLACEHOLDER", "run"]

PLACEHOLDER = "{fresh}"
"""The placeholder in a URL pattern for a new name in each test: letters, digits and underscores, at most 16."""

_PROGRAM = '''
import pytest
from structable.spi.conformance import BackendConformance, Capabilities
from structable.spi.conformance.runner import fresh_url


class TestConformance(BackendConformance):
    """The suite against {shown}."""

    capabilities = {capabilities!r}

    @pytest.fixture
    def storage_url(self):
        """Return the URL of a fresh store."""
        return fresh_url({pattern!r})
'''


_LOG = {"write-mode": "append-only"}
_PROBE = TableSpecification("probe", [Field.long("id")], ["id"])


def fresh_url(pattern: str) -> str:
    """Return a pattern's URL with a name that was never used before."""
    return pattern.replace(PLACEHOLDER, f"c{uuid.uuid4().hex[:15]}")


def _creates(storage: Storage, options: dict[str, str]) -> bool:
    """Tell whether a store takes a table without a key with these options."""
    try:
        storage.admin.create(TableSpecification("probe", [Field.int("n")], options=options))
    except UnsupportedOperationError:
        return False
    storage.admin.drop("probe")
    return True


def run(url: str, extra_pytest_args: Sequence[str] = (), capabilities: Capabilities | None = None) -> int:
    """Run the suite with pytest, each test on a fresh store; failures show the URL with its password masked.

    Parameters
    ----------
    url : str
        A URL pattern: `{fresh}` in it is replaced by a new name for each test, e.g. `leveldb:///tmp/stores/{fresh}`,
        `memory://{fresh}`, `postgresql://user@host/database?schema={fresh}`. What the tests leave behind under these
        names is the caller's to remove.
    extra_pytest_args : sequence of str
        Passed to pytest, e.g. `["-k", "scan", "-x"]`.
    capabilities : Capabilities, optional
        The abilities of the store beyond the mandatory ones. If not given, whether the store declares itself
        `process_local` decides: if not, all that follows from several processes is demanded. So are table types, if
        the store creates a table without a key, change feeds, if it creates one with a changelog-producer, streams,
        statistics and shared snapshots, if it begins a write job of one, tells and takes them, and aggregates, if
        `Storage.aggregates` says so.

    Returns
    -------
    int
        pytest's exit code: 0 if every test passed or was skipped for a capability that is not declared.

    Raises
    ------
    ValueError
        If the URL lacks `{fresh}`: tests on one store would disturb one another, and destroy what it holds.
    StructableError
        If a store cannot be connected at all.
    """
    if PLACEHOLDER not in url:
        raise ValueError(
            f"the URL must contain {PLACEHOLDER}, which is replaced by a new name for each test, as in "
            f"memory://{PLACEHOLDER} or leveldb:///tmp/stores/{PLACEHOLDER}: the suite needs a fresh store for each"
        )
    with connect(fresh_url(url)) as storage:
        shown = storage.url
        if storage.admin.list():
            raise ValueError(f"{shown} is not empty: the pattern must name a place where stores can be made")
        if capabilities is None:
            shared = not storage.process_local
            capabilities = Capabilities(
                restartable=shared,
                multi_process=shared,
                durable_after_kill=shared,
                table_types=_creates(storage, _LOG),
                change_feeds=_creates(storage, {**_LOG, "changelog-producer": "lookup"}),
                streams=_offers(storage, lambda: _begin_batch(storage)),
                statistics=_offers(storage, lambda: storage.statistics(_PROBE.name)),
                shared_snapshots=_offers(storage, lambda: _share(storage)),
                aggregates=storage.aggregates,
            )
    with tempfile.TemporaryDirectory(prefix="structable-conformance-") as folder:
        program = Path(folder, "test_conformance.py")
        # The pattern may hold a password: only this user reads the file, and only while the tests run.
        program.touch(mode=0o600)
        program.write_text(_PROGRAM.format(shown=ascii(shown)[1:-1], capabilities=capabilities, pattern=url))
        arguments = ["-p", "no:cacheprovider", "--rootdir", folder, "--import-mode=importlib", *extra_pytest_args]
        pytest.register_assert_rewrite("structable.spi.conformance")
        return int(pytest.main([str(program), *arguments], plugins=[Masking(secrets_of(url))]))


def _offers(storage: Storage, call: Callable[[], object]) -> bool:
    """Tell whether a call with the table `_PROBE` is supported."""
    storage.admin.create(_PROBE)
    try:
        call()
    except (UnsupportedOperationError, TypeError):  # without the parameters, in an older backend
        return False
    finally:
        storage.admin.drop(_PROBE.name)
    return True


def _begin_batch(storage: Storage) -> None:
    storage.abort_write(storage.begin_write(_PROBE.name, mode="patch", stream="probe", batch=0))


def _share(storage: Storage) -> None:
    with storage.share_snapshot() as shared:
        shared.plan_scan(_PROBE.name).close()
