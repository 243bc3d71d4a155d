"""Bulk commits are written in chunks; until the last one is written, reads see the state before the commit."""

from __future__ import annotations

import logging

from structable.backends.leveldb.native.database import Database, WriteFailedError
from structable.backends.leveldb.native.logs import sync_logs
from structable.backends.ordered.engine import BulkCommit
from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError

from .commit_nodes import BulkNode, CommitNode
from .commit_versions import CommitVersions
from .database_handle import DatabaseHandle
from .history import CommitHistory
from .snapshot import LocalSnapshot

_log = logging.getLogger("structable.leveldb")


def apply_bulk(handle: DatabaseHandle, history: CommitHistory, versions: CommitVersions, bulk: BulkCommit) -> None:
    """Apply a bulk commit as `Engine.commit_bulk` does; the calling thread holds the right to write."""
    database = handle.healthy_database()
    history.settle()
    epoch = history.epoch
    assert epoch is not None
    raw = database.take()
    latest = LocalSnapshot(raw, database.readers, history.tail, epoch)
    try:
        bulk.check(latest)
        handle.freeze(raw)
        _write(handle, history, versions, database, bulk, latest)
    finally:
        latest.close()


def _write(
    handle: DatabaseHandle,
    history: CommitHistory,
    versions: CommitVersions,
    database: Database,
    bulk: BulkCommit,
    latest: LocalSnapshot,
) -> None:
    version = None if bulk.feed is None else versions.reserve(database, bulk.feed, decided=not bulk.decision)
    decision = bulk.decision if version is None else {**bulk.decision, **version.decision}
    completion = bulk.completion
    try:
        if decision:
            database.write((decision,), True)
    except WriteFailedError as failure:
        error = handle.failed(failure, [decision])
        handle.thaw()
        raise error from failure
    node = BulkNode()
    node.note(bulk.decision)
    synced_before = handle.syncs
    try:
        handle.note_unsynced()
        handle.unsynced = True
        for chunk in bulk.chunks(latest):
            if version is not None and chunk.appends:
                database.write((chunk.changes, version.entries(chunk)), False)
            else:
                database.write((chunk.changes,), False)
            node.note(chunk.changes)
        node.note(completion)
        if version is not None:
            completion = {**completion, **version.completion()}
        sync_logs(handle.path)
        handle.unsynced = False
        database.write((completion,), True)
        if synced_before:
            handle.note_all_synced()
    except BaseException as error:
        # The decision and some of the chunks are durable: reads stay with the state before the decision until the
        # database has been reopened and recovered.
        handle.ailing = StorageUnavailableError(f"a bulk commit failed, and the database must be reopened: {error}")
        _log.error("a bulk commit to %s failed half-way; recovery completes it: %s", handle.path, error)
        # The written chunks count from now on; recovery writes the rest.
        history.unsettled = _ended(node)
        if isinstance(error, Exception):
            raise CommitOutcomeUnknownError(
                "the bulk commit was decided, and writing it failed; the missing rows, if any, are written when the "
                f"database can be written again: {error}"
            ) from error
        raise
    handle.thaw()
    history.unsettled = _ended(node)
    history.settle()


def _ended(node: BulkNode) -> BulkNode:
    """Seal a node, and append an empty one, so that the large node is freed with the last snapshot before it."""
    node.seal()
    node.next = CommitNode()
    return node
