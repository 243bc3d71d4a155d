"""Progress: log files and their checkpoints, and the positions of subscribers in topics of other systems."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from structable.datasets.errors import StaleGenerationError
from structable.datasets.identifiers import check_name, check_names
from structable.datasets.tables.platform import (
    EXTERNAL_POSITIONS,
    LOG_CHECKPOINTS,
    LOG_FILES,
    ExternalPosition,
    LogCheckpoint,
    LogFile,
)
from structable.spi import Range, col

from .context import Dataset


class LogFiles(Dataset):
    """The datasets `log_files` and `log_checkpoints`."""

    def add(self, context: str, event: dt.datetime, created: dt.datetime, *, file: str) -> LogFile:
        """Record a file that was created at `created` and whose first event has the time `event`."""
        made_at = self._context.now(created)
        made = LogFile(
            context=check_name(context, "context"),
            event=self._context.now(event),
            created=made_at,
            file=file,
            created_on=made_at.date(),
        )
        self._context.records(LOG_FILES).put(made)
        return made

    def files(self, context: str, begin: dt.datetime, end: dt.datetime) -> list[LogFile]:
        """Return the files that may hold events of `begin <= time < end`, oldest first.

        The last file that begins before `begin` is among them.
        """
        begin, end = self._context.now(begin), self._context.now(end)
        files = self._context.records(LOG_FILES)
        with files.scan(Range((context,), (context, begin)), reverse=True, limit=1) as found:
            earlier = list(found)
        with files.scan(Range((context, begin), (context, end))) as found:
            return earlier + list(found)

    def expired(self, before: dt.date, limit: int = 1000) -> list[LogFile]:
        """Return at most `limit` files created before a day, oldest day first.

        Delete the files themselves, and then `forget` these.
        """
        with self._context.records(LOG_FILES).scan(
            where=col("created_on") < before, order_by="created_on", limit=limit
        ) as found:
            return list(found)

    def forget(self, files: Iterable[LogFile]) -> None:
        """Forget files that were deleted."""
        keys = [(one.context, one.event, one.created) for one in files]
        self._context.records(LOG_FILES).table.delete_many(keys)

    def set_checkpoint(self, prefix: str, partition: int, checkpoint: object, *, at: dt.datetime | None = None) -> None:
        """Record how far the logs of a partition were processed."""
        self._context.records(LOG_CHECKPOINTS).put(
            LogCheckpoint(
                prefix=check_name(prefix, "prefix"),
                partition=partition,
                checkpoint=checkpoint,
                updated=self._context.now(at),
            )
        )

    def checkpoint(self, prefix: str, partition: int) -> LogCheckpoint | None:
        """Return the checkpoint of a partition, or None."""
        return self._context.records(LOG_CHECKPOINTS).get(prefix, partition)


class ExternalPositions(Dataset):
    """The dataset `external_positions`."""

    def get(self, topic: str, subscriber: str) -> str | None:
        """Return the position, or None."""
        found = self._context.records(EXTERNAL_POSITIONS).get(topic, subscriber)
        return None if found is None else found.position

    def put(
        self,
        topic: str,
        subscriber: str,
        position: str,
        *,
        expected: str | None = None,
        at: dt.datetime | None = None,
    ) -> None:
        """Record a position, in the transaction that consumes the messages.

        Parameters
        ----------
        expected : str, optional
            The position from which the messages were read.

        Raises
        ------
        StaleGenerationError
            If the stored position differs from the expected one: another consumer was faster.
        """
        check_names(topic=topic, subscriber=subscriber)
        positions = self._context.records(EXTERNAL_POSITIONS)
        made = ExternalPosition(topic=topic, subscriber=subscriber, position=position, updated=self._context.now(at))
        if expected is not None:
            stored = self.get(topic, subscriber)
            if stored != expected:
                raise StaleGenerationError(expected, stored)
        positions.put(made)
