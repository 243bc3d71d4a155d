"""The effects of the rows of a write job of mode `patch`, checked, in one form for every store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from structable.spi import (
    Field,
    InvalidFieldError,
    PatchArm,
    RecordExistsError,
    StructableError,
    TableSpecification,
    WriteJob,
)
from structable.spi.authors import PATCH_COLUMNS, RowRules, StagedData, shown

from .job_rules import conformed_batches
from .ruled_batches import rows_of, with_columns

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyarrow import Array, DataType, RecordBatch

_ARM, _SET, _REQUIRED = PATCH_COLUMNS
_ARMS = {str(arm): arm for arm in PatchArm}
TOGETHER = (frozenset((PatchArm.PRESENT, PatchArm.ABSENT)), frozenset((PatchArm.DELETE, PatchArm.INSERT)))
"""The pairs of different arms that one key may have, in addition to EXPECT."""
REPEATABLE = frozenset((PatchArm.DELETE, PatchArm.EXPECT))
"""The arms that a key may have several times."""


class PatchMark(NamedTuple):
    """The effect of one row of a patch."""

    arm: PatchArm
    required: bool
    named: int
    """A bit for each column of the batch, the lowest for the first one; the bits of the key's columns are set."""


class PatchMarks(NamedTuple):
    """The marks of a batch: the few distinct ones, and each row's index into them."""

    distinct: tuple[PatchMark, ...]
    places: npt.NDArray[np.int64]

    def of_rows(self, values: Sequence[object], kind: DataType) -> Array[Any]:
        """Return for each row the value of its mark; `values` are in the order of `distinct`."""
        import pyarrow as pa

        found: Array[Any] = pa.array(values, kind).take(self.places)
        return found


def patched_batches(
    job: WriteJob, spec: TableSpecification, batches: StagedData
) -> Iterator[tuple[RecordBatch, PatchMarks]]:
    """Yield the non-empty batches with their marks; columns have the contract's types, and null where a row names none.

    Raises
    ------
    InvalidFieldError
        If batches differ in their columns, a row has no arm, or a row names a missing column.
    """
    from structable.spi.arrow import record_batches

    waiting: deque[PatchMarks] = deque()
    rules = RowRules.of(spec)

    def plain() -> Iterator[RecordBatch]:
        for batch in record_batches(spec.name, batches):
            marks, rest = _taken_apart(spec, batch)
            if batch.num_rows:
                waiting.append(marks)
            yield rest

    for conformed, _ in conformed_batches(job, spec, plain()):
        marks = waiting.popleft()
        named = _named_only(conformed, marks)
        yield (named, marks) if rules is None else _completed(rules, named, marks)


def _completed(rules: RowRules, batch: RecordBatch, marks: PatchMarks) -> tuple[RecordBatch, PatchMarks]:
    """Return a batch with the columns that rules add, and its marks with the columns that each row then names."""
    given = batch.schema.names
    added = rules.added(given)
    places = {name: place for place, name in enumerate((*given, *added))}
    names = [frozenset(name for name in given if mark.named >> places[name] & 1) for mark in marks.distinct]
    distinct: list[PatchMark] = []
    for mark, named in zip(marks.distinct, names, strict=True):
        if mark.arm is PatchArm.PRESENT:
            rules.require_sources(named)
        if mark.arm is PatchArm.EXPECT:
            every = {rules.aliases.get(name, name) for name in named}
        else:
            every = {*named, *(() if mark.arm is PatchArm.DELETE else rules.added(named))}
        distinct.append(mark._replace(named=sum(1 << places[name] for name in every)))
    rows: list[dict[str, Any]] = []
    for row, place in zip(rows_of(batch, given), marks.places.tolist(), strict=True):
        arm, known = marks.distinct[place].arm, {name: row[name] for name in given if name in names[place]}
        if arm is PatchArm.EXPECT:
            known = rules.expected(known)
        elif arm is not PatchArm.DELETE:
            known = rules.completed(known, whole=arm is not PatchArm.PRESENT)
        rows.append(known)
    changed = [name for name in (*given, *added) if name in rules.named]
    return with_columns(rules.spec, batch, rows, changed), PatchMarks(tuple(distinct), marks.places)


def misfit(table: str, key: tuple[object, ...], arms: Iterable[PatchArm]) -> StructableError | None:
    """Return the error if the arms of one key do not fit together; None if they do."""
    given = list(arms)
    once = [arm for arm in given if arm not in REPEATABLE]
    acting = sorted([*once, *{PatchArm.DELETE}.intersection(given)])
    if len(acting) <= 1 or (len(acting) == 2 and frozenset(acting) in TOGETHER):
        return None
    if PatchArm.INSERT in acting:
        return RecordExistsError(table, key)
    reason = (
        f"the key {shown(key)} has the arms {', '.join(acting)}; a key has at most one present and one absent, or one "
        "replace, or a delete and one insert"
    )
    return InvalidFieldError(table, _ARM, reason)


def _taken_apart(spec: TableSpecification, batch: RecordBatch) -> tuple[PatchMarks, RecordBatch]:
    """Return the marks of a batch, and the batch without their columns."""
    import numpy as np
    from pyarrow import RecordBatch

    if not isinstance(batch, RecordBatch) or batch.schema.names.count(_ARM) != 1:
        raise InvalidFieldError(spec.name, _ARM, "must be one column of each batch, with the arms of its rows")
    # By their places: a name may occur twice, which the check of names rejects later.
    places = [place for place, name in enumerate(batch.schema.names) if name not in PATCH_COLUMNS]
    names = [batch.schema.names[place] for place in places]
    key = sum(1 << place for place, name in enumerate(names) if name in spec.primary_key)
    arms, of_arms = _different(spec, batch, Field.string(_ARM))
    sets, of_sets = _optional(spec, batch, Field.bytes(_SET))
    required, of_required = _optional(spec, batch, Field.boolean(_REQUIRED))
    every = [_arm(spec, arm) for arm in arms]
    named = [key | _named(spec, names, one) for one in sets]
    combined, of_rows = np.unique(
        (of_arms * len(sets) + of_sets) * len(required) + of_required,
        return_inverse=True,
    )
    marks = tuple(
        PatchMark(
            every[one // len(required) // len(sets)],
            bool(required[one % len(required)]),
            named[one // len(required) % len(sets)],
        )
        for one in combined.tolist()
    )
    return PatchMarks(marks, of_rows), batch.select(places)


def _different(
    spec: TableSpecification, batch: RecordBatch, field: Field
) -> tuple[list[object], npt.NDArray[np.int64]]:
    """Return the distinct values of a column, and each row's index into them."""
    import numpy as np

    from structable.spi.arrow import conform_column

    encoded: Any = conform_column(spec.name, field, batch.column(field.name)).dictionary_encode()
    values: list[object] = encoded.dictionary.to_pylist()
    places = encoded.indices.fill_null(len(values)).to_numpy().astype(np.int64)
    return [*values, None] if encoded.null_count else values, places


def _optional(spec: TableSpecification, batch: RecordBatch, field: Field) -> tuple[list[object], npt.NDArray[np.int64]]:
    import numpy as np

    found = batch.schema.names.count(field.name)
    if found > 1:
        raise InvalidFieldError(spec.name, field.name, "appears twice in the batch; name each column once")
    return _different(spec, batch, field) if found else ([None], np.zeros(batch.num_rows, dtype=np.int64))


def _arm(spec: TableSpecification, text: object) -> PatchArm:
    arm = _ARMS.get(text) if isinstance(text, str) else None
    if arm is None:
        raise InvalidFieldError(spec.name, _ARM, f"is {shown(text)}; allowed are {', '.join(PatchArm)}")
    return arm


def _named(spec: TableSpecification, names: list[str], bits: object) -> int:
    every = (1 << len(names)) - 1
    if not isinstance(bits, bytes):
        return every
    named = int.from_bytes(bits, "little")
    if named & ~every:
        raise InvalidFieldError(spec.name, _SET, f"names a column beyond the {len(names)} of the batch: {shown(bits)}")
    return named


def _named_only(batch: RecordBatch, marks: PatchMarks) -> RecordBatch:
    """Return a batch with null in the columns that a row does not name."""
    every = (1 << batch.num_columns) - 1
    if all(mark.named == every for mark in marks.distinct):
        return batch
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: list[Array[Any]] = []
    for place, column in enumerate(batch.columns):
        named = [bool(mark.named >> place & 1) for mark in marks.distinct]
        if not all(named):
            column = pc.if_else(marks.of_rows(named, pa.bool_()), column, pa.scalar(None, column.type))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
