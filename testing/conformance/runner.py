"""`run`: the whole suite against the store of a URL pattern, without a class; `structable conformance URL` calls it."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from structable.spi import connect

from .masking import Masking, secrets_of

PLACEHOLDER = "{fresh}"
"""The placeholder in a URL pattern for a new name in each test: letters, digits and underscores, at most 16."""

_PROGRAM = '''
import pytest
from structable.testing.conformance import BackendConformance
from structable.testing.conformance.runner import fresh_url


class TestConformance(BackendConformance):
    """The suite against {shown}."""

    @pytest.fixture
    def storage_url(self):
        """Return the URL of a fresh store."""
        return fresh_url({pattern!r})
'''


def fresh_url(pattern: str) -> str:
    """Return a pattern's URL with a name that was never used before."""
    return pattern.replace(PLACEHOLDER, f"c{uuid.uuid4().hex[:15]}")


def run(url: str, extra_pytest_args: Sequence[str] = ()) -> int:
    """Run the suite with pytest, each test on a fresh store; failures show the URL with its password masked.

    Parameters
    ----------
    url : str
        A URL pattern: `{fresh}` in it is replaced by a new name for each test, e.g. `leveldb:///tmp/stores/{fresh}`,
        `memory://{fresh}`, `postgresql://user@host/database?schema={fresh}`. What the tests leave behind under these
        names is the caller's to remove.
    extra_pytest_args : sequence of str
        Passed to pytest, e.g. `["-k", "scan", "-x"]`.

    Returns
    -------
    int
        pytest's exit code: 0 if every test passed or was skipped for a capability that is not declared.

    Raises
    ------
    ValueError
        If the URL lacks `{fresh}`: tests on one store would disturb one another, and destroy its data.
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
    with tempfile.TemporaryDirectory(prefix="structable-conformance-") as folder:
        program = Path(folder, "test_conformance.py")
        # The pattern may hold a password: only this user reads the file, and only while the tests run.
        program.touch(mode=0o600)
        program.write_text(_PROGRAM.format(shown=ascii(shown)[1:-1], pattern=url))
        arguments = ["-p", "no:cacheprovider", "--rootdir", folder, "--import-mode=importlib", *extra_pytest_args]
        pytest.register_assert_rewrite("structable.testing.conformance")
        return int(pytest.main([str(program), *arguments], plugins=[Masking(secrets_of(url))]))
