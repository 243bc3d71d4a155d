"""`TableBinding`: one version of a table, with the statements and encoders derived from it once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from structable.backends.base.bounded import Bounded
from structable.backends.postgresql.driver.statement import BYTEA, BYTEA_ARRAY
from structable.spi import ChangelogProducer, Range, TableSpecification, Value
from structable.spi.authors import NOTHING_TAKEN, RowRules, RowShape, check_key, feed_channel, row_columns

from .names import HIDDEN_KEY, qualified, token_name
from .row_codec import Pieces, RowEncoder, generate_key_encoder
from .types import array, encode_value, stored_type

Kept = TypeVar("Kept")

_SKIPPED_COPIES = 16
_UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as the catalog records it.

    Parameters
    ----------
    id : int
        The table's number, never used again.
    version : int
        Advanced by each change of the schema.
    spec : TableSpecification
        The specification that users see.
    building : tuple of str
        Fields whose index is under construction: writes must fit it.
    changed_by : int
        The transaction that made this version, as a 64-bit number.
    feed : int, optional
        The number of the table's change feed.
    taken : mapping of str to int
        The removals of revisions of migrations, see `SchemaChange.taken`.
    signals : bool
        Whether the feed has ever had a listener; commits then signal it.
    dropped : mapping of str to int
        For each name of a dropped field, the version that lacked it first. A later field may have the name.
    """

    id: int
    version: int
    spec: TableSpecification
    building: tuple[str, ...] = field(default=())
    changed_by: int = 0
    feed: int | None = None
    taken: Mapping[str, int] = field(default_factory=lambda: NOTHING_TAKEN, hash=False)
    signals: bool = False
    dropped: Mapping[str, int] = field(default_factory=lambda: NOTHING_TAKEN, hash=False)

    @property
    def stored_key(self) -> tuple[str, ...]:
        """The names of the key's columns in a binding; the key of a keyless table is hidden."""
        return self.spec.primary_key or (HIDDEN_KEY,)


class TableBinding:
    """A version of a table in a schema, with its statements and encoders."""

    def __init__(self, schema: str, table: TableVersion) -> None:
        spec = table.spec
        self.schema = schema
        self.version = table
        self.spec = spec
        self.write_spec = spec.evolve(indexes=(*spec.indexes, *table.building))
        self.rules = RowRules.of(spec)
        self.computes = self.rules is not None and self.rules.answer_reads
        """Whether reads must compute fields from the columns."""
        self.merges = spec.table_options.merges
        self.takes_input = spec.table_options.changelog_producer is ChangelogProducer.INPUT
        """Whether writers give records to the table's change feed."""
        self.signals = frozenset((feed_channel(spec.name),) if table.signals and table.feed is not None else ())
        """The channels that a commit which writes the table signals."""
        self.value_names = tuple(name for name in spec.field_names if name not in spec.primary_key)
        self.key_fields = spec.key_fields
        self.qualified = qualified(schema, spec.name)
        self.token = f"{qualified(schema, token_name(table.id, table.version))}()"
        """The condition that this is the table's version; once another one is, planning the statement fails.

        It calls a function that exists only for this version. The call is inlined when the statement is planned, and
        costs nothing when it runs; dropping the function invalidates the plan.
        """
        self.shape = RowShape(spec.name, (*spec.primary_key, *self.value_names), spec.primary_key)
        self._encoders: Bounded[tuple[str, ...], RowEncoder] = Bounded()
        self._shapes: Bounded[tuple[str, ...], RowShape] = Bounded()
        self._shapes[self.shape.columns] = self.shape
        self._asked: Bounded[tuple[str, ...], RowShape] = Bounded()
        self._kept: Bounded[object, Any] = Bounded()
        self._queries: Bounded[object, Any] = Bounded()
        self.indexed = frozenset(spec.indexes)
        self.oids = {one.name: stored_type(one).oid for one in spec.fields}
        self.array_oids = {one.name: stored_type(one).array_oid for one in spec.fields}
        if spec.keyless:
            self.oids[HIDDEN_KEY], self.array_oids[HIDDEN_KEY] = BYTEA, BYTEA_ARRAY
        self._encode_key = generate_key_encoder(self.key_fields)
        self._prefix_encoders: dict[int, Callable[[object], Pieces | None]] = {}
        self._names: Bounded[tuple[str, ...], tuple[str, ...]] = Bounded()
        self._widths: Bounded[tuple[str, ...], int] = Bounded()
        self._copies_to_skip = 0

    def has_verbs_of(self, other: TableBinding) -> bool:
        """Return whether the table's verbs have the same effect in another version, or another table of its name."""
        same = self.version.id == other.version.id
        alike = (self.spec.keyless, self.spec.table_options) == (other.spec.keyless, other.spec.table_options)
        return (same or alike) and self.takes_input is other.takes_input

    def kept(self, key: object, make: Callable[[], Kept]) -> Kept:
        """Return the cached object for a key, or make it."""
        made: Kept = self._kept.made(key, make)
        return made

    def kept_query(self, shape: object, make: Callable[[], Kept]) -> Kept:
        """Return the cached query of a shape, or make it. The number of users' shapes has no limit."""
        made: Kept = self._queries.made(shape, make)
        return made

    def encoded_key(self, key: object) -> tuple[tuple[Value, ...], Pieces]:
        """Check a key; return it as a tuple and in binary form. Raises the errors of `check_key`."""
        pieces = self._encode_key(key)
        if pieces is not None:
            return key, pieces  # type: ignore[return-value]
        checked = check_key(self.spec, key)
        return checked, self.key_pieces(checked)

    def encoded_keys(self, keys: Sequence[object]) -> list[Pieces]:
        """Check keys; return them in binary form. Raises the errors of `check_key`."""
        encode = self._encode_key
        return [encode(key) or self.key_pieces(check_key(self.spec, key)) for key in keys]

    def key_pieces(self, key: tuple[Value, ...]) -> Pieces:
        """Return a checked key in binary form."""
        return tuple([encode_value(one, value) for one, value in zip(self.key_fields, key, strict=True)])

    def prefix_pieces(self, range_: Range) -> Pieces | None:
        """Return a prefix of keys in binary form; None unless the range is one that surely passes `check_range`."""
        prefix = range_.begin
        if prefix.__class__ is not tuple or prefix is not range_.end or not prefix:
            return None
        if range_.begin_inclusive is not True or range_.end_inclusive is not True:
            return None
        length = len(prefix)
        encode = self._prefix_encoders.get(length)
        if encode is None:
            encode = self._prefix_encoders[length] = generate_key_encoder(self.key_fields[:length])
        return encode(prefix)

    def shape_of(self, columns: Iterable[str] | None) -> RowShape:
        """Check the columns of a read and return the shape of its rows: the key, then the others.

        Raises
        ------
        InvalidFieldError
            As `check_columns` does.
        """
        if columns is None:
            return self.shape
        if columns.__class__ is not list and columns.__class__ is not tuple:
            return self._checked_shape(columns)
        asked = tuple(columns)
        try:
            found = self._asked.get(asked)
        except TypeError:  # one of the names is not a string
            found = None
        if found is None:
            found = self._asked[asked] = self._checked_shape(asked)
        return found

    def _checked_shape(self, columns: Iterable[str]) -> RowShape:
        names = row_columns(self.spec, columns) or ()
        return self._shapes.made(names, lambda: RowShape(self.spec.name, names, self.spec.primary_key))

    def encoder(self, names: tuple[str, ...]) -> RowEncoder:
        """Return the encoder of rows that name these fields, in any order; its pieces are in the table's order."""
        found = self._encoders.get(names)
        if found is None:
            found = self._encoders[names] = RowEncoder(self.write_spec, self.ordered(names))
        return found

    def row_pieces(self, names: tuple[str, ...], row: Mapping[str, Any]) -> Pieces:
        """Return some fields of a checked row in binary form, in the order of `names`."""
        pieces = self.encoder(names).pieces({name: row[name] for name in names})
        ordered = self.known_names(names)
        if ordered is None or ordered == names:
            return pieces
        return tuple([pieces[ordered.index(name)] for name in names])

    def arrays(self, names: Iterable[str], rows: Iterable[Pieces]) -> list[bytes]:
        """Return the columns of rows with some fields, each as an array in binary form."""
        columns = zip(*rows, strict=True)
        return [array(self.oids[name], column) for name, column in zip(names, columns, strict=True)]

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return fields in the order of statements and encoders: the key, then the others in the table's order."""
        given = set(names)
        return (*self.spec.primary_key, *(name for name in self.value_names if name in given))

    def width_without(self, names: Iterable[str]) -> int | None:
        """Return the maximum size of all fields except some; None if one of them has a variable length."""
        given = tuple(names)
        found = self._widths.get(given)
        if found is None:
            width = self.width(name for name in self.spec.field_names if name not in given)
            found = self._widths[given] = _UNLIMITED if width is None else width
        return None if found == _UNLIMITED else found

    def width(self, names: Iterable[str]) -> int | None:
        """Return the maximum size of some fields; None if one of them has a variable length."""
        widths = [self.spec.field(name).type.width for name in names]
        return sum(widths) if all(widths) else None

    def known_names(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the fields that a row names in the order of statements; None unless they are the key and others."""
        found = self._names.get(names)
        if found is None:
            spec = self.spec
            if not all(isinstance(name, str) for name in names):
                return None
            if not set(spec.primary_key) <= set(names) <= set(spec.field_names):
                return None
            found = self._names[names] = self.ordered(names)
        return found

    def copies_first(self) -> bool:
        """Return whether to try COPY for a batch, judging by the batches before it."""
        if self._copies_to_skip:
            self._copies_to_skip -= 1
            return False
        return True

    def note_copy(self, done: bool) -> None:
        """Record whether all rows of a batch were new."""
        self._copies_to_skip = 0 if done else _SKIPPED_COPIES
