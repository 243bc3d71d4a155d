"""The number of pairs in an interval, from the sizes of table files."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from .division import split_points
from .folder import Folder
from .native.database import Database
from .splits import checkpointed

__all__ = ["estimate"]

_PARTS = 16
_SAMPLE_BYTES = 64 << 10
"""A sample has several of the blocks in which LevelDB reports sizes."""
_MOST_SAMPLED = 5_000


def estimate(folder: Folder, checkpoint: Callable[[str], None], begin: bytes, end: bytes) -> tuple[int, int]:
    """Return about how many pairs an interval has, and their bytes; the arguments are as for `plan_splits`.

    A checkpoint is made and opened for it, since the database's own sizes lack what is in its log. Parts of about equal
    sizes have as many pairs as their first ones are dense: rows may be small in one place and large in another.
    """
    with checkpointed(folder, checkpoint) as database:
        bounds = [begin, *split_points(database, begin, end, _PARTS), end]
        parts = [_part(database, low, high) for low, high in pairwise(bounds)]
    return sum(pairs for pairs, _ in parts), sum(size for _, size in parts)


def _part(database: Database, begin: bytes, end: bytes) -> tuple[int, int]:
    keys: list[bytes] = []
    size = 0
    for key, value in database.scan(begin, end, fill_cache=False):
        keys.append(key)
        size += len(key) + len(value)
        if size >= _SAMPLE_BYTES or len(keys) == _MOST_SAMPLED:
            sampled, whole = database.sizes([(keys[0], key), (keys[0], end)])
            more = max(1.0, whole / max(1, sampled))
            return int(len(keys) * more), int(size * more)
    return len(keys), size
