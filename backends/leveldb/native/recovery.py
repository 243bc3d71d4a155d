"""Repair of a database's files after a crash that LevelDB cannot open, or would open with a gap.

A record that was never acknowledged may have reached the disk in part: cut off, or with holes in it. It is a torn tail,
and is cut off the log, or the manifest. A later record proves that a record was acknowledged, since a log is synced
before the next record is written to it. For commits without a sync, `note_unsynced` keeps a file `unsynced` next to the
logs: after the offset in it a crash of the machine may leave gaps, and the log is cut at the first of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from structable.spi import DataCorruptionError

from .disk import cut, replace_durably, sync_folder
from .logs import begins_intact_record, first_tear, log_files, records, sequence
from .manifest import manifest_state

UNSYNCED = "unsynced"


def note_unsynced(folder: Path) -> None:
    """Record durably that records from here on are not synced one by one."""
    newest = log_files(folder)[-1]
    replace_durably(folder / UNSYNCED, json.dumps([int(newest.stem), newest.stat().st_size]).encode())


def all_synced(folder: Path) -> None:
    """Record that everything in the logs is durable."""
    try:
        (folder / UNSYNCED).unlink()
    except FileNotFoundError:
        return
    sync_folder(folder)


def repair_after_crash(folder: Path, *, verify: bool) -> bool:
    """Cut off records that were never acknowledged and cannot be read, and return whether there were any.

    The database must not be open. `verify` verifies checksums as well, after LevelDB has refused the database. Raises
    `DataCorruptionError` if acknowledged records are missing.
    """
    try:
        manifest = folder / (folder / "CURRENT").read_text().strip()
        content = manifest.read_bytes()
        tear = first_tear(content) if verify else len(content)
        repaired = 0 < tear < len(content) and not begins_intact_record(content, tear)
        if repaired:
            cut(manifest, tear)
        state = manifest_state(content[:tear])
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, IndexError):
        return False  # LevelDB reports the damage
    logs = [log for log in log_files(folder) if int(log.stem) >= state.log]
    unsynced = _unsynced_from(folder)
    expected, exact = state.sequence + 1, False
    for position, log in enumerate(logs):
        content = log.read_bytes()
        tear, gap = first_tear(content) if verify else len(content), False
        kept = 0
        for start, end, record in records(content[:tear] if verify else content):
            first, following = sequence(record)
            if first != expected if exact else first > expected:
                tear, gap = start, True
                break
            kept, expected, exact = end, following, True
        if not (gap or verify) and any(content[kept:]):
            tear = kept
        if tear == len(content):
            continue
        acknowledged = gap or begins_intact_record(content, tear) or any(map(_holds_record, logs[position + 1 :]))
        if acknowledged and (unsynced is None or (int(log.stem), tear) < unsynced):
            raise DataCorruptionError(f"the log {log} is damaged at byte {tear:,}, and intact records follow")
        if gap or acknowledged or verify:
            for later in reversed(logs[position + 1 :]):
                cut(later, 0)
            cut(log, tear)
            return True
    return repaired


def _holds_record(log: Path) -> bool:
    return next(records(log.read_bytes()), None) is not None


def _unsynced_from(folder: Path) -> tuple[int, int] | None:
    try:
        number, size = json.loads((folder / UNSYNCED).read_bytes())
        return int(number), int(size)
    except (FileNotFoundError, ValueError, TypeError):
        return None
