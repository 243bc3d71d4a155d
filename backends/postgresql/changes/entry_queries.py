"""The queries of a feed's entries: unchanged, net within each commit, and net between two versions.

All have the columns of `EntryShape`. Queries of images return one row for each key that changed, with the row before
and after; queries of records return one row for each change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from structable.backends.base.feed_marks import Mark
from structable.backends.postgresql.feeds.layout import (
    COMMITS,
    after_column,
    before_column,
    feed_table,
    keeps_images,
    key_column,
)
from structable.backends.postgresql.sql.names import literal, qualified, quoted
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import ChangelogProducer, Field, FieldType, RowKind, TableSpecification

RECORD_KINDS = (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)
"""The kinds of records, in the order of their numbers in queries."""
RECORD_LETTERS = "IBUD"
"""The letters of these kinds in entries."""
_MOST = (1 << 31) - 1
_LONG_TYPES = (FieldType.STRING, FieldType.BYTES)
_LONG = 2_000
"""The size of a value that is not stored in a row unless it is compressed, perhaps to a hundredth."""
_ORDER = "order by version, ticket, again, n"


class TicketPart(NamedTuple):
    """A part of a commit: the entries of a ticket after one (again, n) and up to another, or to the end."""

    version: int
    ticket: int
    after: tuple[int, int]
    upto: tuple[int, int] | None


class HashPart(NamedTuple):
    """The keys whose hash, divided by a number, leaves `remainder`."""

    remainder: int
    number: int


class EntryShape(NamedTuple):
    """The columns of a query: facts of each entry, then fields."""

    facts: tuple[Field, ...]
    key: tuple[Field, ...]
    before: tuple[Field, ...]
    """The row before, in images; nothing in records."""
    after: tuple[Field, ...]
    """The row after, or the record's row."""

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.facts + self.key + self.before + self.after


_VERSION, _TIME = Field.long("version"), Field.timestamp("time")
_IMAGE_FACTS = (_VERSION, _TIME, Field.boolean("had"), Field.boolean("has"))
_RECORD_FACTS = (_VERSION, _TIME, Field.byte("kind"))


class FeedEntries:
    """The entries of one feed; `columns` are the fields wanted, in the order of `shape`."""

    order = "(f.ticket, f.again, f.n)"
    """The columns that order the entries of the table `f`; its index has them."""

    def __init__(self, schema: str, number: int, spec: TableSpecification, columns: Sequence[str]) -> None:
        self.images = keeps_images(spec)
        self.nets = spec.table_options.changelog_producer is not ChangelogProducer.INPUT
        """Whether the changes of a commit are net."""
        self.number = number
        self.commits = qualified(schema, COMMITS)
        self.table = qualified(schema, feed_table(number))
        key = [name for name in spec.primary_key if self.images]
        values = [name for name in spec.field_names if name not in key]
        self._spec = spec
        self._key = [_EntryColumn(f"k{i}", spec.field(name), key_column(name)) for i, name in enumerate(key)]
        befores = values if self.images else ()
        self._before = [_EntryColumn(f"b{i}", spec.field(name), before_column(name)) for i, name in enumerate(befores)]
        self._after = [_EntryColumn(f"a{i}", spec.field(name), after_column(name)) for i, name in enumerate(values)]
        wanted = set(columns)
        self.shape = EntryShape(
            _IMAGE_FACTS if self.images else _RECORD_FACTS,
            *(
                tuple(one.field for one in many if one.field.name in wanted)
                for many in (self._key, self._before, self._after)
            ),
        )
        self.has_whole_key = self.images and len(self.shape.key) == len(key)
        """Whether all fields of the key are wanted."""
        self._wanted = [
            one.name for many in (self._key, self._before, self._after) for one in many if one.field.name in wanted
        ]

    def names(self) -> tuple[dict[str, Field], dict[str, Field], dict[str, Field]]:
        """Return the columns of chunks for the requested fields: of the key, before and after."""
        parts = (self._key, self._before, self._after)
        key, before, after = ({one.name: one.field for one in many if one.name in self._wanted} for many in parts)
        return key, before, after

    def stored_sizes(self) -> list[str]:
        """Return the sizes of requested values of the table `f` that may be long; null for long ones."""
        return [f"octet_length({one.there})" for one in self._unbounded()]

    def versions(self, since: int, until: int, part: HashPart | None = None) -> str:
        """Return the query of the entries of the versions (since, until], unchanged and in order."""
        return f"{self._select(self._of_versions(since, until, part))} {_ORDER}"

    def part(self, part: TicketPart) -> str:
        """Return the query of a part of a commit, in its order."""
        return f"{self._select(self._of_part(part))} {_ORDER}"

    def _select(self, source: str) -> str:
        return f"select {', '.join([*self._facts(), *self._wanted])} from ({source}) as e"

    def _facts(self) -> list[str]:
        if self.images:
            return ["version", "time", "kind <> 'I' as had", "kind <> 'D' as has"]
        return ["version", "time", f"(strpos({literal(RECORD_LETTERS)}, kind::text) - 1)::smallint as kind"]

    def _columns(self) -> list[_EntryColumn]:
        return [*self._key, *self._before, *self._after]

    def _unbounded(self) -> list[_EntryColumn]:
        return [one for one in self._columns() if one.name in self._wanted and one.field.type in _LONG_TYPES]

    def _raw(self) -> str:
        casts = [f"{one.there}::{stored_type(one.field).name} as {one.name}" for one in self._columns()]
        return ", ".join(["f.ticket", "f.again", "f.n", "f.kind", *casts])

    def commits_between(self, since: int, until: int) -> str:
        """Return the query of the commits of the versions (since, until]."""
        return (
            f"select version, ticket, at from {self.commits} "
            f"where version > {since} and version <= {until} and feed = {self.number}"
        )

    def _of_versions(
        self, since: int, until: int, part: HashPart | None = None, only: Sequence[int] = (), but: Sequence[int] = ()
    ) -> str:
        commits = self.commits_between(since, until)
        if only:
            commits += f" and version in ({', '.join(map(str, only))})"
        if but:
            commits += f" and version not in ({', '.join(map(str, but))})"
        hashed = f" where {self._hashed(part)}" if part is not None else ""
        return (
            f"select c.version, c.at as time, {self._raw()} from ({commits}) as c "
            f"join {self.table} as f on f.ticket = c.ticket{hashed}"
        )

    def _of_part(self, part: TicketPart) -> str:
        version, ticket, after, upto = part
        again, last = (_MOST, _MOST) if upto is None else upto
        time = f"select at from {self.commits} where feed = {self.number} and version = {version} and ticket = {ticket}"
        return (
            f"select {version}::bigint as version, ({time}) as time, {self._raw()} from {self.table} as f "
            # Only these: they determine where the index is entered.
            f"where {self.order} > ({ticket}, {after[0]}, {after[1]}) and {self.order} <= ({ticket}, {again}, {last})"
        )

    def first_of_versions(self, since: int, until: int, most: int) -> str:
        """Return the query of the first entries of the versions (since, until], in their order.

        `again` is above 0 wherever a commit has several statements. `is_long` marks rows whose values are too long for
        a chunk, and left out.
        """
        commits = (
            "select version, ticket, at, row_number() over (partition by version order by ticket) as turn "
            f"from ({self.commits_between(since, until)}) as c order by version, ticket"
        )
        # In the order of the index, so that the limit ends the work, here and in the chunks of a part.
        of_ticket = (
            f"select {self._raw()} from {self.table} as f where f.ticket = c.ticket order by f.ticket, f.again, f.n"
        )
        return (
            f"select c.version, c.at as time, e.again + c.turn - 1 as again, e.n, e.kind, {self._bounded()} "
            f"from ({commits}) as c cross join lateral ({of_ticket}) as e limit {most}"
        )

    def shaped(self, query: str) -> str:
        """Return the query of a chunk's rows: the columns of `shape`, then `is_long`, `again` and `n`."""
        return f"select {', '.join([*self._facts(), *self._wanted, 'is_long', 'again', 'n'])} from ({query}) as p"

    def sizes_of_part(self, part: TicketPart, most: int) -> str:
        """Return the query of `again`, `n` and the size of the first entries in a part of a commit, in its order."""
        sizes = " + ".join(f"coalesce(octet_length(e.{one.name}), 0)" for one in self._unbounded()) or "0"
        return (
            f"select again, n, {sizes} from ({self._of_part(part)} order by f.ticket, f.again, f.n limit {most}) as e"
        )

    def first_of_part(self, part: TicketPart, most: int) -> str:
        """Return the query of the first entries of a part of a commit as `first_of_versions` does."""
        return f"select version, time, again, n, kind, {self._bounded()} from " + (
            f"({self._of_part(part)} order by f.ticket, f.again, f.n limit {most}) as e"
        )

    def _bounded(self) -> str:
        # A key is short.
        unbounded = [one for one in self._unbounded() if one not in self._key]
        sizes = ", ".join(f"octet_length(e.{one.name})" for one in unbounded)
        columns = [
            f"case when octet_length(e.{one.name}) <= {_LONG} then e.{one.name} end as {one.name}"
            if one in unbounded
            else f"e.{one.name}"
            for one in self._columns()
        ]
        is_long = f"coalesce(greatest({sizes}) > {_LONG}, false)" if unbounded else "false"
        return ", ".join([*columns, f"{is_long} as is_long"])

    def _hashed(self, part: HashPart) -> str:
        key = ", ".join(one.there for one in self._key)
        return f"(hash_record_extended(row({key}), 0) & 9223372036854775807) % {part.number} = {part.remainder}"

    def net_versions(self, since: int, until: int, part: HashPart | None = None) -> str:
        """Return the query of the changes of the versions (since, until], net in each and in their order."""
        if not self.images:
            return f"{self._net_bag(since, until)} order by version"
        return f"{self._net_images(since, until, part)} order by version"

    def _net_bag(self, since: int, until: int) -> str:
        values = [one.name for one in self._after]
        wanted = ", ".join(
            [
                "e.version",
                "e.time",
                "(case when e.side > 0 then 0 else 3 end)::smallint",
                *(f"e.{name}" for name in self._wanted),
            ]
        )
        columns = ", ".join(values)
        return (
            f"select {wanted} from (select version, min(time) as time, {columns}, "
            "sum(case when kind = 'I' then 1 else -1 end) as side "
            f"from ({self._of_versions(since, until)}) as f group by version, {columns}) as e, "
            "generate_series(1, abs(e.side))"
        )

    def _net_images(
        self, since: int, until: int, part: HashPart | None = None, only: Sequence[int] = (), *, whole: bool = False
    ) -> str:
        """Return the query of the changes of each commit, or of `only` some; `whole` has all fields."""
        key = [one.name for one in self._key]
        values = [one.field.name for one in self._after]
        news = [f"v_{place}" for place in range(len(values))]
        sides = (("-1", "<> 'I'", self._before), ("1", "<> 'D'", self._after))
        images = " union all ".join(
            ", ".join(
                [
                    f"select version, time, {', '.join(key)}, {side} as side, kind {test} as present",
                    *(f"{one.name} as {new}" for one, new in zip(columns, news, strict=True)),
                ]
            )
            + " from e"
            for side, test, columns in sides
        )
        by = ", ".join(["version", *key, "present", *news])
        parts = ", ".join(
            ["b.version", "b.time", "b.present as had", "a.present as has", *(f"b.{name}" for name in key)]
        )
        both = [f"b.{new} as {one.name}" for one, new in zip(self._before, news, strict=True)]
        both += [f"a.{new} as {one.name}" for one, new in zip(self._after, news, strict=True)]
        matches = " and ".join(["b.version = a.version", *(f"b.{name} = a.{name}" for name in key)])
        wanted = "*" if whole else ", ".join(["version", "time", "had", "has", *self._wanted])
        source = self._of_versions(since, until, part, only)
        return (
            f"select {wanted} from (with e as materialized ({source}), n as materialized (select min(time) as time, "
            f"{by}, sum(side) as side from ({images}) as i group by {by} having sum(side) <> 0) "
            f"select {', '.join([parts, *both])} from n as b join n as a on {matches} "
            "where b.side < 0 and a.side > 0) as m"
        )

    def net_range(
        self,
        bounds: Sequence[tuple[int, int]],
        repeated: Sequence[int],
        stamps: Sequence[Mark] = (),
        part: HashPart | None = None,
    ) -> str:
        """Return the query of the changes that are net in each of some ranges.

        Parameters
        ----------
        bounds : sequence of (int, int)
            The ranges (since, until], each beginning where the one before it ends.
        repeated : sequence of int
            The versions in them whose commits may have several entries of a key.
        stamps : sequence of Mark
            A change has version and time of the first mark that is not before it; without marks, of its last commit.
        part : HashPart, optional
            The requested keys; all by default.
        """
        since, until = bounds[0][0], bounds[-1][1]
        key = ", ".join(one.name for one in self._key)
        names = ["version", "time", "had", "has", *(one.name for one in self._columns())]
        entries = self._images_net_in_commits(since, until, repeated, part, names)
        segment = f"width_bucket(version - 1, array[{', '.join(str(bound) for _, bound in bounds)}]::bigint[])"
        firsts = ", ".join(
            f"first_value({name}) over w as f_{name}" for name in ["had", *(one.name for one in self._before)]
        )
        before = [f"f_{one.name} as {one.name}" for one in self._before]
        differs = "f_had <> has"
        if self._after:
            olds = ", ".join(f"f_{one.name}" for one in self._before)
            news = ", ".join(one.name for one in self._after)
            differs += f" or (has and row({olds}) is distinct from row({news}))"
        columns = ", ".join(
            ["version", "time", "f_had as had", "has", key, *before, *(one.name for one in self._after)]
        )
        net = (
            f"select {columns} from (select {', '.join(names)}, {firsts}, lead(version) over w is null as is_last "
            f"from (select {', '.join(names)}, {segment} as segment from ({entries}) as e) as s "
            f"window w as (partition by segment, {key} order by version)) as l where is_last and ({differs})"
        )
        wanted = ", ".join(self._wanted)
        if not stamps:
            return f"select {', '.join(['version', 'time', 'had', 'has', *self._wanted])} from ({net}) as r"
        versions = ", ".join(str(mark.version) for mark in stamps)
        times = ", ".join(f"{literal(mark.time.isoformat())}::timestamptz" for mark in stamps)
        place = f"1 + width_bucket(r.version - 1, array[{versions}]::bigint[])"
        pieces = [f"(array[{versions}]::bigint[])[{place}]", f"(array[{times}])[{place}]", "had", "has"]
        return f"select {', '.join([*pieces, *([wanted] if wanted else [])])} from ({net}) as r order by 1"

    def _images_net_in_commits(
        self, since: int, until: int, repeated: Sequence[int], part: HashPart | None, names: Sequence[str]
    ) -> str:
        source = self._of_versions(since, until, part, but=repeated)
        plain = f"select {', '.join(_imaged(names))} from ({source}) as p"
        if not repeated:
            return plain
        net = self._net_images(since, until, part, repeated, whole=True)
        return f"{plain} union all select {', '.join(names)} from ({net}) as q"

    def repeated(self, versions: Sequence[int]) -> str:
        """Return the query of the versions, among some, whose commits have several entries of one key."""
        listed = ", ".join(map(str, versions))
        key = ", ".join(one.there for one in self._key)
        return (
            f"select distinct c.version from {self.commits} as c join {self.table} as f on f.ticket = c.ticket "
            f"where c.feed = {self.number} and c.version in ({listed}) group by c.version, {key} having count(*) > 1"
        )

    def repeated_between(self, since: int, until: int) -> str:
        """Return the query of the versions in (since, until] whose commits have several entries of one key."""
        key = ", ".join(one.there for one in self._key)
        entries = f"({self.commits_between(since, until)}) as c join {self.table} as f on f.ticket = c.ticket"
        several = (
            f"select c.version from {entries} group by c.version "
            "having max(f.again) > 0 or min(c.ticket) < max(c.ticket)"
        )
        return (
            f"select distinct c.version from {entries} where c.version in ({several}) "
            f"group by c.version, {key} having count(*) > 1"
        )


class _EntryColumn(NamedTuple):
    """A column of entries; queries name it `name`."""

    name: str
    field: Field
    stored: str

    @property
    def there(self) -> str:
        """The column in the table, `f`."""
        return f"f.{quoted(self.stored)}"


def _imaged(names: Sequence[str]) -> list[str]:
    facts = {"had": "kind <> 'I' as had", "has": "kind <> 'D' as has"}
    return [facts.get(name, name) for name in names]
