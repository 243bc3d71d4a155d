"""Rolling back a record whose write failed.

After a failed write the record may be in the log, wholly or in part, and reappear when the database is opened. LevelDB
appends nothing after the failure, so cutting the log back to the records before it makes the outcome certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from .disk import cut
from .log import log_files
from .log_format import operations, records

__all__ = ["roll_back"]


def roll_back(folder: Path, batch: Iterable[Mapping[bytes, bytes | None]], *, is_state: bool) -> None:
    """Cut the newest log back to the records before a batch whose write failed; nothing may be written to it any more.

    With `is_state`, the database holds exactly these values already. A complete record of this content then stays: it
    may be an earlier commit's, and is harmless if it is not. Raises `OSError` or `ValueError` if the log cannot be cut;
    the outcome stays unknown.
    """
    files = log_files(folder)
    if not files:
        return
    newest = files[-1]
    content = newest.read_bytes()
    last_start = last_end = 0
    last = b""
    for start, end, record in records(content):
        last_start, last_end, last = start, end, record
    keep = last_end
    wanted = [(key, value) for part in batch for key, value in part.items()]
    if not is_state and last and operations(last) == wanted:
        keep = last_start
    if keep < len(content):
        cut(newest, keep)
