"""Equal documents have equal texts in every process, or are listed; `Document.equals` finds all of them equal."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structable.datasets import DocumentError
from structable.datasets.records.documents import Document

ROOT = Path(__file__).parents[3]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.Enum):
    SMALL = 2
    LARGE = 10


class Pair(NamedTuple):
    name: str
    parts: frozenset[str]


class Part(msgspec.Struct, frozen=True, tag=True, rename="camel"):
    part_color: Color
    parts: frozenset[Color] = frozenset()


class Row(msgspec.Struct, frozen=True, array_like=True, tag="row"):
    id: int
    tags: frozenset[str] = frozenset()


class Sparse(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = "a default"
    tags: frozenset[Color] = frozenset({Color.RED, Color.BLUE})


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Point:
    x: int
    tags: frozenset[str] = frozenset()


class Members(TypedDict, total=False):
    a: int
    b: int


class Quiet(msgspec.Struct, eq=False):
    number: float
    inside: dict[str, Any] = {}


EAST = dt.timezone(dt.timedelta(hours=2))
NOON, NOON_EAST = dt.datetime(2026, 1, 5, 12, tzinfo=dt.UTC), dt.datetime(2026, 1, 5, 14, tzinfo=EAST)
WORDS = ("apple", "pear", "plum", "fig", "kiwi", "lime")
SETS: dict[str, Any] = {
    "under integers": {10: set(WORDS), 2: {"x"}, 33: {3.5, 2, -1}},
    "in other keys": {NOON: {Color.RED, Color.BLUE}, NOON_EAST.replace(year=2025): set(WORDS)},
    "of enumerations": [set(Color), {Size.LARGE, Size.SMALL}, {Color.RED: set(Size), Color.BLUE: frozenset(Color)}],
    "of sets": {frozenset(WORDS[:3]), frozenset(WORDS[2:]), frozenset({"z"}), frozenset()},
    "of tuples of sets": {(word, frozenset(WORDS)) for word in WORDS} | {("fig", frozenset(WORDS[:2]))},
    "of named tuples": {Pair(word, frozenset({word, "x"})) for word in WORDS},
    "of structs": {Part(Color.RED), Part(Color.BLUE, frozenset(Color)), Part(Color.RED, frozenset(Color))},
    "of arrays": [{Row(1, frozenset(WORDS)), Row(1, frozenset(WORDS[1:]))}],
    "of ordered classes": {Point(1, frozenset({word})) for word in WORDS} | {Point(1, frozenset(WORDS))},
    "of several types": {None, "x", 10, 9, (1, "y"), ("y", 1), *WORDS},
    "of scalars": [{b"x", b"yy"}, {Decimal(10), Decimal("9.5")}, {NOON, NOON_EAST.replace(hour=1)}, {10, 9.5, 8}],
    "in structs": Sparse(tags=frozenset({Color.RED})),
    "in arrays": [Row(2, frozenset(WORDS)), Sparse(), {"x": Row(3)}],
}
"""Documents whose sets have another order in each process."""
TEXTS = f"""
from {__name__} import SETS
from structable.datasets.records.documents import Document
from typing import Any
anything = Document("table", "field", Any)
for value in SETS.values():
    print(anything.encode(value))
    print(anything.merge('{{"b":1}}', {{"a": value}}))
"""


def test_texts_are_the_same_in_every_process() -> None:
    texts = set()
    for seed in ("1", "2", "3"):
        command = [sys.executable, "-c", TEXTS]
        done = subprocess.run(
            command, cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        texts.add(done.stdout)
    (text,) = texts
    lines = text.splitlines()
    assert lines[0] == '{"10":["apple","fig","kiwi","lime","pear","plum"],"2":["x"],"33":[-1,2,3.5]}'
    assert lines[1::2] == [f'{{"a":{one},"b":1}}' for one in lines[::2]]
    assert '[["apple","plum"' not in text, "a set of sets is sorted within, too"


KINDS: dict[str, Any] = {
    "numbers": (dict[str, float], {"a": 1, "b": 0.0}, {"a": 1.0, "b": -0.0}),
    "numbers of any type": (Any, [1, 10**16, 0.0], [1.0, 1e16, -0.0]),
    "keys that are numbers": (dict[float, int], {1: 1}, {1.0: 1}),
    "decimals": (list[Decimal], [Decimal("1.0"), Decimal(100)], [Decimal("1.00"), Decimal("1E+2")]),
    "decimals of any type": (Any, {"a": [Decimal("1.0")]}, {"a": [Decimal("1.00")]}),
    "keys that are decimals": (dict[Decimal, int], {Decimal("1.0"): 1}, {Decimal("1.00"): 1}),
    "sets of decimals": (set[Decimal], {Decimal("9.0"), Decimal(10)}, {Decimal("9.00"), Decimal("1E+1")}),
    "instants": (list[dt.datetime], [NOON], [NOON_EAST]),
    "instants of any type": (dict[str, object], {"a": NOON}, {"a": NOON_EAST}),
    "keys that are instants": (dict[dt.datetime, int], {NOON: 1}, {NOON_EAST: 1}),
    "times of day": (list[dt.time], [dt.time(12, tzinfo=dt.UTC)], [dt.time(14, tzinfo=EAST)]),
    "a set as a list": (dict[str, set[str]], {"a": {"x", "y"}}, {"a": ["y", "x"]}),
    "a struct's default": (Part, Part(Color.RED), {"type": "Part", "partColor": "red"}),
    "a default left out": (Sparse, Sparse(), Sparse("".join(["a ", "default"]), frozenset(Color))),
    "a struct that has no equality": (Quiet, Quiet(1), Quiet(1.0)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_equal_values_of_different_texts_are_equal(kind: str) -> None:
    wanted, one, other = KINDS[kind]
    document = Document("table", "field", wanted)
    texts = document.encode(one), document.encode(other)
    assert texts[0] != texts[1], "these texts are equal: the documentation lists too much"
    assert document.equals(texts[0], other)
    assert document.equals(texts[1], one)


@pytest.mark.parametrize(
    ("wanted", "stored", "value"),
    [
        (dict[int, set[str]], '{"2":["x"],"10":["y","x"]}', {10: {"x", "y"}, 2: {"x"}}),
        (dict[str, set[Color]], '{"a":["red","blue"]}', {"a": set(Color)}),
        (set[Part], '[{"partColor":"red","type":"Part"},{"partColor":"blue"}]', {Part(Color.RED), Part(Color.BLUE)}),
        (Row, '["row",1]', Row(1)),
        (dict[str, str], ' {"b" : "\\u00e9", "a":"x"}\n', {"a": "x", "b": "é"}),
        (Members, '{"b":1,"a":2}', {"a": 2, "b": 1}),
        (list[Point], '[{"x":1}]', [Point(1)]),
    ],
)
def test_texts_that_others_wrote_are_equal(wanted: object, stored: str, value: object) -> None:
    document = Document("table", "field", wanted)
    assert document.decode(stored) == document.decode(document.encode(value))
    assert document.equals(stored, value)


@pytest.mark.parametrize(
    ("wanted", "stored", "value"),
    [
        (Any, '{"a":true}', {"a": 1}),
        (Any, "[0]", [False]),
        (Any, '{"a":1}', {"a": "1"}),
        (Any, '{"a":1}', {"a": 1, "b": None}),
        (Any, '{"a":["x","y"]}', {"a": ["y", "x"]}),
        (Any, '["1.0","x"]', [Decimal("1.01"), "x"]),
        (Any, '["1.0"]', ["1.00"]),
        (Any, '["no time"]', [NOON]),
        (Any, "9007199254740993", 9007199254740992.0),
        (dict[str, Decimal], '{"a":"1.0"}', {"a": Decimal("1.1")}),
        (list[dt.datetime], '["2026-01-05T12:00:00"]', [NOON]),
        (dict[str, set[str]], '{"a":["x"]}', {"a": {"x", "y"}}),
        (Part, '{"type":"Part","partColor":"red","new":1}', Part(Color.RED)),
        (list[Point], '[{"x":1,"new":1}]', [Point(1)]),
        (set[Part], '[{"type":"Part","partColor":"red","new":1}]', {Part(Color.RED)}),
        (Row, '["row",1,[],"new"]', Row(1)),
        (Members, '{"a":1,"new":2}', {"a": 1}),
        (dict[str, int], '{"a":"no number"}', {"a": 1}),
        (dict[str, int], "no JSON", {"a": 1}),
    ],
)
def test_unequal_documents(wanted: object, stored: str, value: object) -> None:
    """A document with members that its type ignores is none of them: they would be lost."""
    assert not Document("table", "field", wanted).equals(stored, value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: "a", "1": "b"}, "two of its keys have one text"),
        ({Color.RED: {1: 2}, "red": 3}, "two of its keys have one text"),
        ({math.nan: 1}, "nan"),
        ({Decimal("NaN"): 1}, "NaN"),
        ({Decimal("NaN"), Decimal(1)}, "NaN|InvalidOperation"),
        ([[Decimal("sNaN")]], "sNaN"),
        ({"a": {1: math.inf}}, "inf"),
        (dt.datetime(1900, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=19, seconds=32))), "convert it to UTC"),
        ([dt.time(1, tzinfo=dt.timezone(dt.timedelta(seconds=7)))], "convert it to UTC"),
    ],
)
def test_values_whose_texts_would_be_others_are_refused(value: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DocumentError, match=message):
        Document("table", "field", Any).encode(value)
    with pytest.raises(DocumentError, match=message):
        Document("table", "field", Any).merge("{}", {"a": value})


def test_what_resembles_them_is_kept() -> None:
    anything = Document("table", "field", Any)
    assert anything.encode([[Decimal("1E+400")], dt.datetime(1, 1, 1, tzinfo=EAST)]) == (
        '[["1E+400"],"0001-01-01T00:00:00+02:00"]'
    )
    assert anything.encode([{"raw": msgspec.Raw(b"null")}]) == '[{"raw":null}]'


class Everything(msgspec.Struct, frozen=True):
    words: dict[int, frozenset[str]]
    colors: frozenset[Color]
    sets: frozenset[frozenset[int]]
    points: frozenset[Point]
    mixed: frozenset[int | str | None]
    prices: dict[str, Decimal]
    times: tuple[dt.datetime, ...]
    free: Any


SMALL = st.integers(-40, 40)
WORD = st.sampled_from(WORDS)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
FREE = st.recursive(
    st.none() | st.booleans() | SMALL | st.floats(allow_nan=False, allow_infinity=False) | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.builds(
    Everything,
    words=st.dictionaries(SMALL, st.frozensets(WORD), max_size=3),
    colors=st.frozensets(st.sampled_from(Color)),
    sets=st.frozensets(st.frozensets(SMALL, max_size=3), max_size=3),
    points=st.frozensets(st.builds(Point, SMALL, st.frozensets(WORD, max_size=2)), max_size=3),
    mixed=st.frozensets(st.none() | SMALL | WORD, max_size=4),
    prices=st.dictionaries(WORD, st.decimals(-50, 50, places=1), max_size=3),
    times=st.lists(
        st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=OFFSETS), max_size=2
    ).map(tuple),
    free=FREE,
)  # fmt: skip
EVERYTHING = Document("table", "field", Everything)


def made_again(value: Any, scalar: Callable[[Any], Any] = lambda one: one) -> Any:  # noqa: ANN401
    """Return an equal value, its maps and sets filled in another order."""

    def again(one: Any) -> Any:  # noqa: ANN401
        return made_again(one, scalar)

    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: again(one) for name, one in reversed(msgspec.structs.asdict(value).items())})
    if isinstance(value, dict):
        return {again(key): again(one) for key, one in reversed(value.items())}
    if isinstance(value, frozenset):
        return frozenset(map(again, reversed(list(value))))
    return type(value)(map(again, value)) if isinstance(value, list | tuple) else scalar(value)


def respelled(value: Any) -> Any:  # noqa: ANN401
    """Return an equal scalar of another text, as far as there is one."""
    match value:
        case Decimal():
            return value.quantize(Decimal("0.001"))
        case dt.datetime():
            return value.astimezone(EAST)
        case float() if value.is_integer():
            return int(value)
        case int() if not isinstance(value, bool):
            return float(value)
    return value


EXAMPLES = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@EXAMPLES
@given(DOCUMENTS)
def test_equal_values_are_equal_texts(value: Everything) -> None:
    text = EVERYTHING.encode(value)
    assert EVERYTHING.encode(made_again(value)) == text
    assert EVERYTHING.decode(text) == value


@EXAMPLES
@given(DOCUMENTS)
def test_respelled_values_are_equal(value: Everything) -> None:
    other = msgspec.structs.replace(
        value,
        prices=made_again(value.prices, respelled),
        times=made_again(value.times, respelled),
        free=made_again(value.free, respelled),
    )
    assert other == value
    assert EVERYTHING.equals(EVERYTHING.encode(value), other)
    assert EVERYTHING.equals(EVERYTHING.encode(other), value)


@EXAMPLES
@given(DOCUMENTS, DOCUMENTS, st.sampled_from(Everything.__struct_fields__))
def test_other_values_are_not(value: Everything, other: Everything, name: str) -> None:
    changed = msgspec.structs.replace(value, **{name: getattr(other, name)})
    assert not EVERYTHING.equals(EVERYTHING.encode(value), changed) or changed == value
