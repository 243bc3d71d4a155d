"""Removal of dropped tables and indexes in the background, in small steps, also after a crash."""

from __future__ import annotations

import logging
from contextlib import closing, suppress

from structable.backends.base.background import NotifiedThread, resting
from structable.backends.ordered.engine import SchemaChangedError, Upkeep, WriteSet
from structable.spi import StructableError, TransactionConflictError

from .catalog import garbage_key, list_garbage

_log = logging.getLogger("structable.ordered")
_PAUSE = 5.0
"""Seconds until keys that an engine could not delete yet are tried again."""


class GarbageCollector:
    """Deletes dropped tables and indexes in a thread that lives while there is something to delete.

    Snapshots taken before the drop still read the keys deleted here; later snapshots cannot name them.
    """

    def __init__(self, engine: Upkeep) -> None:
        self._engine = engine
        self._background = NotifiedThread("structable-garbage", self._work)

    def resume(self) -> None:
        """Continue the work of an earlier process."""
        if self._engine.look(list_garbage):
            self.notify()

    def notify(self) -> None:
        """Announce that there may be garbage to delete."""
        self._background.notify()

    def stop(self) -> None:
        """Stop after the current step; `resume` finds the rest."""
        self._background.stop()

    def _work(self) -> None:
        try:
            while not self._collect() and not self._background.stopping.wait(_PAUSE):
                continue
        except (StructableError, SchemaChangedError) as error:
            # The garbage stays recorded, for the next `notify` or `resume`.
            if not self._background.stopping.is_set():
                _log.warning("deleting dropped tables and indexes failed and will be repeated: %s", error)
        except Exception:
            _log.exception("deleting dropped tables and indexes failed unexpectedly and will be repeated")

    def _collect(self) -> bool:
        """Delete all deletable garbage; False if some of it must wait."""
        whole, stopping = True, self._background.stopping
        garbage = self._engine.look(list_garbage)
        for beginning in garbage:
            # With more of it there is no rest: a table may be overwritten faster than its old rows are deleted.
            stopped = resting(stopping) if len(garbage) == 1 else stopping.is_set
            if not self._engine.discard(beginning, stopped):
                whole = False
                continue
            _log.info("deleted a dropped table or index: all keys that begin with %s", beginning.hex())
            # Another process may have deleted the same record.
            with suppress(TransactionConflictError), closing(self._engine.begin(False)) as snapshot:
                self._engine.commit(snapshot, WriteSet(writes={garbage_key(beginning): None}))
        return whole
