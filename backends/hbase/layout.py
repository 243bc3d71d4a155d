"""The layout of stored data: the HBase tables of a prefix, their rows, and the names of their columns.

    PREFIX_tx          families c (one version a cell) and x (all versions)
        format         c:s      version of this layout: 2; 3 once it has had a table with a type, 4 with a feed
        clock          c:t      timestamp counter; x: marker of the catalog, see below
        sessions       c:n c:m c:l    counter of sessions; the second from format 3 on, the third from 4 on
        g SESSION      c:s      heartbeat of a process: its low watermark, a counter, and the newest format it knows
        p PLAN         c:s      a pinned snapshot
        s SALT TXID    c:s      status of a transaction; c:w its write set where that is large
        recent         c:rSESSION    rows recently written by a process, see `txn.recent_writes`
        feeds          c:gSESSION FEED    the feeds in whose gates a process has a row
        janitor, gc    c:s      the lease of the janitor; the safe point
        gc             c:r      the timestamp before which snapshots may have lost versions
        k KEY          x        catalog
    PREFIX_NUMBER      family x, one for each space: a table of one generation
        00             x        marker, written by each change of the table's schema
        01 KEY         x        row
        02 ...         x        index entry
    PREFIX_NUMBER      families x and c, one for each space of a change feed
        00, 02 ...     x        rows of the layer above
        01 VERSION NUMBER    x  entry, at the timestamp VERSION of its commit
        03 SESSION     c        gate: column LANE with the entry of a transaction, or a mark that it is gone
        04 TXID NUMBER c:e      gate: an entry of a transaction with several
    PREFIX_staging     family x, made by the first write job: the staged rows of jobs

A row of family x has the cell x:v, its committed versions, each at its commit's timestamp; and x:iTXID, the intent of a
transaction that is not yet finalised, at the timestamp of its snapshot. A column that was deleted costs every reader of
its row some time until HBase compacts the table, so that thousands of them would make a hot row slow: therefore most
transactions have no column of their own but x:iSESSION LANE, which the session gives to the next one once it is empty;
the cell begins with the number of its transaction.
"""

from __future__ import annotations

import re
import zlib

from structable.backends.ordered.engine import SPACE_BYTES
from structable.backends.ordered.schema.catalog import CATALOG_SPACE

FIRST_FORMAT = 2
TYPES_FORMAT = 3
"""The format of a prefix that has a table with a type; the first such table raises the format."""
FEEDS_FORMAT = 4
"""The format of a prefix that has a change feed; the first feed raises the format."""
FORMAT_VERSION = FEEDS_FORMAT
"""The newest format."""
FAMILY = b"x"
VALUE = b"x:v"
INTENT = b"x:i"
STATE = b"c:s"
TICK = b"c:t"
WRITES = b"c:w"
REMOVED = b"c:r"

RECENT_FAMILY = b"c"

GATE_FAMILY = b"c"
GATE_LANES, GATE_ROWS = b"\x03", b"\x04"
"""The first byte of the rows of a gate: one row of a session, with a cell for each lane; one row for each entry."""
GATE_ENTRY = b"c:e"
GATE_MARK = b"\x00"
"""The content of a lane's cell without an entry."""

CLOCK = b"clock"
RECENT = b"recent"
SESSIONS = b"sessions"
FORMAT = b"format"
GATES = b"feeds"
GC = b"gc"
JANITOR = b"janitor"
MARKER = b"\x00"
"""The row of a table that every change of its schema writes."""

TXID_BYTES = 16
"""Length of a transaction's id: its session, and its number in the session, which ends with its lane."""
SESSION_BYTES = 8
LANE_BYTES = 2
OWN_COLUMN = bytes(LANE_BYTES)
"""The lane of transactions that have a column of their own."""
_SALTS = 16
_CATALOG_ROWS = b"k"
_LIST = RECENT_FAMILY + b":r"
_GATE = b"c:g"
_NUMBER_BYTES = 4
_LONGEST_PREFIX = 150


def status_row(txid: bytes) -> bytes:
    """Return the row of a transaction's status: salted, since ids come in increasing order."""
    return b"s" + bytes([zlib.crc32(txid) % _SALTS]) + txid


def transaction_of(row: bytes) -> bytes:
    """Return the transaction whose status a row holds."""
    return row[-TXID_BYTES:]


def intent_column(txid: bytes) -> bytes:
    """Return the column of a transaction's intents."""
    lane = txid[-LANE_BYTES:]
    return INTENT + (txid if lane == OWN_COLUMN else txid[:SESSION_BYTES] + lane)


def list_column(session: bytes) -> bytes:
    """Return the column of the row `RECENT` with the list of a session."""
    return _LIST + session


def session_of_list(column: bytes) -> bytes:
    """Return the session whose list a column holds."""
    return column[len(_LIST) :]


def gate_lanes(txid: bytes) -> bytes:
    """Return the row of the gates in which a session has the cells of its lanes."""
    return GATE_LANES + txid[:SESSION_BYTES]


def gate_lane(txid: bytes) -> bytes:
    """Return the column of a transaction's lane in the gate row of its session."""
    return GATE_FAMILY + b":" + txid[-LANE_BYTES:]


def gate_session(row: bytes) -> bytes:
    """Return the session of a row that `gate_lanes` returned."""
    return row[len(GATE_LANES) :]


def gate_row(txid: bytes, number: int) -> bytes:
    """Return the gate row of one entry, for a transaction that has gate rows of its own."""
    return GATE_ROWS + txid + number.to_bytes(_NUMBER_BYTES)


def gate_number(row: bytes) -> int:
    """Return the number of the entry of a row that `gate_row` returned."""
    return int.from_bytes(row[-_NUMBER_BYTES:])


def gate_column(session: bytes, feed: bytes) -> bytes:
    """Return the column of the row `GATES` that records that a session has a row in the gate of a feed."""
    return _GATE + session + feed


def gate_of_column(column: bytes) -> tuple[bytes, bytes]:
    """Return the session and the feed of a column that `gate_column` returned."""
    return column[len(_GATE) : -SPACE_BYTES], column[-SPACE_BYTES:]


def session_row(session: bytes) -> bytes:
    """Return the row of a session's heartbeat."""
    return b"g" + session


def plan_row(plan: bytes) -> bytes:
    """Return the row of a pinned snapshot."""
    return b"p" + plan


class Layout:
    """The names of one prefix, with which the names of all its HBase tables begin, up to an underscore.

    A namespace and a colon precede it if it is not in HBase's default one; `namespace` is empty if none was given.
    Raises `ValueError` if HBase would reject the names.
    """

    def __init__(self, prefix: str) -> None:
        namespace, colon, name = prefix.rpartition(":")
        if (colon and not re.fullmatch(r"\w+", namespace, re.ASCII)) or not re.fullmatch(
            r"[a-zA-Z0-9_][\w.-]*", name, re.ASCII
        ):
            raise ValueError(
                f"the prefix {prefix!r} cannot begin the name of an HBase table: allowed are letters, digits, '_', '-' "
                "and '.', the latter two not first, after an optional namespace and a colon"
            )
        if namespace == "hbase":
            raise ValueError(f"the prefix {prefix!r} is in the namespace of HBase's own tables; choose another one")
        if len(prefix) > _LONGEST_PREFIX:
            raise ValueError(f"the prefix has {len(prefix)} characters; at most {_LONGEST_PREFIX} are allowed")
        if namespace == "default":
            prefix = name  # as HBase itself lists them
        self.prefix = prefix
        self.namespace = namespace
        self.transactions = f"{prefix}_tx"
        self.staging = f"{prefix}_staging"

    def table(self, space: bytes) -> str:
        return self.transactions if space == CATALOG_SPACE else f"{self.prefix}_{int.from_bytes(space):08d}"

    def row(self, key: bytes) -> bytes:
        if not key.startswith(CATALOG_SPACE):
            return key[SPACE_BYTES:]
        rest = key[SPACE_BYTES:]
        return CLOCK if rest == MARKER else _CATALOG_ROWS + rest

    def head(self, space: bytes) -> tuple[bytes, int]:
        """Return how to make a key of a row: the bytes to prepend, and how many of its first bytes to drop."""
        return space, len(_CATALOG_ROWS) if space == CATALOG_SPACE else 0

    def interval(self, begin: bytes, end: bytes) -> tuple[str, bytes, bytes]:
        """Return the HBase table, the first row, and the row after the last of an interval inside one space."""
        space = begin[:SPACE_BYTES]
        table, first = self.table(space), self.row(begin)
        if end.startswith(space):
            return table, first, self.row(end)
        return table, first, b"l" if space == CATALOG_SPACE else b""
