"""Cascades: all rows of an application, or of a namespace, whichever table they are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from structable.datasets.identifiers import check_name, check_namespace_name, joined
from structable.datasets.records import RecordTable
from structable.datasets.tables import ALL_TABLES
from structable.datasets.tables.applications import APPLICATIONS
from structable.datasets.tables.runs import RUNS
from structable.datasets.tables.schedules import SCHEDULE_JOBS
from structable.spi import Key, Range, col

from .context import Context

KEPT_FOR_LAST = 10_000
"""The number of newest runs that are deleted in the last transaction, with everything else."""
_CHUNK = 1_000

Run = Callable[[Callable[[Context], Any]], Any]
"""Runs a function in a transaction of its own, and again after a conflict."""


def remove_application(run: Run, namespace: str, application: str) -> None:
    """Remove the rows whose fields `namespace` and `application` are these, and the jobs of its schedules."""
    check_namespace_name(namespace)
    check_name(application, "application")
    _remove(run, {"namespace": namespace, "application": application})


def remove_namespace(run: Run, namespace: str) -> None:
    """Remove the rows whose field `namespace` is this, and the jobs of its schedules."""
    _remove(run, {"namespace": check_namespace_name(namespace)})


def _remove(run: Run, values: dict[str, str]) -> None:
    old: list[Key] = run(lambda context: _old_runs(context, values))
    for start in range(0, len(old), _CHUNK):
        chunk = old[start : start + _CHUNK]
        run(lambda context: context.records(RUNS).table.delete_many(chunk))  # noqa: B023 - called at once
    run(lambda context: _remove_all(context, values))


def _old_runs(context: Context, values: dict[str, str]) -> list[Key]:
    """Return the keys of the runs that are not kept for last, oldest first."""
    prefix = Range.prefix(tuple(values.values()))
    with context.records(RUNS).table.scan(prefix, columns=["run"]) as rows:
        keys = sorted((str(row["run"]), row.key) for row in rows)
    return [key for _, key in keys[: max(0, len(keys) - KEPT_FOR_LAST)]]


def _remove_all(context: Context, values: dict[str, str]) -> None:
    if "application" in values:
        context.exclude("app/{namespace}/{application}".format(**values))
    else:
        context.no_member_of(values["namespace"])
        # Parts of an application, such as runs, share only the application's fence.
        with context.records(APPLICATIONS).scan(Range.prefix((values["namespace"],))) as found:
            for one in found:
                context.exclude(f"app/{one.namespace}/{one.application}")
    jobs = joined(*values.values()) + "/"
    context.records(SCHEDULE_JOBS).delete_all(Range.all(), col("schedule").startswith(jobs))
    for table in ALL_TABLES:
        if values.keys() <= table.fields.keys():
            _remove_rows(context, table, values)


def _remove_rows(context: Context, table: RecordTable[Any], values: dict[str, str]) -> None:
    rows = context.records(table).table
    names = tuple(values)
    if table.specification.primary_key[: len(names)] == names:
        rows.delete_all(Range.prefix(tuple(values.values())))
        return
    where = col(names[0]) == values[names[0]]
    for name in names[1:]:
        where = where & (col(name) == values[name])
    rows.delete_all(Range.all(), where)
