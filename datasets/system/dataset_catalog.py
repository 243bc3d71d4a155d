"""The catalog of datasets: modules, the kinds that they bring, and the instances of kinds."""

from __future__ import annotations

from structable.datasets.errors import InUseError
from structable.datasets.identifiers import check_name
from structable.datasets.records import Page, Records
from structable.datasets.tables.catalog import (
    DATASET_INSTANCES,
    DATASET_KINDS,
    DATASET_MODULES,
    DatasetInstance,
    DatasetKind,
    DatasetModule,
)
from structable.spi import Range

from .context import Dataset


class DatasetCatalog(Dataset):
    """The datasets `dataset_instances`, `dataset_kinds` and `dataset_modules`.

    Deleting a kind or a module holds the fence `kind/NAMESPACE/KIND` or `module/NAMESPACE/MODULE` exclusively; each new
    user shares it.
    """

    def add_module(self, namespace: str, module: str, *, definition: object = None) -> DatasetModule:
        """Add a module.

        Raises
        ------
        AlreadyExistsError
            If it exists.
        NotFoundError
            If there is no such namespace.
        """
        made = DatasetModule(namespace=namespace, module=check_name(module, "module"), definition=definition)
        self._context.member_of(namespace)
        self._modules.insert(made)
        return made

    def get_module(self, namespace: str, module: str) -> DatasetModule | None:
        """Return the module, or None."""
        return self._modules.get(namespace, module)

    def page_module(self, namespace: str, *, cursor: str | None = None, limit: int = 100) -> Page[DatasetModule]:
        """Return a page of a namespace's modules, by name."""
        return self._modules.page(Range.prefix((namespace,)), cursor=cursor, limit=limit)

    def delete_module(self, namespace: str, module: str) -> None:
        """Delete a module.

        Raises
        ------
        NotFoundError
            If there is no such module.
        InUseError
            If it brings a kind.
        """
        self._modules.require(namespace, module)
        self._context.exclude(f"module/{namespace}/{module}")
        with self._kinds.find("module", module, range=Range.prefix((namespace,)), limit=1) as found:
            for kind in found:
                raise InUseError(f"module {namespace}/{module}", f"kind {kind.kind}")
        self._modules.delete(namespace, module)

    def add_kind(self, namespace: str, kind: str, *, module: str, definition: object = None) -> DatasetKind:
        """Add a kind that a module brings.

        Raises
        ------
        AlreadyExistsError
            If it exists.
        NotFoundError
            If there is no such namespace, or module.
        """
        made = DatasetKind(namespace=namespace, kind=check_name(kind, "kind"), module=module, definition=definition)
        self._modules.require(namespace, module)
        self._context.member_of(namespace)
        self._kinds.insert(made)
        self._context.share(f"module/{namespace}/{module}")
        return made

    def get_kind(self, namespace: str, kind: str) -> DatasetKind | None:
        """Return the kind, or None."""
        return self._kinds.get(namespace, kind)

    def page_kind(self, namespace: str, *, cursor: str | None = None, limit: int = 100) -> Page[DatasetKind]:
        """Return a page of a namespace's kinds, by name."""
        return self._kinds.page(Range.prefix((namespace,)), cursor=cursor, limit=limit)

    def delete_kind(self, namespace: str, kind: str) -> None:
        """Delete a kind.

        Raises
        ------
        NotFoundError
            If there is no such kind.
        InUseError
            If a dataset is of it.
        """
        self._kinds.require(namespace, kind)
        self._context.exclude(f"kind/{namespace}/{kind}")
        with self._instances.find("kind", kind, range=Range.prefix((namespace,)), limit=1) as found:
            for instance in found:
                raise InUseError(f"kind {namespace}/{kind}", f"dataset {instance.dataset}")
        self._kinds.delete(namespace, kind)

    def add_instance(self, namespace: str, dataset: str, *, kind: str, definition: object = None) -> DatasetInstance:
        """Add a dataset of a kind.

        Raises
        ------
        AlreadyExistsError
            If it exists.
        NotFoundError
            If there is no such namespace, or kind.
        """
        made = DatasetInstance(
            namespace=namespace, dataset=check_name(dataset, "dataset"), kind=kind, definition=definition
        )
        self._kinds.require(namespace, kind)
        self._context.member_of(namespace)
        self._instances.insert(made)
        self._context.share(f"kind/{namespace}/{kind}")
        return made

    def get_instance(self, namespace: str, dataset: str) -> DatasetInstance | None:
        """Return the dataset, or None."""
        return self._instances.get(namespace, dataset)

    def page_instance(self, namespace: str, *, cursor: str | None = None, limit: int = 100) -> Page[DatasetInstance]:
        """Return a page of a namespace's datasets, by name."""
        return self._instances.page(Range.prefix((namespace,)), cursor=cursor, limit=limit)

    def delete_instance(self, namespace: str, dataset: str) -> None:
        """Delete a dataset; nothing is written if there is none."""
        self._instances.delete(namespace, dataset)

    @property
    def _instances(self) -> Records[DatasetInstance]:
        return self._context.records(DATASET_INSTANCES)

    @property
    def _kinds(self) -> Records[DatasetKind]:
        return self._context.records(DATASET_KINDS)

    @property
    def _modules(self) -> Records[DatasetModule]:
        return self._context.records(DATASET_MODULES)
