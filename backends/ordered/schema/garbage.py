"""Removal of what no table uses any more, in the background and in small steps; what a crash left is found again."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import SchemaChangedError, Upkeep, WriteSet
from structable.spi import StructableError, TransactionConflictError

from .catalog import garbage_key, list_garbage

__all__ = ["GarbageCollector"]

_log = logging.getLogger("structable.ordered")
_PAUSE = 5.0
"""Seconds until what an engine does not let go yet is tried again."""


class GarbageCollector:
    """Deletes dropped tables and indexes in a thread that lives while there is something to delete.

    Snapshots taken before the drop still read what is deleted here; later ones cannot name it.

    Parameters
    ----------
    engine : Upkeep
        The store.
    """

    def __init__(self, engine: Upkeep) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._again = False
        self._stopping = threading.Event()

    def resume(self) -> None:
        """Go on with what an earlier process left."""
        while True:
            snapshot = self._engine.begin(True)
            try:
                left = bool(list_garbage(snapshot))
                break
            except TransactionConflictError:
                continue  # the process that held the snapshot has ended; there is another one, or `begin` raises
            finally:
                snapshot.close()
        if left:
            self.notify()

    def notify(self) -> None:
        """Say that there may be something to delete."""
        with self._lock:
            self._again = True
            if self._thread is None and not self._stopping.is_set():
                thread = threading.Thread(target=self._work, name="structable-garbage", daemon=True)
                with suppress(RuntimeError):  # no thread at present: it stays recorded, for the next call or `resume`
                    thread.start()
                    self._thread = thread

    def stop(self) -> None:
        """Stop after the step at hand; the rest is found by `resume`."""
        uninterrupted(self._stop)

    def _stop(self) -> None:
        self._stopping.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._again or self._stopping.is_set():
                    self._thread = None
                    return
                self._again = False
            try:
                while not self._collect() and not self._stopping.wait(_PAUSE):
                    continue
            except (StructableError, SchemaChangedError) as error:
                # It stays recorded, for the next `notify` or `resume`.
                if not self._stopping.is_set():
                    _log.warning("deleting dropped tables and indexes failed and will be repeated: %s", error)
            except Exception:
                _log.exception("deleting dropped tables and indexes failed unexpectedly and will be repeated")

    def _collect(self) -> bool:
        """Delete what may be deleted; False if something has to wait."""
        snapshot = self._engine.begin(True)
        try:
            beginnings = list_garbage(snapshot)
        finally:
            snapshot.close()
        whole = True
        for beginning in beginnings:
            if not self._engine.discard(beginning, self._stopping.is_set):
                whole = False
                continue
            _log.info("deleted a dropped table or index: all keys that begin with %s", beginning.hex())
            # Another process may have done the same.
            with suppress(TransactionConflictError):
                snapshot = self._engine.begin(False)
                try:
                    self._engine.commit(snapshot, WriteSet(writes={garbage_key(beginning): None}))
                finally:
                    snapshot.close()
        return whole
