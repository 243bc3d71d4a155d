"""A table's type and rules in words: the meaning of its options and of the rules of its fields."""

from __future__ import annotations

from collections.abc import Iterator

from structable.spi import (
    Aggregate,
    AggregateFunction,
    ChangelogProducer,
    FieldRule,
    MergeEngine,
    Renamed,
    Retired,
    TableOptions,
    TableSpecification,
    WriteBehaviour,
)
from structable.spi.text import function_to_document


def rule_in_words(rule: FieldRule) -> str:
    """Return a rule of a table's fields in words."""
    if isinstance(rule, Retired):
        return f"the table has been retired since {rule.since.isoformat(sep=' ')}"
    if isinstance(rule, Renamed):
        said = f"{rule.new} is the new name of {rule.old}"
    else:
        parts = function_to_document(rule.function)
        kind = parts.pop("kind")
        said = f"{rule.field} is {kind}({', '.join(f'{name}={one!r}' for name, one in parts.items())}) of {rule.source}"
    return said if rule.ready else f"{said}, and is being filled"


def type_in_words(spec: TableSpecification) -> list[tuple[str, str]]:
    """Return remarks about writing to a table, as pairs of a subject and a text."""
    options = spec.table_options
    if spec.keyless:
        rows = _KEYLESS[options.write_mode]
        return [("type", f"{options.write_mode} without a primary key: {rows}"), *_feed(options)]
    return [
        ("type", "keyed"),
        ("merge engine", str(options.merge_engine)),
        *_sequences(options),
        *((f"function of {name}", _function(one)) for name, one in options.functions.items()),
        *_deletes(options),
        *_feed(options),
    ]


def _sequences(options: TableOptions) -> Iterator[tuple[str, str]]:
    if options.sequence:
        yield "sequence", ", ".join(options.sequence)
    for group in options.groups:
        yield f"sequence {', '.join(group.fields)}", f"of {', '.join(group.members)}"


def _function(aggregate: Aggregate) -> str:
    parts = [aggregate.function.value]
    if aggregate.function is AggregateFunction.LISTAGG:
        parts.append(f"delimiter {aggregate.delimiter!r}")
    if aggregate.distinct:
        parts.append("distinct")
    if aggregate.ignore_retract:
        parts.append("retracts are ignored")
    return ", ".join(parts)


def _deletes(options: TableOptions) -> Iterator[tuple[str, str]]:
    if options.soft_delete:
        yield "retracts", f"set {options.soft_delete} to true"
    if options.ignore_delete:
        yield "retracts", "are ignored"
    if options.remove_on_delete:
        updates = "ignored" if options.merge_engine is MergeEngine.PARTIAL_UPDATE else "retracted"
        yield "retracts", f"-D removes the row, -U is {updates}"


_KEYLESS = {
    WriteBehaviour.CHANGE_LOG: "a bag of rows, added and taken back",
    WriteBehaviour.APPEND_ONLY: "rows can only be added",
    WriteBehaviour.LOG: "rows are kept in the change feed only",
}
_FEEDS = {
    ChangelogProducer.INPUT: "the rows as given to the calls",
    ChangelogProducer.LOOKUP: "the rows before and after each commit",
    ChangelogProducer.FULL_COMPACTION: "the rows before and after, net",
}


def _feed(options: TableOptions) -> Iterator[tuple[str, str]]:
    producer = options.changelog_producer
    if producer in _FEEDS:
        every = f" of {_duration(options.compaction_interval)}" if producer is ChangelogProducer.FULL_COMPACTION else ""
        yield "change feed", f"{producer}: {_FEEDS[producer]}{every}, kept for {_duration(options.time_retained)}"


def _duration(seconds: float) -> str:
    """Return a duration in the largest unit that divides it."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    name, size = next(((name, size) for name, size in units if seconds % size == 0), ("ms", 0.001))
    return f"{seconds / size:g} {name}"
