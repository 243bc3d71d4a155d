"""Plans: checkpoints, divided for readers in many processes; and the number of pairs in an interval.

    checkpoints/<plan>/hold      locked with flock by the planner, as long as the plan is held
    checkpoints/<plan>/state     the checkpoint
    checkpoints/<plan>/reader-*  a copy of each reading process, because LevelDB locks each database that it opens

A plan ends with the process that made it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from structable.backends.base.shared_resources import SharedResources
from structable.backends.ordered.engine import EngineSnapshot, Pair, RawRows, SharedSplits, SplitPlan
from structable.backends.ordered.scan.intervals import intersection
from structable.spi import StorageUnavailableError, StructableError, TransactionClosedError

from .division import split_points
from .folder import DatabaseFolder
from .native.checkpoint import link_copy
from .native.database import Database, DatabaseOptions
from .permissions import open_private
from .protocol import messages
from .route import VERSION_KEY, unpack_stamp

# A log that is opened becomes one table file for each buffer, and several files would be merged at once.
_OPTIONS = DatabaseOptions(write_buffer=16 << 20, block_cache=8 << 20)
_UNFINISHED_SECONDS = 600.0
_ESTIMATED_PARTS = 16
_SAMPLE_BYTES = 64 << 10
"""The size of a sample: several of the blocks in which LevelDB reports sizes."""
_MOST_SAMPLED = 5_000
_log = logging.getLogger("structable.leveldb")


def plan_splits(
    folder: DatabaseFolder,
    checkpoint: Callable[[str], None],
    epoch: Callable[[], int],
    begin: bytes,
    end: bytes,
    count: int,
) -> SplitPlan:
    """Make a checkpoint and divide it into about `count` splits, as `Engine.plan_splits` does.

    `checkpoint` makes the checkpoint of a plan, and `epoch` returns the number of the newest schema change.
    """
    plan, release = _made(folder, checkpoint)
    try:
        # Opening it moves the rows of its log to a table file, once for all readers, so that sizes include them.
        with contextlib.closing(Database(folder.checkpoint(plan), _OPTIONS, create=False)) as database:
            bounds = [begin, *split_points(database, begin, end, count), end]
            version, _ = unpack_stamp(database.get(VERSION_KEY))
    except BaseException:
        release()
        raise
    states = _states(plan, bounds)
    # Read after the checkpoint, so that the epoch includes every schema change in the checkpoint.
    return SplitPlan(states, release, epoch(), version)


def _made(folder: DatabaseFolder, checkpoint: Callable[[str], None]) -> tuple[str, Release]:
    """Make the checkpoint of a new plan; return the plan's name, and the function that removes it."""
    plan, release = hold_plan(folder)
    try:
        checkpoint(plan)
    except BaseException:
        release()
        raise
    return plan, release


def _states(plan: str, bounds: list[bytes]) -> list[bytes]:
    return [messages.pack_texts([plan.encode(), low, high]) for low, high in pairwise(bounds)]


class SharedCheckpoint(SharedSplits):
    """A checkpoint that several plans divide; the arguments are as for `plan_splits`.

    Its database is closed once it is made. Plans read this process's copy of it, as readers of splits do, because
    readers may be copying the files of the checkpoint.
    """

    def __init__(
        self, folder: DatabaseFolder, checkpoint: Callable[[str], None], *, is_elsewhere: bool = False
    ) -> None:
        self._folder = folder
        self._is_elsewhere = is_elsewhere
        self._plan, self._release = _made(folder, checkpoint)
        path = folder.checkpoint(self._plan)
        try:
            with contextlib.closing(Database(path, _OPTIONS, create=False)) as database:
                self._version, _ = unpack_stamp(database.get(VERSION_KEY))
        except BaseException:
            self._release()
            raise
        self.snapshot = _CheckpointSnapshot(path)

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        with _opened(self._folder.checkpoint(self._plan), None) as database:
            states = _states(self._plan, [begin, *split_points(database, begin, end, count), end])
        if self._is_elsewhere:
            states = elsewhere(states, self._folder)
        # The checkpoint stays for the other plans.
        return SplitPlan(states, lambda: None, self.snapshot.epoch, self._version)

    def release(self) -> None:
        self._release()


class _CheckpointSnapshot(EngineSnapshot):
    """The state in a checkpoint, valid while the checkpoint exists."""

    epoch = 0

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: bytes) -> bytes | None:
        return self.get_many((key,))[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with _opened(self._path, None) as database:
            return [database.get(key) for key in keys]

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        with _opened(self._path, None) as database:
            yield from database.scan(begin, end, reverse=reverse, fill_cache=False)

    def close(self) -> None:
        """Do nothing: the checkpoint is released by its owner."""


def estimate(folder: DatabaseFolder, checkpoint: Callable[[str], None], begin: bytes, end: bytes) -> tuple[int, int]:
    """Return the approximate number of pairs in an interval, and their bytes; the arguments are as for `plan_splits`.

    A checkpoint is made and opened for it, since the database's own sizes leave out its log. Each of several parts of
    about equal sizes is estimated from its first pairs: rows may be small in one place and large in another.
    """
    plan, release = _made(folder, checkpoint)
    try:
        with contextlib.closing(Database(folder.checkpoint(plan), _OPTIONS, create=False)) as database:
            bounds = [begin, *split_points(database, begin, end, _ESTIMATED_PARTS), end]
            parts = [_sampled(database, low, high) for low, high in pairwise(bounds)]
    finally:
        release()
    return sum(pairs for pairs, _ in parts), sum(size for _, size in parts)


def _sampled(database: Database, begin: bytes, end: bytes) -> tuple[int, int]:
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


def elsewhere(states: list[bytes], folder: DatabaseFolder) -> list[bytes]:
    """Return the states of a plan whose checkpoint is in another folder than the database."""
    where = os.fsencode(folder.path)
    return [messages.pack_texts([state, where]) for state in states]


def read_split(
    folder: DatabaseFolder,
    state: bytes,
    intervals: Sequence[tuple[bytes, bytes]] | None = None,
    *,
    aside: DatabaseFolder | None = None,
) -> Iterator[Pair]:
    """Yield the pairs of a split, as `Engine.read_split` does.

    This process's copy goes into the folder `aside`, or next to the plan's checkpoint.
    """
    state_path, begin, end, aside = _located(folder, state, aside)
    with _opened(state_path, aside) as database:
        for low, high in [(begin, end)] if intervals is None else intersection([(begin, end)], intervals):
            yield from database.scan(low, high, fill_cache=False)


def read_rows(
    folder: DatabaseFolder,
    state: bytes,
    intervals: Sequence[tuple[bytes, bytes]] | None = None,
    *,
    keyed: bool,
    aside: DatabaseFolder | None = None,
) -> Iterator[RawRows]:
    """Yield the pairs of a split many at once, as `Engine.read_rows` does; the copy goes where `read_split` puts it."""
    state_path, begin, end, aside = _located(folder, state, aside)
    with _opened(state_path, aside) as database:
        for low, high in [(begin, end)] if intervals is None else intersection([(begin, end)], intervals):
            yield from database.scan_rows(low, high, keyed=keyed)


def read_planned(
    folder: DatabaseFolder, state: bytes, keys: Sequence[bytes], *, aside: DatabaseFolder | None = None
) -> list[bytes | None]:
    """Return the values of keys, as `Engine.read_planned` does."""
    state_path, _, _, aside = _located(folder, state, aside)
    with _opened(state_path, aside) as database:
        return [database.get(key) for key in keys]


def _located(
    folder: DatabaseFolder, state: bytes, aside: DatabaseFolder | None
) -> tuple[Path, bytes, bytes, DatabaseFolder | None]:
    """Return a split's checkpoint and interval, and the folder for this process's copy."""
    parts, _ = messages.unpack_present(state, 0)
    if len(parts) == 2:
        [state, where] = parts
        folder, aside = DatabaseFolder(os.fsdecode(where)), None
        parts, _ = messages.unpack_present(state, 0)
    [plan, begin, end] = parts
    return folder.checkpoint(plan.decode()), begin, end, aside


@contextlib.contextmanager
def _opened(state_path: Path, aside: DatabaseFolder | None) -> Iterator[Database]:
    try:
        os.stat(state_path)  # this process may still have its copy of a plan that was closed
        with _READERS.using(state_path, partial(_OpenCheckpoint, state_path, aside)) as reader:
            yield reader.database
    except (StructableError, OSError) as error:
        if not state_path.exists():
            raise TransactionClosedError("the plan of this split was closed, and its snapshot with it") from error
        if isinstance(error, StructableError):
            raise
        raise StorageUnavailableError(f"the checkpoint {state_path} cannot be read: {error}") from error


def sweep_plans(folder: DatabaseFolder) -> None:
    """Remove the checkpoints of processes that have ended without releasing their plans."""
    try:
        plans = list(folder.checkpoints.iterdir())
    except OSError:
        return
    for plan in plans:
        try:
            hold = open_private(plan / "hold", os.O_RDWR)
        except FileNotFoundError:
            with contextlib.suppress(OSError):  # another process removes it
                if time.time() - plan.stat().st_mtime > _UNFINISHED_SECONDS:
                    _remove(plan)
            continue
        except OSError:
            continue  # another user's
        try:
            fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(plan)
            _log.info("removed the checkpoint %s of a process that has ended", plan)
        except OSError:
            pass  # it is held
        finally:
            os.close(hold)


def hold_plan(folder: DatabaseFolder) -> tuple[str, Release]:
    """Make the folder of a plan, and lock it, so that no process sweeps it while this one lives; sweep the others.

    Returns the plan's name, and the function that removes the folder.
    """
    sweep_plans(folder)
    while True:
        plan = uuid.uuid4().hex
        path = folder.checkpoints / plan
        try:
            path.mkdir(mode=0o700)
            hold = open_private(path / "hold", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except OSError as error:
            raise StorageUnavailableError(f"a checkpoint cannot be made in {folder.checkpoints}: {error}") from error
        with contextlib.suppress(OSError):
            fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (path / "hold").exists():  # otherwise another process swept it before it was locked
                _HOLDS.add(hold)
                return plan, Release(path, hold)
        os.close(hold)


def _remove(plan: Path) -> None:
    """Remove the folder of a plan, its checkpoint first and at once: a reader finds all of it, or none."""
    with contextlib.suppress(OSError):
        os.rename(plan / "state", plan / "removed")
    shutil.rmtree(plan, ignore_errors=True)


class Release:
    """Removes the folder of a plan and this process's copy of it, once, and only in the process that made it."""

    def __init__(self, path: Path, hold: int) -> None:
        self._path = path
        self._hold: int | None = hold
        self._process = os.getpid()

    def __call__(self) -> None:
        hold, self._hold = self._hold, None
        if hold is None or os.getpid() != self._process:
            return
        _READERS.drop(self._path / "state")
        _remove(self._path)
        _HOLDS.discard(hold)
        os.close(hold)


class _OpenCheckpoint:
    """A copy of a checkpoint, open in this process."""

    def __init__(self, state: Path, aside: DatabaseFolder | None) -> None:
        if aside is None:
            self.path = state.parent / f"reader-{uuid.uuid4().hex}"
            self._remove: Callable[[], None] = partial(shutil.rmtree, self.path, ignore_errors=True)
        else:
            name, self._remove = hold_plan(aside)
            self.path = aside.checkpoint(name)
        try:
            self.path.mkdir(mode=0o700)
            link_copy(state, self.path)
            self.database = Database(self.path, _OPTIONS, create=False)
        except BaseException:
            self._remove()
            raise

    def close(self) -> None:
        self.database.close()
        self._remove()


_READERS: SharedResources[Path, _OpenCheckpoint] = SharedResources(
    _OpenCheckpoint.close, lambda reader: reader.database.abandon()
)
"""The copies of this process, by their checkpoints: shared by the splits of a plan."""
_HOLDS: set[int] = set()


def _after_fork() -> None:
    _READERS.after_fork()
    while _HOLDS:
        os.close(_HOLDS.pop())  # a child must not hold its parent's plans


os.register_at_fork(after_in_child=_after_fork)
