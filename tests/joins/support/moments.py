"""Changes of a table in the midst of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from structable.spark_bridge.joins.failpoints import failpoints
from structable.spi import FieldRule, Storage, WriteJob, WriteMode


@contextmanager
def rule_of_a_moment(storage: Storage, table: str, rule: FieldRule) -> Iterator[None]:
    """Set a rule as the next write job of this kind of store begins, and remove it once the job is staged."""
    kind = type(storage)
    begin = kind.begin_write

    def remove_rule() -> None:
        failpoints.clear()
        storage.admin.set_rules(table, [])

    with pytest.MonkeyPatch.context() as patch:

        def set_rule(worker: Storage, result: str, *, mode: WriteMode, job_id: str) -> WriteJob:
            patch.undo()
            storage.admin.set_rules(table, [rule])
            failpoints["staged"] = remove_rule
            return begin(worker, result, mode=mode, job_id=job_id)

        patch.setattr(kind, "begin_write", set_rule)
        yield
