"""The datasets that runs and programs use, in both directions."""

from __future__ import annotations

import datetime as dt

from structable.datasets.identifiers import DatasetRef, ProgramRef, RunRef, check_names, check_run_id, run_id_bound
from structable.datasets.records import RecordIterator
from structable.datasets.tables.lineage import (
    LINEAGE_BY_DATASET,
    LINEAGE_BY_PROGRAM,
    USAGE_BY_DATASET,
    USAGE_BY_PROGRAM,
    Access,
    DatasetAccess,
    Usage,
)
from structable.spi import Range, col

from .context import Dataset


class Lineage(Dataset):
    """The datasets `lineage_by_dataset` and `lineage_by_program`, which hold the same rows under two keys."""

    def access(
        self, run: RunRef, dataset: DatasetRef, access: Access = Access.UNKNOWN, at: dt.datetime | None = None
    ) -> None:
        """Record that a run used a dataset; the same use again changes only its time."""
        check_names(**run.ref._asdict(), dataset_namespace=dataset.namespace, dataset=dataset.dataset)
        check_run_id(run.run)
        now = self._context.now(at)
        made = DatasetAccess(
            **run._asdict(),
            dataset_namespace=dataset.namespace,
            dataset=dataset.dataset,
            access=Access(access),
            at=now,
            day=now.date(),
        )
        self._context.records(LINEAGE_BY_DATASET).put(made)
        self._context.records(LINEAGE_BY_PROGRAM).put(made)

    def of_dataset(self, dataset: DatasetRef, begin: dt.datetime, end: dt.datetime) -> list[DatasetAccess]:
        """Return the uses of a dataset with `begin <= time < end`, in the order of runs."""
        within = (col("at") >= self._context.now(begin)) & (col("at") < self._context.now(end))
        with self._context.records(LINEAGE_BY_DATASET).scan(Range.prefix(tuple(dataset)), where=within) as found:
            return list(found)

    def of_program(self, ref: ProgramRef, begin: dt.datetime, end: dt.datetime) -> list[DatasetAccess]:
        """Return the uses by a program's runs that began in `begin <= time < end`, in the order of runs."""
        lower, upper = run_id_bound(self._context.now(begin)), run_id_bound(self._context.now(end))
        with self._by_program(Range((*ref, lower), (*ref, upper))) as found:
            return list(found)

    def of_run(self, run: RunRef) -> list[DatasetAccess]:
        """Return the uses by a run, in the order of datasets."""
        with self._by_program(Range.prefix(tuple(run))) as found:
            return list(found)

    def expire(self, before: dt.date, limit: int = 1000) -> int:
        """Delete at most `limit` uses before a day, oldest day first, and return their number: call it until 0."""
        by_program = self._context.records(LINEAGE_BY_PROGRAM)
        with by_program.scan(where=col("day") < before, order_by="day", limit=limit) as found:
            old = list(found)
        runs = [(*one.run_ref, one.dataset_namespace, one.dataset, one.access.value) for one in old]
        datasets = [(one.dataset_namespace, one.dataset, *one.run_ref, one.access.value) for one in old]
        by_program.table.delete_many(runs)
        self._context.records(LINEAGE_BY_DATASET).table.delete_many(datasets)
        return len(old)

    def _by_program(self, range: Range) -> RecordIterator[DatasetAccess]:
        return self._context.records(LINEAGE_BY_PROGRAM).scan(range)


class Usages(Dataset):
    """The datasets `usage_by_program` and `usage_by_dataset`, which hold the same rows under two keys."""

    def register(self, ref: ProgramRef, dataset: DatasetRef) -> None:
        """Record that a program uses a dataset; idempotent."""
        check_names(**ref._asdict(), dataset_namespace=dataset.namespace, dataset=dataset.dataset)
        made = Usage(**ref._asdict(), dataset_namespace=dataset.namespace, dataset=dataset.dataset)
        self._context.records(USAGE_BY_PROGRAM).put(made)
        self._context.records(USAGE_BY_DATASET).put(made)

    def unregister(self, ref: ProgramRef) -> int:
        """Delete all uses by a program, and return their number."""
        datasets = self.datasets_of(ref)
        self._context.records(USAGE_BY_PROGRAM).table.delete_many([(*ref, *dataset) for dataset in datasets])
        self._context.records(USAGE_BY_DATASET).table.delete_many([(*dataset, *ref) for dataset in datasets])
        return len(datasets)

    def datasets_of(self, ref: ProgramRef) -> list[DatasetRef]:
        """Return the datasets that a program uses, by name."""
        with self._context.records(USAGE_BY_PROGRAM).scan(Range.prefix(tuple(ref))) as found:
            return [DatasetRef(one.dataset_namespace, one.dataset) for one in found]

    def programs_of(self, dataset: DatasetRef) -> list[ProgramRef]:
        """Return the programs that use a dataset, by name."""
        with self._context.records(USAGE_BY_DATASET).scan(Range.prefix(tuple(dataset))) as found:
            return [one.ref for one in found]
