"""The conformance suite: subclass `BackendConformance`, give it the URL of a fresh store, and run pytest.

    from structable.testing.conformance import BackendConformance

    class TestMyBackend(BackendConformance):
        @pytest.fixture
        def storage_url(self, tmp_path):
            return f"mybackend://{tmp_path}/store"

Every rule of the contract is one test with the rule in its docstring. A test that is skipped names the
capability that the store does not declare; a class attribute `capabilities` replaces what the store declares.
`run` does the same for a URL pattern, without a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from structable.spi import Capabilities
from structable.spi.authors import needing

if TYPE_CHECKING:
    from .runner import run
    from .suite import BackendConformance

__all__ = ["BackendConformance", "Capabilities", "run"]


def __getattr__(name: str) -> object:
    # Loaded on demand: the client processes of the suite import from this package, and need no pytest.
    if name == "BackendConformance":
        with needing("the conformance suite needs", "conformance"):
            from .suite import BackendConformance

        return BackendConformance
    if name == "run":
        with needing("the conformance suite needs", "conformance"):
            from .runner import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
