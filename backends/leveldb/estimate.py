"""The number of pairs in an interval, from the sizes of table files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, pairwise

from structable.backends.ordered.engine import Pair

from .division import split_points
from .folder import Folder
from .splits import checkpointed

__all__ = ["estimate"]

_SPOTS = 8
_SAMPLE = 500


def estimate(folder: Folder, checkpoint: Callable[[str], None], begin: bytes, end: bytes, first: Sequence[Pair]) -> int:
    """Return about how many pairs an interval has, see `SplitSource.estimate`; the arguments are as for `plan_splits`.

    A checkpoint is made and opened for it, since the database's own sizes lack what is in its log.
    """
    with checkpointed(folder, checkpoint) as database:
        total = database.sizes([(begin, end)])[0]
        sampled = [(begin, first[-1][0], len(first))]
        points = split_points(database, first[-1][0] + b"\0", end, _SPOTS)
        for low, high in pairwise([*points, end]):
            if keys := [key for key, _ in islice(database.scan(low, high, fill_cache=False), _SAMPLE)]:
                sampled.append((low, keys[-1], len(keys)))
        size = sum(database.sizes([(low, high) for low, high, _ in sampled]))
        count = sum(keys for _, _, keys in sampled)
        return count * total // size if size else count
