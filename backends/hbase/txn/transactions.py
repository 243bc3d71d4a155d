"""`Transactions`: begins and commits the transactions of a storage."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from structable.backends.hbase.layout import CLOCK, FAMILY, TICK, Layout
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import get_row
from structable.backends.ordered.engine import BulkCommit, Upcalls, WriteSet
from structable.spi import StorageUnavailableError

from .bulk import BulkCommitter
from .commit import Committer
from .context import PrefixContext, ProtocolSettings
from .feed_reader import FeedReader
from .finaliser import Finaliser
from .intents import base_of
from .reader import CommittedReader
from .session import ProcessSession
from .sessionless import NoSession, SessionlessSnapshot
from .snapshot import HBaseSnapshot
from .status_table import StatusTable
from .visibility import Visibility

_LONGEST_KNOWN = 5.0
"""The maximum number of seconds for which a decided, unfinalised status is cached."""

_log = logging.getLogger("structable.hbase")


class Transactions:
    """The transactions of one process on one prefix."""

    def __init__(
        self, gateway: Gateway, layout: Layout, settings: ProtocolSettings, upcalls: Callable[[], Upcalls]
    ) -> None:
        status_table = StatusTable(gateway, layout, min(_LONGEST_KNOWN, settings.late_writes / 2))
        self.context = context = PrefixContext(gateway, layout, settings, upcalls, status_table)
        self.visibility = Visibility(context)
        self.reader = CommittedReader(context, self.visibility)
        self.feeds = FeedReader(context, self.reader)
        self.finaliser = Finaliser(context)
        self._gateway = gateway
        self._layout = layout
        self._settings = settings
        self.committer = Committer(context, self.finaliser)
        self._bulk = BulkCommitter(context)
        self._process = os.getpid()
        self.current_session: ProcessSession | None = None
        """The session, even if it has been lost; None before the start and after the end."""
        self._renewing = threading.Lock()

    def start(self) -> None:
        self.current_session = self._new_session()

    def _new_session(self) -> ProcessSession:
        if self._settings.read_only:
            return NoSession(self._layout)
        return ProcessSession(self._gateway, self._layout, self._settings.session_timeout)

    @property
    def session(self) -> ProcessSession:
        """The session of this process; a new one if other processes have ended the last."""
        session = self.current_session
        if session is not None and session.over and os.getpid() == self._process:
            with self._renewing:
                session = self.current_session
                if session is not None and session.over:
                    session = self.current_session = self._new_session()
        if session is None or os.getpid() != self._process:
            raise StorageUnavailableError(
                "the HBase store was not started, was closed, or belongs to the process that forked this one"
            )
        return session

    def begin(self) -> HBaseSnapshot:
        session = self.session
        if self._settings.read_only:
            snapshot: HBaseSnapshot = SessionlessSnapshot(self.reader, self.feeds, session, self.context)
        else:
            snapshot = HBaseSnapshot(self.reader, self.feeds, session)
        # Held before the clock is read: the janitor reads the clock before it reads the sessions.
        session.hold(snapshot.holder, session.clock)
        cells = self._gateway.call(get_row(self._layout.transactions, CLOCK, [TICK, FAMILY]))
        snapshot.timestamp = timestamp = int.from_bytes(cells.pop(TICK)[0])
        session.hold(snapshot.holder, timestamp)
        session.clock = max(session.clock, timestamp)
        if len(cells) > 1:
            states = self.visibility.states(self._layout.transactions, [(CLOCK, cells)], timestamp)
            snapshot.epoch = states[CLOCK].version
        else:
            snapshot.epoch = base_of(cells).version
        session.require_alive()
        return snapshot

    def commit(self, snapshot: HBaseSnapshot, writes: WriteSet) -> None:
        self.committer.commit(snapshot.session, snapshot.timestamp, writes)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        self._bulk.commit(self.session, bulk)

    def close(self, timeout: float) -> None:
        """End the session, waiting for HBase for at most `timeout` seconds; closes the gateway."""
        session, self.current_session = self.current_session, None
        if session is None:
            return
        # Other processes notice the silence of a session that could not be ended.
        leaving = threading.Thread(target=_end, args=(session,), name="structable-leaving", daemon=True)
        leaving.start()
        leaving.join(timeout)
        self._gateway.close()
        leaving.join(timeout)


def _end(session: ProcessSession) -> None:
    with suppress(StorageUnavailableError):
        session.close()
