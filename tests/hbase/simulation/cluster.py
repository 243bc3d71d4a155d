"""The state that all clients share: table, counter and transaction records, by calls that fail or arrive late."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

from .cells import Cells, CompactedCells, Intent, Placed, Version, View

Result = TypeVar("Result")
Steps: TypeAlias = Generator[None, None, Result]
"""A part of a client. It stops before every call on the cluster, where any other client may run."""


class Pending(NamedTuple):
    """The status of a transaction that is not decided; `minimum` is the least timestamp it may commit at."""

    start: int
    minimum: int
    is_bulk: bool


class Committed(NamedTuple):
    """The status of a transaction that is committed, and whether all its rows are finalised."""

    at: int
    is_finalised: bool


class Aborted(NamedTuple):
    """The status of a transaction that will never commit, or never again.

    A record that was absent is `buried`: its transaction never began, or was finished and its record removed. A reader
    that read a row before must read it again.
    """

    is_buried: bool = False


Status: TypeAlias = Pending | Committed | Aborted


def is_finished(status: Status) -> bool:
    """Whether an intent with this status is a stray: a read of its row now already sees its effect."""
    return status.is_finalised if isinstance(status, Committed) else isinstance(status, Aborted) and status.is_buried


class Listed(NamedTuple):
    """The rows that a transaction writes, None for any, and its commit timestamp, 0 while it is open."""

    rows: frozenset[str] | None
    cts: int


class WriteList(NamedTuple):
    """The cell with a process's recent writes: all that it did not commit at `floor` or below.

    Its number is the cell's timestamp.
    """

    number: int
    floor: int
    listed: tuple[Listed, ...]


class Mode(Enum):
    """The isolation levels."""

    SNAPSHOT = auto()
    SERIALIZABLE = auto()


class Bug(Enum):
    """Rules that a planted bug breaks; each must be found by the checker."""

    READER_DOES_NOT_PUSH = auto()
    BURIED_IS_ABORTED = auto()
    ABSENT_STATUS_IS_IGNORED = auto()
    FINALISED_INTENT_COUNTS = auto()
    NO_READ_BACK = auto()
    COMMIT_TIMESTAMPS_FROM_RANGES = auto()
    LOST_REPLY_IS_AN_ABORT = auto()
    READS_ARE_NOT_VALIDATED = auto()
    MARKERS_ARE_NOT_VALIDATED = auto()
    MARKERS_ARE_NOT_VALIDATED_AGAIN = auto()
    INTENT_DELETED_BEFORE_PUT = auto()
    MERGE_DOES_NOT_PUSH = auto()
    MERGE_FORGETS_LAST_WRITE = auto()
    INCREMENT_CREATES_NO_INDEX_ENTRY = auto()
    BOUND_IGNORES_PENDING = auto()
    BOUND_IGNORES_ORDER = auto()
    LOCK_GOES_UNNOTICED = auto()
    BULK_TRUSTS_A_LOCK = auto()
    BULK_READS_BEFORE_ITS_LOCK = auto()
    BULK_KEEPS_PENDING = auto()
    BULK_INTENT_AT_LOCK = auto()
    BLIND_READ_IN_ONE_STEP = auto()
    COLLECTS_OUT_OF_ORDER = auto()
    COLLECTS_BELOW_FLOORS = auto()
    COLLECTS_AT_ONCE = auto()
    FINALISER_DOES_NOT_LOOK_AGAIN = auto()
    LANE_IS_LEFT_TOO_EARLY = auto()
    LANE_HIDES_INTENTS = auto()
    FINALISER_TAKES_ANY_INTENT_OF_A_LANE = auto()
    BATCH_HAS_ONE_BASE = auto()
    BATCH_READS_ITS_BASES_FIRST = auto()
    WRITES_ARE_NOT_LISTED = auto()
    JOB_IS_NOT_LISTED = auto()
    LISTS_ARE_READ_FIRST = auto()
    RECORD_OVERWRITES = auto()
    MARKER_IS_TAKEN_FOR_UNCHANGED = auto()
    UNKNOWN_IS_NOT_LISTED = auto()
    OLDER_LIST_WINS = auto()
    LIST_LEAVES_OUT_UNDECIDED = auto()
    LIST_HAS_NO_FLOOR = auto()
    OWN_LIST_IS_IGNORED = auto()
    LIST_IS_REMOVED_TOO_EARLY = auto()
    LIST_IS_REMOVED_WITH_NEWER = auto()
    MARKED_BEFORE_PLACED = auto()
    ENTRIES_READ_BEFORE_GATE = auto()
    FEED_READER_DOES_NOT_PUSH = auto()
    GATE_ENTERED_AFTER_DRAWING = auto()
    GATE_EMPTIED_BEFORE_ENTRIES = auto()
    FINALISED_BEFORE_ENTRIES = auto()
    GATE_IS_FORGOTTEN_TOO_EARLY = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Which simulator this is: its cells, how long calls linger, and how much goes wrong.

    Time is counted in steps of the scheduler. A call that was sent takes effect at most `latest` later, a finaliser
    acts on a status at most `fresh` old, and nothing is collected before ``latest + fresh`` after its finalisation. Who
    stalls does so for `patience` times as long. In a `hot` world nearly all is increments of one row, and in one
    without `feeds` no commit appends to a change feed.
    """

    cells: type[Cells]
    collects: bool
    clients: int
    transactions: int
    latest: int
    fresh: int
    late_cas: float
    lost_cas: float
    duplicates: float
    crashes: float
    stalls: float
    hot: bool = False
    patience: int = 2
    feeds: bool = True


RACES = World(
    cells=CompactedCells,
    collects=False,
    clients=5,
    transactions=14,
    latest=500,
    fresh=10**9,
    late_cas=0.04,
    lost_cas=0.05,
    duplicates=0.05,
    crashes=0.0006,
    stalls=0.0005,
)
"""The first simulator: many clients on few rows; a record is removed as soon as its rows are finalised."""

STORAGE = World(
    cells=Cells,
    collects=True,
    clients=4,
    transactions=20,
    latest=120,
    fresh=60,
    late_cas=0.04,
    lost_cas=0.04,
    duplicates=0.1,
    crashes=0.0005,
    stalls=0.003,
)
"""The second simulator: tombstones, compaction, sessions with floors, and garbage collection."""

PATIENT = replace(STORAGE, patience=6)
"""The same with readers that stall for so long that their versions could be collected."""

UNFED = replace(PATIENT, feeds=False)
"""The same without feeds: more happens to the lists."""

HOT = replace(STORAGE, latest=150, duplicates=0.2, stalls=0.008, hot=True)
"""The second simulator on one hot row: its owners finalise many increments at once, beside readers that stall."""


UNCERTAIN = replace(STORAGE, clients=6, late_cas=0.5)
"""The second simulator with decisions of which half come late and unanswered, so that many clients give up on them."""


class Cluster:
    """The state on the servers. Every method that is a call is a generator, and stops once before it takes effect."""

    def __init__(self, world: World, random: Random, bug: Bug | None) -> None:
        self.world = world
        self.random = random
        self.bug = bug
        self.cells = world.cells()
        self.now = 0
        self.counter = 1  # a timestamp of 0 is below every tombstone
        self.statuses: dict[int, Status] = {}
        self.decided: dict[int, int] = {}  # by transaction, its commit timestamp, also after its record was removed
        self.floors: dict[int, int] = {}  # by session
        self.lanes: dict[int, int] = {}  # by transaction
        self.safe = 0
        self.lists: dict[int, WriteList] = {}  # by process
        self.removed_lists: dict[int, int] = {}  # by process, up to which number
        self.processes: dict[int, int] = {}  # by transaction
        self.running: set[int] = set()  # processes
        self._removed: set[int] = set()  # transactions whose records were
        self._late: list[tuple[int, int, Callable[[], object]]] = []
        self._sequence = 0

    def later(self, effect: Callable[[], object]) -> None:
        self._sequence += 1
        due = self.now + self.random.randint(1, self.world.latest)
        heapq.heappush(self._late, (due, self._sequence, effect))

    def repeatable(self, effect: Callable[[], object]) -> Steps[None]:
        """Make a call that may be sent twice: then it takes effect once more, and late."""
        yield
        effect()
        if self.random.random() < self.world.duplicates:
            self.later(effect)

    def tick(self) -> None:
        """Let time pass: calls that are due take effect."""
        self.now += 1
        while self._late and self._late[0][0] <= self.now:
            heapq.heappop(self._late)[2]()

    def calm(self) -> None:
        """Let all calls under way take effect."""
        while self._late:
            heapq.heappop(self._late)[2]()

    # Calls on the table

    def get(self, row: str, up_to: int | None = None) -> Steps[View]:
        yield
        return self.cells.get(row, up_to)

    def column_of(self, tx: int) -> int:
        """The column of a transaction's intents: that of its lane if it has one."""
        return self.lanes.get(tx, tx)

    def put(self, row: str, tx: int, at: int, value: Version | Intent) -> Steps[None]:
        """Put a version, for VERSIONS, or the intent of a transaction."""
        column, cell = self.column_of(tx), value if isinstance(value, Version) else Placed(tx, value)
        yield from self.repeatable(lambda: self.cells.put(row, column, at, cell))

    def delete(self, row: str, tx: int, up_to: int) -> Steps[None]:
        """Delete what `put` has put, up to a timestamp."""
        column = self.column_of(tx)
        yield from self.repeatable(lambda: self.cells.delete(row, column, up_to))

    # Calls on the system table

    def read_counter(self) -> Steps[int]:
        yield
        return self.counter

    def draw(self) -> Steps[int]:
        """A commit timestamp. A lost reply leaves a gap."""
        yield
        self.counter += 2 if self.random.random() < 0.05 else 1
        return self.counter

    def put_list(self, process: int, written: WriteList) -> Steps[None]:
        """Put a process's list of recent writes; the newer list wins in either order of arrival."""
        yield from self.repeatable(lambda: self._put_list(process, written))

    def _put_list(self, process: int, written: WriteList) -> None:
        present = self.lists.get(process)
        newest = max(self.removed_lists.get(process, 0), present.number if present is not None else 0)
        if written.number > newest or self.bug is Bug.OLDER_LIST_WINS:
            self.lists[process] = written

    def read_lists(self) -> Steps[dict[int, WriteList]]:
        """The lists of all processes: they are in one row."""
        yield
        return dict(self.lists)

    def remove_list(self, process: int, up_to: int) -> Steps[None]:
        yield
        self.removed_lists[process] = max(self.removed_lists.get(process, 0), up_to)
        if process in self.lists and self.lists[process].number <= up_to:
            del self.lists[process]

    def scan(self) -> Steps[list[tuple[int, Status]]]:
        """All transaction records."""
        yield
        return list(self.statuses.items())

    def status(self, tx: int) -> Steps[Status | None]:
        yield
        return self.statuses.get(tx)

    def remove(self, tx: int) -> Steps[None]:
        yield
        self.statuses.pop(tx, None)
        self._removed.add(tx)

    def _swap(self, tx: int, expected: Status | None, new: Status) -> bool:
        if self.statuses.get(tx) != expected:
            return False
        self.statuses[tx] = new
        if isinstance(new, Committed):
            self.decided.setdefault(tx, new.at)
        return True

    def send_cas(self, tx: int, expected: Status | None, new: Status) -> Steps[bool | None]:
        """Compare and set without a second look: None is "no reply", and the call may take effect later."""
        yield
        chance = self.random.random()
        if chance < self.world.late_cas:
            self.later(lambda: self._swap(tx, expected, new))
            return None
        done = self._swap(tx, expected, new)
        return None if chance < self.world.late_cas + self.world.lost_cas else done

    def put_record(self, tx: int, status: Pending) -> Steps[None]:
        """Put a record at a timestamp below all others: where there is one already, nothing changes.

        Where one was removed, the tombstone hides it, unless that was so long ago that it may have been compacted away.
        """
        yield from self.repeatable(lambda: self._put_record(tx, status))

    def _put_record(self, tx: int, status: Pending) -> None:
        is_hidden = tx in self.statuses or (tx in self._removed and not self.world.collects)
        if not is_hidden or self.bug is Bug.RECORD_OVERWRITES:
            self.statuses[tx] = status

    def mark(self, tx: int, status: Committed) -> Steps[None]:
        """Put the record of a committed transaction once more, as finalised. It may bring it back after its removal."""
        yield from self.repeatable(lambda: self.statuses.update({tx: status._replace(is_finalised=True)}))

    def cas(self, tx: int, expected: Status | None, new: Status) -> Steps[bool | None]:
        """Compare and set; after a failure read the cell, as the gateway may have sent the call twice."""
        done = yield from self.send_cas(tx, expected, new)
        if done:
            return True
        current = yield from self.status(tx)
        return True if current == new else done

    def abort(self, tx: int) -> Steps[Status | None]:
        """Decide a transaction that is still open: the status it has in the end."""
        while True:
            status = yield from self.status(tx)
            if not isinstance(status, Pending):
                return status
            yield from self.cas(tx, status, Aborted())
