"""The statements that merge changes into rows, one or many with distinct keys.

In a transaction they change the rows that its snapshot has and insert the others, as `statements` and `batches` do for
the same reasons. In the auto-commit view (`waits`) each waits for other writers of its rows, and takes effect on the
newest ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from structable.backends.postgresql.driver.statement import Statement

from .binding import TableBinding
from .merging import Effect, MergeSql, Name, column
from .types import stored_type

__all__ = ["merge_many", "merge_row", "upserting"]


def merge_row(binding: TableBinding, effect: Effect, names: tuple[str, ...], *, waits: bool) -> Statement:
    """Return the statement that merges a change; its parameters are the fields `names`, the key first."""

    def make() -> Statement:
        places = {name: f"${place + 1}" for place, name in enumerate(names)}
        types = [binding.oids[name] for name in names]
        merge = MergeSql(binding.write_spec, effect, names)
        key = {name: places[name] for name in binding.spec.primary_key}
        if effect is Effect.DELETE:
            where = _all(_same(key), merge.condition(places.__getitem__), binding.token)
            return Statement(f"delete from {binding.qualified} as t where {where}", types)
        if waits:
            source = f"where {_all(merge.takes_effect(places.__getitem__), binding.token)}"
            return Statement(upserting(binding, merge, places.__getitem__, source), types)
        operand = merge.operand(places.__getitem__)
        parts = []
        if not merge.keeps_existing:
            where = _all(
                _same(key), merge.takes_effect(places.__getitem__), merge.condition(operand.__getitem__), binding.token
            )
            changes = _set(merge, operand.__getitem__)
            parts.append(f"with _changed as (update {binding.qualified} as t set {changes} where {where})")
        absent = f"not exists (select from {binding.qualified} as t where {_same(key)})"
        values = {**key, **operand}
        where = _all(absent, merge.takes_effect(places.__getitem__), binding.token)
        parts.append(
            f"insert into {binding.qualified} ({_columns(values)}) select {', '.join(values.values())} where {where}"
        )
        return Statement(" ".join(parts), types)

    found: Statement = binding.kept(("merge_row", effect, names, waits), make)
    return found


def merge_many(binding: TableBinding, effect: Effect, names: tuple[str, ...], *, waits: bool) -> Statement:
    """Return the statement that merges changes of distinct keys; its parameters are an array of each field."""

    def make() -> Statement:
        fields = [binding.spec.field(name) for name in names]
        types = [stored_type(field).array_oid for field in fields]
        merge = MergeSql(binding.write_spec, effect, names)
        arrays = ", ".join(f"${place + 1}" for place in range(len(names)))
        given = f"unnest({arrays}) as g({_columns(names)})"
        key = binding.spec.primary_key
        if effect is Effect.DELETE:
            where = _all(_same(dict.fromkeys(key), "g"), merge.condition(_of("g")), binding.token)
            text = f"delete from {binding.qualified} as t using {given} where {where}"
        elif waits:
            source = f"from {given} where {_all(merge.takes_effect(_of('g')), binding.token)}"
            text = upserting(binding, merge, _of("g"), source)
        else:
            text = _located(binding, merge, given)
        return Statement(text, types, is_small=False)

    found: Statement = binding.kept(("merge_many", effect, names, waits), make)
    return found


def _located(binding: TableBinding, merge: MergeSql, given: str) -> str:
    """Return the statement that finds rows by the key's index, and then by their places, as those of `batches` do."""
    key = binding.spec.primary_key
    operand = merge.operand(_of("g"))
    values = {**{name: _of("g")(name) for name in key}, **operand}
    same = _same(dict.fromkeys(key), "g")
    row = f"select t.ctid as _place from {binding.qualified} as t where {same} and {binding.token}"
    listed = ", ".join(f"{value} as {column(name)}" for name, value in values.items())
    parts = [
        f"with _given as materialized (select {listed}, _found._place from {given} "
        f"left join lateral ({row} offset 0) as _found on true where {merge.takes_effect(_of('g'))})"
    ]
    if not merge.keeps_existing:
        where = _all("t.ctid = _given._place", merge.condition(_of("_given")), binding.token)
        changes = _set(merge, _of("_given"))
        parts.append(f", _changed as (update {binding.qualified} as t set {changes} from _given where {where})")
    columns = _columns(values)
    parts.append(
        f" insert into {binding.qualified} ({columns}) select {columns} from _given "
        f"where _place is null and {binding.token}"
    )
    return "".join(parts)


def upserting(binding: TableBinding, merge: MergeSql, given: Name, source: str) -> str:
    """Return the statement that merges the changes of a source with distinct keys, whatever others write meanwhile.

    `source` is the SQL after the columns of its SELECT.
    """
    key = binding.spec.primary_key
    operand = merge.operand(given)
    values = {**{name: given(name) for name in key}, **operand}
    insert = f"insert into {binding.qualified} as t ({_columns(values)}) select {', '.join(values.values())} {source}"
    conflict = f"on conflict ({_columns(key)})"
    if merge.keeps_existing:
        return f"{insert} {conflict} do nothing"
    condition = merge.condition(_of("excluded"))
    where = "" if condition == "true" else f" where {condition}"
    return f"{insert} {conflict} do update set {_set(merge, _of('excluded'))}{where}"


def _of(source: str) -> Callable[[str], str]:
    return lambda name: f"{source}.{column(name)}"


def _columns(names: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(map(column, names))


def _same(key: dict[str, str | None] | dict[str, str], source: str | None = None) -> str:
    """Return the condition that `t` has a key, given by values or as the columns of a source."""
    return " and ".join(
        f"t.{column(name)} = {value if source is None else _of(source)(name)}" for name, value in key.items()
    )


def _set(merge: MergeSql, new: Name) -> str:
    return ", ".join(f"{column(name)} = {value}" for name, value in merge.assignments(new).items())


def _all(*conditions: str) -> str:
    return " and ".join(one for one in conditions if one != "true")
