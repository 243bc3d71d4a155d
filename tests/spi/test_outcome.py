"""The definition of what writes make of a row: what of it follows from the rest, and what is said of it elsewhere."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.base.patches import misfit
from structable.spi import Field, InvalidFieldError, PatchArm, RecordExistsError, RowKind, TableSpecification, Value
from structable.spi.authors import Effect, Judged, Otherwise, Outcome, Outcomes, Refusal, RowWrite, Values, When

FIELDS = [Field.string("id"), Field.byte("n"), Field.byte("m"), Field.string("s")]
PLAIN = Outcomes(TableSpecification("t", FIELDS, ["id"]))
BLIND = Outcomes(
    TableSpecification(
        "t",
        FIELDS,
        ["id"],
        options={
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.m.aggregate-function": "max",
            "fields.s.aggregate-function": "max",
        },
    )
)
NUMBERS = st.none() | st.sampled_from([-128, -127, -1, 0, 1, 60, 100, 127])
TEXTS = st.none() | st.sampled_from(["", "a", "b"])
VALUES: dict[str, st.SearchStrategy[Value]] = {"n": NUMBERS, "m": NUMBERS, "s": TEXTS}
ROWS = st.none() | st.tuples(NUMBERS, NUMBERS, TEXTS)
SOME = st.fixed_dictionaries({}, optional=VALUES)
STEPS = st.builds(
    lambda name, amount: RowWrite(Effect.STEP, {name: amount}),
    st.sampled_from(["n", "m"]),
    st.sampled_from([-100, -1, 0, 1, 100]),
)
PUTS = st.builds(
    RowWrite,
    st.sampled_from([Effect.PUT, Effect.CHANGE, Effect.REMOVE, Effect.NONE]),
    SOME,
    st.sampled_from(When),
    st.sampled_from(Otherwise),
    expected=SOME,
    default=st.none() | SOME,
)
MERGES = st.builds(lambda kind, fields: RowWrite(Effect.MERGE, fields, kind=kind), st.sampled_from(RowKind), SOME)
ADDS = st.builds(
    lambda kind, fields: RowWrite(Effect.MERGE, fields, kind=kind),
    st.sampled_from([RowKind.INSERT, RowKind.UPDATE_AFTER]),
    SOME,
)
REMOVAL = RowWrite(Effect.REMOVE)


def outcome(outcomes: Outcomes, before: Values | None, *writes: RowWrite) -> Outcome | str:
    """Return the outcome, or the name of an error."""
    try:
        return outcomes.outcome(before, writes)
    except InvalidFieldError:
        return "overflow"


@given(ROWS, PUTS | STEPS | MERGES, PUTS | STEPS | MERGES)
def test_combined_writes(before: Values | None, first: RowWrite, second: RowWrite) -> None:
    combined = PLAIN.combine(first, second)
    if combined is not None:
        assert outcome(PLAIN, before, combined) == outcome(PLAIN, before, first, second)


@given(ROWS, ADDS, ADDS, ADDS)
def test_combined_merges(before: Values | None, first: RowWrite, second: RowWrite, third: RowWrite) -> None:
    """Merges of a blind table are one operand, if none of them overflows."""
    found = outcome(BLIND, before, first, second, third)
    combined = BLIND.combine(first, second)
    both = None if combined is None else BLIND.combine(combined, third)
    if found != "overflow" and both is not None:
        assert outcome(BLIND, before, both) == found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (RowWrite(Effect.CHANGE, {"n": 1}), RowWrite(Effect.CHANGE, {"m": 2})),
        (RowWrite(Effect.STEP, {"n": 1}), RowWrite(Effect.STEP, {"n": 2})),
        (RowWrite(Effect.PUT, {"n": 1}), RowWrite(Effect.STEP, {"n": 2})),
        (REMOVAL, RowWrite(Effect.PUT, {"n": 1}, When.ABSENT)),
        (RowWrite(Effect.PUT, {"n": 1}), RowWrite(Effect.CHANGE, {"m": 2}, When.PRESENT)),
        (RowWrite(Effect.MERGE, {"n": 1}), RowWrite(Effect.MERGE, {"n": 2}, kind=RowKind.DELETE)),
    ],
)
def test_what_combines(first: RowWrite, second: RowWrite) -> None:
    assert PLAIN.combine(first, second) is not None


@pytest.mark.parametrize(
    ("before", "write", "after"),
    [
        (None, RowWrite(Effect.CHANGE, {"n": 1}), (1, None, None)),
        ((1, 2, "a"), RowWrite(Effect.CHANGE, {"n": 3}), (3, 2, "a")),
        ((1, 2, "a"), RowWrite(Effect.PUT, {"n": 3}), (3, None, None)),
        ((1, 2, "a"), RowWrite(Effect.PUT, {}, When.ABSENT), Refusal.EXISTS),
        (None, RowWrite(Effect.CHANGE, {"n": 1}, When.PRESENT), Refusal.MISSING),
        (None, RowWrite(Effect.CHANGE, {"n": 1}, When.PRESENT, Otherwise.SKIP), None),
        (None, RowWrite(Effect.CHANGE, {"n": 1}, When.PRESENT, default={"m": 2}), (1, 2, None)),
        (None, RowWrite(Effect.CHANGE, {"n": 1}, When.EQUAL_OR_ABSENT, expected={"n": None}), (1, None, None)),
        (None, RowWrite(Effect.NONE, {}, When.EQUAL, expected={"n": None}), Refusal.CHANGED),
        (None, RowWrite(Effect.STEP, {"n": 5}), (5, None, None)),
        ((1, 2, "a"), RowWrite(Effect.MERGE, {}, kind=RowKind.UPDATE_BEFORE), None),
    ],
)
def test_one_write(before: Values | None, write: RowWrite, after: Outcome) -> None:
    assert PLAIN.outcome(before, [write]) == after


ARMS: Mapping[PatchArm, RowWrite] = {
    PatchArm.PRESENT: RowWrite(Effect.CHANGE, {"n": 1}, When.PRESENT),
    PatchArm.ABSENT: RowWrite(Effect.PUT, {"n": 2}, When.ABSENT, Otherwise.SKIP),
    PatchArm.REPLACE: RowWrite(Effect.PUT, {"n": 3}),
    PatchArm.DELETE: REMOVAL,
    PatchArm.INSERT: RowWrite(Effect.PUT, {"n": 4}, When.ABSENT),
    PatchArm.EXPECT: RowWrite(Effect.NONE, {}, When.EQUAL, expected={"m": 2}),
}


@given(st.sampled_from([None, (0, 2, "a"), (0, 3, "a")]), st.lists(st.sampled_from(PatchArm), max_size=4))
def test_arms_of_patches(before: Values | None, arms: list[PatchArm]) -> None:
    """The first judged writes are those of patch jobs: the same arms stand together, and one of them acts."""
    found = PLAIN.outcome(before, [ARMS[arm] for arm in arms], Judged.FIRST)
    error = misfit("t", ("x",), arms)
    if error is not None:
        assert found is (Refusal.EXISTS if isinstance(error, RecordExistsError) else Refusal.MISFIT)
        return
    if PatchArm.EXPECT in arms and (before is None or before[1] != 2):
        assert found is Refusal.CHANGED
        return
    acting = {arm for arm in arms if arm is not PatchArm.EXPECT}
    wanted: Outcome = before
    if PatchArm.PRESENT in acting and before is not None:
        wanted = (1, *before[1:])
    elif PatchArm.ABSENT in acting and before is None:
        wanted = (2, None, None)
    elif acting == {PatchArm.PRESENT}:
        wanted = Refusal.MISSING
    elif PatchArm.REPLACE in acting:
        wanted = (3, None, None)
    elif PatchArm.INSERT in acting:
        wanted = (4, None, None) if before is None or PatchArm.DELETE in acting else Refusal.EXISTS
    elif PatchArm.DELETE in acting:
        wanted = None
    assert found == wanted
