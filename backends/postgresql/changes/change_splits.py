"""The splits of a range of a feed: parts of about as many entries, in the order of the range, read in any process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from structable.backends.base.feed_marks import FeedRequest, Segment
from structable.backends.postgresql.driver.connection_factory import ConnectionFactory
from structable.backends.postgresql.driver.pool import ServerPool
from structable.spi import FEED_COLUMNS, ScanSplit, StorageUnavailableError, TableSpecification

from .change_parts import ChangePart, CommitPart, NetPart, VersionsPart, net_part
from .commit_sizes import CommitSize, TicketSize, netted, parts_of_commit
from .entry_queries import FeedEntries, HashPart
from .feed_source import FeedSource, SourceReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_LEAST = 500
"""The fewest entries that are worth a split."""


class ChangeSplit(NamedTuple):
    """The content of a split of changes."""

    source: FeedSource
    spec: TableSpecification
    columns: tuple[str, ...]
    parts: tuple[ChangePart, ...]


def plan_splits(reader: SourceReader, entries: FeedEntries, request: FeedRequest, splits: int) -> list[bytes]:
    """Return the states of about `splits` splits of a request."""
    if not request.segments:
        parts: list[tuple[ChangePart, ...]] = [()]
    elif request.net or request.segments[0].mark is not None:
        parts = [(part,) for part in _net_parts(reader, entries, request, splits)]
    else:
        parts = [(part,) for segment in request.segments for part in _parts(reader, entries, segment, splits)]
    return [pickle.dumps(ChangeSplit(reader.source, request.spec, request.columns, one)) for one in parts]


def _parts(reader: SourceReader, entries: FeedEntries, segment: Segment, splits: int) -> list[ChangePart]:
    since, until = segment.since, segment.until
    if splits == 1:
        return [VersionsPart(since, until)]
    share, commits = _cuts(reader, entries, since, until, splits)
    large = [one for one in commits if one.number > share]
    nets = netted(reader, entries, large)
    parts: list[ChangePart] = []
    done = since
    for commit in commits:
        if commit.number <= share or (commit.version in nets and not entries.images):
            parts.append(VersionsPart(done, commit.version))
        else:
            if done < commit.version - 1:
                parts.append(VersionsPart(done, commit.version - 1))
            number = -(-commit.number // share)
            if commit.version in nets:
                parts += [
                    VersionsPart(commit.version - 1, commit.version, HashPart(place, number)) for place in range(number)
                ]
            else:
                parts += map(CommitPart, parts_of_commit(reader, entries, commit, -(-commit.number // number)))
        done = commit.version
    if done < until:
        parts.append(VersionsPart(done, until))
    return parts


def _cuts(
    reader: SourceReader, entries: FeedEntries, since: int, until: int, splits: int
) -> tuple[int, list[CommitSize]]:
    """Return the number of entries for a split, and the commits that end a split or need several."""
    sizes = (
        f"select c.version, count(*) as number from ({entries.commits_between(since, until)}) as c "
        f"join {entries.table} as f on f.ticket = c.ticket group by c.version"
    )
    sums = (
        f"select version, number, sum(number) over (order by version) as upto, sum(number) over () as total "
        f"from ({sizes}) as s"
    )
    number = f"least({splits}, greatest(1, total / {_LEAST}))"
    cut = (
        f"select version, total, {number} from "
        f"(select version, number, upto::bigint, total::bigint from ({sums}) as t) as u "
        f"where (upto - number) * {number} / total < upto * {number} / total order by version"
    )
    found = [tuple(map(int, row)) for row in reader.rows(cut, since, freely=True)]
    if not found:
        return 1, []
    share = -(-found[0][1] // found[0][2])
    return share, [_size(reader, entries, version) for version, _, _ in found]


def _size(reader: SourceReader, entries: FeedEntries, version: int) -> CommitSize:
    query = (
        f"select c.ticket, count(*), max(f.again) from ({entries.commits_between(version - 1, version)}) as c "
        f"join {entries.table} as f on f.ticket = c.ticket group by c.ticket order by 1"
    )
    rows = [tuple(map(int, row)) for row in reader.rows(query, version - 1)]
    return CommitSize(version, tuple(TicketSize(ticket, number, 0, again, 0) for ticket, number, again in rows))


def _net_parts(reader: SourceReader, entries: FeedEntries, request: FeedRequest, splits: int) -> list[NetPart]:
    whole = net_part(reader, entries, request)
    if splits == 1:
        return [whole]
    sizes = _segment_sizes(reader, entries, whole.bounds)
    share = max(-(-sum(sizes) // splits), _LEAST)
    if request.net:
        return _hashed(whole, sum(sizes), share)
    parts: list[NetPart] = []
    first = total = 0
    for place, size in enumerate(sizes):
        if total and total + size > share:
            parts.append(_some(whole, first, place))
            first, total = place, 0
        total += size
        if size > share:
            parts += _hashed(_some(whole, place, place + 1), size, share)
            first, total = place + 1, 0
    if first < len(sizes):
        parts.append(_some(whole, first, len(sizes)))
    return parts


def _some(whole: NetPart, begin: int, end: int) -> NetPart:
    return whole._replace(bounds=whole.bounds[begin:end], stamps=whole.stamps[begin:end])


def _hashed(part: NetPart, size: int, share: int) -> list[NetPart]:
    number = max(1, -(-size // share))
    return [part._replace(keys=HashPart(place, number)) for place in range(number)] if number > 1 else [part]


def _segment_sizes(reader: SourceReader, entries: FeedEntries, bounds: tuple[tuple[int, int], ...]) -> list[int]:
    since, until = bounds[0][0], bounds[-1][1]
    place = f"width_bucket(c.version - 1, array[{', '.join(str(bound) for _, bound in bounds)}]::bigint[])"
    query = (
        f"select {place}, count(*) from ({entries.commits_between(since, until)}) as c "
        f"join {entries.table} as f on f.ticket = c.ticket group by 1"
    )
    found = {int(row[0]): int(row[1]) for row in reader.rows(query, since, freely=True)}
    return [found.get(number, 0) for number in range(len(bounds))]


def reads_changes(split: ScanSplit) -> bool:
    """Return whether a split reads changes: no table has fields of these names."""
    return split.columns[-len(FEED_COLUMNS) :] == FEED_COLUMNS


def read_change_split(pool: ServerPool, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the changes of a split, borrowing a connection for each query of them.

    Raises
    ------
    ChangesLostError
        If changes that were still to come have expired.
    """
    from .change_batches import ChangeBatches

    # The split itself came as a pickle from the planning process: its content deserves the same trust.
    source, spec, columns, parts = ChangeSplit(*pickle.loads(split.state))
    reader = SourceReader(source, pool.connection)
    entries = FeedEntries(source.schema, source.number, spec, columns)
    batches = ChangeBatches(reader, entries, spec, columns)
    for part in parts:
        for batch in batches.read(part):
            if pool.closed:
                raise StorageUnavailableError("the storage was closed; connect again")
            yield batch


def read_one_change_split(factory: ConnectionFactory, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the changes of a split over a connection of its own."""
    pool = ServerPool(factory.open, 1, 0.0)
    try:
        yield from read_change_split(pool, split)
    finally:
        pool.close()
