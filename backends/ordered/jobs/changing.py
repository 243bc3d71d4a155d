"""`CatalogChanges`: small transactions on the catalog, repeated after conflicts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from structable.backends.ordered.engine import Engine, EngineSnapshot, SchemaChangedError, WriteSet
from structable.spi import TransactionConflictError

__all__ = ["CatalogChanges"]

Result = TypeVar("Result")

_ATTEMPTS = 20
_PAUSE = 0.002


class CatalogChanges:
    """Runs a transaction on the catalog of an engine, when called."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, body: Callable[[EngineSnapshot, WriteSet], Result]) -> Result:
        for attempt in range(1, _ATTEMPTS + 1):
            snapshot = self._engine.begin(False)
            try:
                changes = WriteSet()
                result = body(snapshot, changes)
                if changes.writes:
                    self._engine.commit(snapshot, changes)
                return result
            except (TransactionConflictError, SchemaChangedError):
                if attempt == _ATTEMPTS:
                    raise
            finally:
                snapshot.close()
            time.sleep(_PAUSE * attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")
