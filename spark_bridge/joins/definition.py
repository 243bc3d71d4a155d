"""`ForeignKeyJoin`: the definition of a foreign-key join, with the checks that need no store."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from structable.spark_bridge.base.table_ref import TableRef, require_ref
from structable.spi import Field, InvalidSpecificationError, Row, Value, mask_url
from structable.spi.authors import shown

Joiner: TypeAlias = Callable[[Row, Row | None], Mapping[str, Value] | None]
"""Makes a result row's fields from a left row and its right row, if it has one; None for no row."""
Side: TypeAlias = Literal["left", "right"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,47}\Z")
_FIELD = r"[A-Za-z][A-Za-z0-9_]{0,47}"
_SOURCE = re.compile(rf"(left|right)\.({_FIELD})\Z")
_KINDS = ("inner", "left")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ForeignKeyJoin:
    """A join of a left table with the right table to which it refers by fields; immutable, picklable, equal by content.

    A third table, the result, holds it. Its primary key is the left table's: it has at most one row for each left row.
    A left row matches the right row whose key is its foreign key; a null in any part of the foreign key matches
    nothing. A row of either table whose `soft-delete.field` is true counts as absent. At every commit the result is
    exactly the join of both tables as they stood at its recorded positions.

    The constructor raises every fault that can be found without a store; `JoinWorker` raises the others.

    Parameters
    ----------
    name : str
        The name of the join, one letter and at most 47 letters, digits, underscores and dots. It names the row of the
        table `structable_progress` in the result's store.
    left, right : TableRef
        The tables to join. Both have a primary key and the option `changelog-producer=lookup`. They may be the same
        table, and each may be the result of another join.
    on : mapping of str to str, or iterable of str
        Fields of the left table to all fields of the right table's primary key; or fields of the left table, in the
        order of that key. Their types must be equal. The left rows of a right row are found by the leading fields of
        the left table's primary key, if these belong to the foreign key, else by the first field of the foreign key
        that has an index.
    how : {"inner", "left"}
        `inner`: a row for each left row with a match. `left`: a row for each left row; the fields of the right row are
        null without a match.
    select : mapping of str to str, optional
        The fields of the result outside of its key: their names, to `left.FIELD` or `right.FIELD`. An empty mapping:
        the key alone. Not given: all fields of the left table and the right table's fields outside of its key, under
        their own names, as the tables have them when the join first runs, or is rebuilt.
    joiner : callable, optional
        In place of `select`: a function of a left row and its right row, or None, that returns the fields of the
        result outside of its key, or None for no row. Fields that it leaves out are null. It must be deterministic,
        and importable from its module by name.
    result_fields : iterable of Field, optional
        With `joiner`: the fields outside of the result's key.
    result : TableRef
        The result, which is created with `changelog-producer=lookup` if it is absent. Only the join writes to it.

    Raises
    ------
    InvalidSpecificationError
        With all faults at once.
    TypeError
        If a table is not a TableRef.
    """

    name: str
    left: TableRef
    right: TableRef
    on: Mapping[str, str] | tuple[str, ...] = field(hash=False)
    how: Literal["inner", "left"]
    select: Mapping[str, str] | None = field(hash=False)
    joiner: Joiner | None
    result_fields: tuple[Field, ...] | None
    result: TableRef

    def __init__(
        self,
        name: str,
        left: TableRef,
        right: TableRef,
        on: Mapping[str, str] | Iterable[str],
        how: Literal["inner", "left"] = "inner",
        *,
        select: Mapping[str, str] | None = None,
        joiner: Joiner | None = None,
        result_fields: Iterable[Field] | None = None,
        result: TableRef,
    ) -> None:
        for argument, ref in (("left", left), ("right", right), ("result", result)):
            require_ref(ref, argument)
        faults: list[str] = []
        if not isinstance(name, str) or not _NAME.match(name):
            faults.append(f"the name is {shown(name)}; it must be a letter and at most 47 letters, digits, _ and .")
        if how not in _KINDS:
            faults.append(f"how is {shown(how)}; it must be inner or left")
        if result in (left, right):
            faults.append(f"the result {result!r} is an input, too; name another table")
        pairs = _checked_on(on, faults)
        chosen = _checked_select(select, faults)
        fields = _checked_result(select, joiner, result_fields, faults)
        if faults:
            raise InvalidSpecificationError(f"join {shown(name)}: " + "; ".join(faults))
        arguments = (name, left, right, pairs, how, chosen, joiner, fields, result)
        for attribute, value in zip(self.__slots__, arguments, strict=True):
            object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        sides = " and ".join(f"{mask_url(ref.url)} {ref.name}" for ref in (self.left, self.right))
        return f"ForeignKeyJoin({self.name!r}, {self.how} join of {sides}, result={self.result!r})"


def parse_source(source: str) -> tuple[Side, str]:
    """Return the side and the field of a checked source of `select`."""
    side, _, name = source.partition(".")
    return cast(Side, side), name


def joiner_name(joiner: Joiner) -> str:
    """Return the name by which `load_joiner` finds a joiner: `module:name`."""
    return f"{getattr(joiner, '__module__', None)}:{getattr(joiner, '__qualname__', None)}"


def load_joiner(name: str) -> Joiner:
    """Return the joiner of a name.

    Raises
    ------
    ImportError, AttributeError, ValueError
        If there is no such module, or it has no such function.
    """
    module, _, path = name.partition(":")
    found: object = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return cast(Joiner, found)


def _checked_on(on: object, faults: list[str]) -> Mapping[str, str] | tuple[str, ...]:
    if isinstance(on, Mapping):
        pairs: Mapping[str, str] | tuple[str, ...] = dict(on)
        names = [*on, *on.values()]
        targets = [one for one in on.values() if isinstance(one, str)]
    elif isinstance(on, Iterable) and not isinstance(on, str | bytes):
        pairs = tuple(on)
        names, targets = list(pairs), []
    else:
        faults.append(f"on is {shown(on)}; it must map fields of the left table to the right's key, or list the former")
        return ()
    if not names:
        faults.append("on is empty; it must name a field of the left table for each field of the right's key")
    faults.extend(
        f"on has {shown(name)}, which is not the name of a field" for name in names if not isinstance(name, str)
    )
    faults.extend(
        f"on names the field {shown(name)} of the right table twice; each field of its key has one field of the left"
        for name in dict.fromkeys(targets)
        if targets.count(name) > 1
    )
    return pairs


def _checked_select(select: object, faults: list[str]) -> Mapping[str, str] | None:
    if select is None:
        return None
    if not isinstance(select, Mapping):
        faults.append(f"select is {shown(select)}; it must map names to left.FIELD or right.FIELD")
        return None
    faults.extend(
        f"select has {shown(name)}: {shown(source)}; it must map a name to left.FIELD or right.FIELD"
        for name, source in select.items()
        if not isinstance(name, str) or not isinstance(source, str) or not _SOURCE.match(source)
    )
    _check_names("select", select, faults)
    return dict(select)


def _checked_result(
    select: object, joiner: Joiner | None, result_fields: object, faults: list[str]
) -> tuple[Field, ...] | None:
    if joiner is None:
        if result_fields is not None:
            faults.append("result_fields is given without a joiner; leave it out, or give the joiner")
        return None
    if select is not None:
        faults.append("select and joiner are given; one of them says what the result has")
    if problem := _unimportable(joiner):
        faults.append(problem)
    fields = tuple(result_fields) if isinstance(result_fields, Iterable) else None
    if fields is None or not all(isinstance(one, Field) for one in fields):
        faults.append(f"result_fields is {shown(result_fields)}; with a joiner it must list Fields")
        return None
    _check_names("result_fields", [one.name for one in fields], faults)
    return fields


def _check_names(argument: str, names: Iterable[object], faults: list[str]) -> None:
    given = [name for name in names if isinstance(name, str)]
    faults.extend(
        f"{argument} names the field {shown(name)}; it must be a letter and at most 47 letters, digits and _"
        for name in given
        if not re.fullmatch(_FIELD, name)
    )
    folded = [name.lower() for name in given]
    equal = [name for name in given if folded.count(name.lower()) > 1]
    if equal:
        faults.append(f"{argument} names the fields {', '.join(equal)}, which differ in case at most; rename them")


def _unimportable(joiner: Joiner) -> str | None:
    """Return why no other process could import a joiner; None if it can."""
    if not callable(joiner):
        return f"joiner is {shown(joiner)}; it must be a function"
    name = joiner_name(joiner)
    try:
        found = load_joiner(name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if found is joiner:
        return None
    return f"the joiner {name} cannot be imported; make it a function of a module, by its own name"
