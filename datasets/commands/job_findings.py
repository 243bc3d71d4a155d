"""The findings of `structable doctor` about job queues."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from structable.datasets import JobState, SystemData
from structable.datasets.tables.jobs import JOBS, TABLES
from structable.spi import Finding, FindingLevel, Range, Storage, col


def findings(storage: Storage) -> Iterator[Finding]:
    """Yield a finding for each queue of each prefix in the store: its jobs past `until`."""
    names = set(storage.admin.list())
    for name in sorted(one for one in names if one.endswith(JOBS.name)):
        prefix = name.removesuffix(JOBS.name)
        if not names.issuperset(prefix + table.name for table in TABLES):
            continue
        tables = [table.named(prefix + table.name) for table in TABLES]
        if any(table.differences(storage.admin.get_specification(table.name)) for table in tables):
            continue
        with SystemData(storage, prefix=prefix).transaction(read_only=True) as s:
            now = dt.datetime.now(dt.UTC)
            for queue in s.jobs.queues():
                running = Range.prefix((queue, JobState.RUNNING.value))
                late = s.tx.table(name).count([running], where=col("until") < now)
                yield _finding(f"queue {queue} of {name}", late)


def _finding(subject: str, late: int) -> Finding:
    if not late:
        return Finding(FindingLevel.OK, subject, "no job is past its timeout")
    text = (
        f"{late:,} of its jobs run past their timeout: any worker rescues them if theirs has stopped; "
        "otherwise their handlers are long"
    )
    return Finding(FindingLevel.NOTE, subject, text)
