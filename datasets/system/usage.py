"""Which programs use which datasets, in both directions."""

from __future__ import annotations

from structable.datasets.identifiers import DatasetRef, ProgramRef, check_names
from structable.datasets.tables.lineage import USAGE_BY_DATASET, USAGE_BY_PROGRAM, Usage
from structable.spi import Range

from .context import Dataset

__all__ = ["Usages"]


class Usages(Dataset):
    """The datasets `usage_by_program` and `usage_by_dataset`, which hold the same rows under two keys."""

    def register(self, ref: ProgramRef, dataset: DatasetRef) -> None:
        """Keep that a program uses a dataset; idempotent."""
        check_names(**ref._asdict(), dataset_namespace=dataset.namespace, dataset=dataset.dataset)
        made = Usage(**ref._asdict(), dataset_namespace=dataset.namespace, dataset=dataset.dataset)
        self._context.records(USAGE_BY_PROGRAM).put(made)
        self._context.records(USAGE_BY_DATASET).put(made)

    def unregister(self, ref: ProgramRef) -> int:
        """Forget what a program uses, and return how many datasets that were."""
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
