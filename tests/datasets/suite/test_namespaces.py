"""The dataset `namespaces`."""

from __future__ import annotations

import pytest

from structable.datasets import AlreadyExistsError, NotEmptyError, NotFoundError, StaleGenerationError, SystemData
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock


def test_system_data_are_shown_with_their_store(system: SystemData) -> None:
    assert repr(system) == f"<system datasets sys_* of {system.storage.url}>"


class TestNamespaces:
    def test_created_one_is_read(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            created = s.namespaces.create("sales", description="Sales", config={"quota": 3})
        with begin() as s:
            assert s.namespaces.get("sales") == created
            assert s.namespaces.require("sales").config == {"quota": 3}
            assert (created.generation, created.created, created.updated) == (1, clock.time, clock.time)

    def test_second_one_of_a_name_is_refused(self, begin: Begin) -> None:
        with begin() as s, pytest.raises(AlreadyExistsError):
            s.namespaces.create("default")

    @pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a" * 64, "a b", "ä", "a\n"])
    def test_bad_names_are_refused(self, begin: Begin, name: str) -> None:
        with begin() as s, pytest.raises(ValueError, match="namespace"):
            s.namespaces.create(name)

    def test_change_of_another_generation_is_refused(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            s.namespaces.create("sales")
        clock.tick()
        with begin() as s:
            assert s.namespaces.change("sales", generation=1, description="new").generation == 2
        with begin() as s:
            with pytest.raises(StaleGenerationError) as error:
                s.namespaces.change("sales", generation=1, description="other")
            assert (error.value.expected, error.value.found) == (1, 2)
            assert s.namespaces.require("sales").description == "new"

    def test_change_of_an_absent_one_is_refused(self, begin: Begin) -> None:
        with begin() as s, pytest.raises(NotFoundError):
            s.namespaces.change("absent", description="x")

    def test_pages_are_in_order(self, begin: Begin) -> None:
        with begin() as s:
            for name in ("c", "a", "b"):
                s.namespaces.create(name)
        with begin() as s:
            page = s.namespaces.page(limit=2)
            rest = s.namespaces.page(limit=100, cursor=page.next)
            assert [one.namespace for one in page.items + rest.items] == ["a", "b", "c", "default", "system"]

    def test_only_empty_ones_are_deleted(self, begin: Begin) -> None:
        with begin() as s:
            s.namespaces.create("sales")
            s.applications.deploy("sales", "shop", "1", {})
            s.applications.deploy("default", "shop", "1", {})
        with begin() as s:
            with pytest.raises(NotEmptyError) as error:
                s.namespaces.delete("sales")
            assert error.value.counts == {"applications": 1}
            s.applications.delete("sales", "shop")
        with begin() as s:
            s.namespaces.delete("sales")
            assert s.namespaces.get("sales") is None
            with pytest.raises(NotFoundError):
                s.namespaces.delete("sales")

    def test_deleted_one_takes_no_members_in_its_transaction(self, begin: Begin) -> None:
        with begin() as s:
            s.namespaces.create("sales")
        with begin() as s:
            s.configs.put("sales", "service", "web", properties={})
            s.namespaces.delete("sales")
            with pytest.raises(NotFoundError):
                s.applications.deploy("sales", "shop", "1", {})
            s.fences.share("ns/absent")
            with pytest.raises(NotFoundError):
                s.applications.deploy("absent", "shop", "1", {})

    def test_deletion_and_new_members_exclude_each_other(self, begin: Begin) -> None:
        with begin() as s:
            s.namespaces.create("sales")
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.namespaces.get("sales")
            with begin() as other:
                other.applications.deploy("sales", "shop", "1", {})
            s.namespaces.delete("sales")
