"""The datasets `dataset_instances`, `dataset_kinds` and `dataset_modules`."""

from __future__ import annotations

import pytest

from structable.datasets import AlreadyExistsError, InUseError, NotEmptyError, NotFoundError
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin


class TestDatasetCatalog:
    def test_users_must_find_what_they_use(self, begin: Begin) -> None:
        with begin() as s:
            with pytest.raises(NotFoundError):
                s.dataset_catalog.add_module("absent", "files")
            with pytest.raises(NotFoundError):
                s.dataset_catalog.add_kind("default", "csv", module="files")
            with pytest.raises(NotFoundError):
                s.dataset_catalog.add_instance("default", "orders", kind="csv")
            module = s.dataset_catalog.add_module("default", "files", definition={"jar": "x"})
            kind = s.dataset_catalog.add_kind("default", "csv", module="files")
            instance = s.dataset_catalog.add_instance("default", "orders", kind="csv", definition={"path": "/o"})
            with pytest.raises(AlreadyExistsError):
                s.dataset_catalog.add_instance("default", "orders", kind="csv")
        with begin() as s:
            assert s.dataset_catalog.get_module("default", "files") == module
            assert s.dataset_catalog.get_kind("default", "csv") == kind
            assert s.dataset_catalog.get_instance("default", "orders") == instance
            assert s.dataset_catalog.page_module("default").items == [module]
            assert s.dataset_catalog.page_kind("default").items == [kind]
            assert s.dataset_catalog.page_instance("default").items == [instance]
            with pytest.raises(NotEmptyError):
                s.namespaces.delete("default")

    def test_used_ones_stay(self, begin: Begin) -> None:
        with begin() as s:
            s.dataset_catalog.add_module("default", "files")
            s.dataset_catalog.add_kind("default", "csv", module="files")
            s.dataset_catalog.add_instance("default", "orders", kind="csv")
        with begin() as s:
            with pytest.raises(InUseError, match="csv"):
                s.dataset_catalog.delete_module("default", "files")
            with pytest.raises(InUseError, match="orders"):
                s.dataset_catalog.delete_kind("default", "csv")
            s.dataset_catalog.delete_instance("default", "orders")
            s.dataset_catalog.delete_kind("default", "csv")
            s.dataset_catalog.delete_module("default", "files")
            with pytest.raises(NotFoundError):
                s.dataset_catalog.delete_module("default", "files")

    def test_use_and_deletion_exclude_each_other(self, begin: Begin) -> None:
        with begin() as s:
            s.dataset_catalog.add_module("default", "files")
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.dataset_catalog.get_module("default", "files")
            with begin() as other:
                other.dataset_catalog.add_kind("default", "csv", module="files")
            s.dataset_catalog.delete_module("default", "files")
