"""`BoundJoin`: a join that fits its tables, with the columns to read and the way from a right row to its left rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from structable.spi import (
    ChangelogProducer,
    Field,
    InvalidSpecificationError,
    Retired,
    SchemaIncompatibleError,
    TableSpecification,
    TransactionConflictError,
    UnsupportedOperationError,
)
from structable.spi.authors import RowRules, not_a_field, plan_schema_change, widens
from structable.spi.text import rule_to_document

from .definition import ForeignKeyJoin, Side, parse_source

RESULT_OPTIONS = {"changelog-producer": "lookup"}


@dataclass(frozen=True, slots=True)
class BoundJoin:
    """A join that fits its tables.

    Attributes
    ----------
    left, right, result : TableSpecification
        The tables; the result as it must be.
    foreign_key : tuple of str
        Fields of the left table, in the order of the right table's key.
    select : mapping of str to (side, str), optional
        The fields of the result outside of its key; None with a joiner.
    left_columns, right_columns : tuple of str
        The columns to read.
    left_watched, right_watched : tuple of str
        The columns whose changes may change the result; all with a joiner.
    prefix : int
        The number of leading fields of the left table's key that find the left rows of a right key.
    index : str, optional
        The indexed field that finds them instead.
    unfilled : mapping of str to list of documents
        By side, the rules of fields that reads compute because stored rows may lack them; only if the join reads such a
        field. A feed holds rows in their stored form.
    """

    join: ForeignKeyJoin
    left: TableSpecification
    right: TableSpecification
    result: TableSpecification
    foreign_key: tuple[str, ...]
    select: Mapping[str, tuple[Side, str]] | None
    left_columns: tuple[str, ...]
    right_columns: tuple[str, ...]
    left_watched: tuple[str, ...]
    right_watched: tuple[str, ...]
    prefix: int
    index: str | None
    unfilled: Mapping[Side, list[dict[str, object]]]

    @property
    def on(self) -> dict[str, str] | list[str]:
        """The foreign key as `ForeignKeyJoin` takes it: a list if a field of the left table is in it twice."""
        pairs = dict(zip(self.foreign_key, self.right.primary_key, strict=True))
        return pairs if len(pairs) == len(self.foreign_key) else [*self.foreign_key]

    @property
    def images_suffice(self) -> bool:
        """Whether images of a right row in its feed suffice to update the results of unchanged left rows."""
        return self.select is not None and not self.unfilled

    @property
    def sources(self) -> dict[str, str] | None:
        """The selection as `ForeignKeyJoin.select` has it; None with a joiner."""
        if self.select is None:
            return None
        return {name: f"{side}.{field}" for name, (side, field) in self.select.items()}

    def require_unchanged(self, left: TableSpecification, right: TableSpecification) -> None:
        """Check the tables of a snapshot; if their rules were changed, reads compute what the definition does not know.

        Raises
        ------
        TransactionConflictError
            If a table is not as it was when the join was bound to it.
        """
        for bound, found in ((self.left, left), (self.right, right)):
            if bound != found:
                raise TransactionConflictError(f"table {bound.name!r} was changed during a step; run the step again")


def bind(
    join: ForeignKeyJoin,
    left: TableSpecification,
    right: TableSpecification,
    recorded: Mapping[str, str] | None = None,
    known_faults: Iterable[str] = (),
) -> BoundJoin:
    """Check a join against its tables.

    Parameters
    ----------
    join : ForeignKeyJoin
        The join.
    left, right : TableSpecification
        The tables as they are now.
    recorded : mapping of str to str, optional
        The recorded selection, for a join that has none of its own.
    known_faults : iterable of str
        Faults that are already known.

    Raises
    ------
    InvalidSpecificationError
        With all faults.
    UnsupportedOperationError
        If all faults are tables without a key, or without a feed of producer lookup.
    """
    unsupported = _unsupported(left) if left == right else [*_unsupported(left), *_unsupported(right)]
    faults = list(known_faults)
    foreign_key = _foreign_key(join, left, right, faults)
    prefix, index = _way_to_left(left, foreign_key, faults) if foreign_key else (0, None)
    select = None if join.joiner is not None else _selection(join, left, right, recorded, faults)
    result = _result(join, left, right, select, faults)
    if faults:
        raise InvalidSpecificationError(f"join {join.name!r}: " + "; ".join([*unsupported, *faults]))
    if unsupported:
        raise UnsupportedOperationError(f"join {join.name!r}: " + "; ".join(unsupported))
    assert result is not None
    if select is None:
        left_columns, right_columns = left_watched, right_watched = left.field_names, right.field_names
    else:
        left_watched = _watched(left, *foreign_key, *_selected(select, "left"))
        right_watched = _watched(right, *_selected(select, "right"))
        left_columns = _distinct(*left.primary_key, *left_watched)
        right_columns = _distinct(*right.primary_key, *right_watched)
    unfilled: dict[Side, list[dict[str, object]]] = {}
    if rules := _unfilled(left, left_columns):
        unfilled["left"] = rules
    if rules := _unfilled(right, right_columns):
        unfilled["right"] = rules
    return BoundJoin(
        join,
        left,
        right,
        result,
        foreign_key,
        select,
        left_columns,
        right_columns,
        left_watched,
        right_watched,
        prefix,
        index,
        unfilled,
    )


def check_result(
    existing: TableSpecification, wanted: TableSpecification, *, ours: bool, removed: Collection[str] = ()
) -> None:
    """Check that an existing table can be the result: that it has the join's key, fields and producer.

    Parameters
    ----------
    existing, wanted : TableSpecification
        The table, and the one that the join would make; indexes, retention and `user.*` do not count.
    ours : bool
        Whether the join made it: then it may have narrower numbers than the join would make now, or lack fields.
    removed : collection of str
        Fields that will be dropped; they must have no index.

    Raises
    ------
    SchemaIncompatibleError
        With every difference.
    """
    differences: list[str] = []
    try:
        plan_schema_change(existing, wanted)
    except SchemaIncompatibleError as error:
        differences.extend(error.differences)
    producer = existing.table_options.changelog_producer
    if producer is not ChangelogProducer.LOOKUP:
        differences.append(f"its changelog-producer is {producer}, and must be lookup")
    for name in existing.field_names:
        if name not in wanted and (name not in removed or name in existing.indexes):
            indexed = ", and has an index; drop that first" if name in removed else ""
            differences.append(f"field {name!r} is not a field of the join{indexed}")
    for field in wanted.fields:
        here = existing.field(field.name) if field.name in existing else None
        if here is None and not ours:
            differences.append(f"field {field.name!r} is missing")
        elif here is not None and here != field and not (ours and widens(here, field)):
            problem = f"field {field.name!r} is {here.type_text}, and the join makes it {field.type_text}"
            if not any(one.startswith(f"field {field.name!r} ") for one in differences):
                differences.append(problem)
    if differences:
        refused = SchemaIncompatibleError(existing.name, differences)
        cure = "Drop the table" if ours else "It is not a table of this join. Name another result, or drop the table"
        refused.add_note(f"{cure}: the join makes it again.")
        raise refused


def _unsupported(spec: TableSpecification) -> list[str]:
    found = []
    if spec.keyless:
        mode = spec.table_options.write_mode
        found.append(f"table {spec.name!r} has no primary key (write-mode={mode}); a join needs tables with one")
    producer = spec.table_options.changelog_producer
    if producer is not ChangelogProducer.LOOKUP:
        found.append(
            f"table {spec.name!r} has changelog-producer={producer}; a join needs changelog-producer=lookup, whose "
            "feed has every change of each commit"
        )
    return found


def _foreign_key(
    join: ForeignKeyJoin, left: TableSpecification, right: TableSpecification, faults: list[str]
) -> tuple[str, ...]:
    key = right.primary_key
    if not isinstance(join.on, Mapping):
        if len(join.on) != len(key):
            wanted = f"the key of table {right.name!r} has {len(key)}: {', '.join(key)}"
            faults.append(f"on has {len(join.on)} fields, and {wanted}")
            return ()
        pairs = dict(zip(key, join.on, strict=True))
    else:
        pairs = {theirs: ours for ours, theirs in join.on.items()}
        faults.extend(
            f"on names {name!r}, which is not a field of the primary key of {right.name!r}; it is {', '.join(key)}"
            for name in pairs
            if name not in key
        )
        missing = [name for name in key if name not in pairs]
        if missing:
            faults.append(
                f"on lacks {', '.join(missing)} of the primary key of table {right.name!r}; it takes all of it"
            )
    whole = all(name in pairs for name in key)
    for theirs in key:
        ours = pairs.get(theirs)
        if ours is None:
            continue
        if ours not in left:
            faults.append(f"on names {ours!r}, which {not_a_field(left.field_names, left.name)}")
            whole = False
            continue
        mine, other = left.field(ours), right.field(theirs)
        if mine.type_text != other.type_text:
            types = f"{left.name}.{ours} is {mine.type_text}, and {right.name}.{theirs} is {other.type_text}"
            faults.append(f"{types}; the types must be equal")
    return tuple(pairs[name] for name in key) if whole else ()


def _way_to_left(left: TableSpecification, foreign_key: tuple[str, ...], faults: list[str]) -> tuple[int, str | None]:
    prefix = 0
    while prefix < len(left.primary_key) and left.primary_key[prefix] in foreign_key:
        prefix += 1
    if prefix:
        return prefix, None
    rules = RowRules(left)
    index = next(
        (one for one in foreign_key if rules.stored_name(one) in left.indexes and one not in rules.computed), None
    )
    if index is None:
        found = f"the rows of table {left.name!r} of a row on the right cannot be found"
        possible = [name for name in foreign_key if name not in left.primary_key]
        if possible:
            faults.append(f"{found}; add an index on {possible[0]!r}, as in indexes=[{possible[0]!r}]")
        else:
            faults.append(
                f"{found}: {foreign_key[0]!r} is a later field of its primary key, which takes no index; put it first "
                "there, or write it into a further field with an index"
            )
    return 0, index


def _selection(
    join: ForeignKeyJoin,
    left: TableSpecification,
    right: TableSpecification,
    recorded: Mapping[str, str] | None,
    faults: list[str],
) -> dict[str, tuple[Side, str]] | None:
    given = join.select if join.select is not None else recorded
    if given is not None:
        chosen = {name: parse_source(source) for name, source in given.items()}
    else:
        chosen = {field.name: ("left", field.name) for field in left.value_fields}
        ours = {name.lower() for name in left.field_names}
        clashes = [field.name for field in right.value_fields if field.name.lower() in ours]
        if clashes:
            faults.append(
                f"both tables have fields named {', '.join(clashes)}; name the fields of the result by select"
            )
            return None
        chosen |= {field.name: ("right", field.name) for field in right.value_fields}
    whole = True
    for name, (side, field) in chosen.items():
        spec = left if side == "left" else right
        if field not in spec:
            faults.append(f"select has {name!r}: {side}.{field}, which {not_a_field(spec.field_names, spec.name)}")
            whole = False
    return chosen if whole else None


def _result(
    join: ForeignKeyJoin,
    left: TableSpecification,
    right: TableSpecification,
    select: Mapping[str, tuple[Side, str]] | None,
    faults: list[str],
) -> TableSpecification | None:
    if join.joiner is not None:
        assert join.result_fields is not None
        fields = list(join.result_fields)
    elif select is None:
        return None
    else:
        fields = []
        for name, (side, field) in select.items():
            source = (left if side == "left" else right).field(field)
            fields.append(Field(name, source.type, source.precision, source.scale))
    taken = [field.name for field in fields if field.name in left.primary_key]
    if taken:
        faults.append(f"the result's fields {', '.join(taken)} belong to its key already; leave them out")
    if left.keyless:
        return None
    key = [left.field(name) for name in left.primary_key]
    try:
        others = [field for field in fields if field.name not in taken]
        return TableSpecification(join.result.name, [*key, *others], left.primary_key, options=RESULT_OPTIONS)
    except InvalidSpecificationError as error:
        faults.append(f"the result: {error}")
        return None


def _selected(select: Mapping[str, tuple[Side, str]], side: Side) -> list[str]:
    return [field for one, field in select.values() if one == side]


def _watched(spec: TableSpecification, *taken: str) -> tuple[str, ...]:
    """Return the fields that a join reads from a table, and the stored fields from which reads compute some of them."""
    names = _distinct(*taken, spec.table_options.soft_delete)
    return _distinct(*names, *RowRules(spec).stored(names))


def _unfilled(spec: TableSpecification, columns: Iterable[str]) -> list[dict[str, object]]:
    rules = RowRules(spec)
    if {*rules.computed, *rules.aliases}.isdisjoint(columns):
        return []
    return [rule_to_document(rule) for rule in spec.rules if not isinstance(rule, Retired) and not rule.ready]


def _distinct(*names: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))
