"""The datasets `profiles` and `profile_assignments`."""

from __future__ import annotations

import pytest

from structable.datasets import (
    AlreadyExistsError,
    InUseError,
    NotFoundError,
    ProgramRef,
    RunStatus,
    SystemData,
    new_run_id,
)
from structable.datasets.tables.namespaces import ProfileStatus
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin

WEB = ProgramRef("default", "shop", "service", "web")


class TestProfiles:
    def test_created_ones_are_enabled(self, begin: Begin) -> None:
        with begin() as s:
            made = s.profiles.create("default", "small", provisioner={"nodes": 1})
            s.profiles.create("default", "large")
            with pytest.raises(AlreadyExistsError):
                s.profiles.create("default", "small")
            with pytest.raises(NotFoundError):
                s.profiles.create("absent", "small")
        with begin() as s:
            assert s.profiles.get("default", "small") == made
            assert made.status is ProfileStatus.ENABLED
            assert [one.profile for one in s.profiles.page("default").items] == ["large", "small"]
            with pytest.raises(NotFoundError):
                s.profiles.set_status("default", "absent", ProfileStatus.DISABLED)

    def test_only_unused_ones_are_deleted(self, begin: Begin) -> None:
        run = new_run_id()
        with begin() as s:
            s.profiles.create("default", "small")
            s.applications.deploy("default", "shop", "1", {})
            s.runs.provision(WEB, run, version="1", source=1, profile="small")
            s.profiles.assign("default", "small", "default/shop")
            with pytest.raises(InUseError):
                s.profiles.delete("default", "small")
            s.profiles.set_status("default", "small", ProfileStatus.DISABLED)
        with begin() as s:
            with pytest.raises(InUseError, match="default/shop"):
                s.profiles.delete("default", "small")
            with pytest.raises(InUseError, match="disabled"):
                s.profiles.assign("default", "small", "default/mail")
            assert [one.entity for one in s.profiles.assignments("default", "small")] == ["default/shop"]
            s.profiles.unassign("default", "small", "default/shop")
            with pytest.raises(InUseError, match=run):
                s.profiles.delete("default", "small")
            s.runs.stop(WEB, run, status=RunStatus.KILLED, source=2)
        with begin() as s:
            s.profiles.delete("default", "small")
            with pytest.raises(NotFoundError):
                s.profiles.assign("default", "small", "default")
            with pytest.raises(NotFoundError):
                s.profiles.delete("default", "small")

    @pytest.mark.parametrize("use", ["assign", "provision"])
    def test_use_and_deletion_exclude_each_other(self, begin: Begin, use: str) -> None:
        with begin() as s:
            s.profiles.create("default", "small")
            s.applications.deploy("default", "shop", "1", {})
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.profiles.get("default", "small")
            with begin() as other:
                if use == "assign":
                    other.profiles.assign("default", "small", "default")
                else:
                    other.runs.provision(WEB, new_run_id(), version="1", source=1, profile="small")
            s.profiles.set_status("default", "small", ProfileStatus.DISABLED)
            s.profiles.delete("default", "small")

    def test_assignment_and_removal_of_its_namespace_exclude_each_other(self, begin: Begin, system: SystemData) -> None:
        with begin() as s:
            s.namespaces.create("sales")
            s.profiles.create("sales", "small")
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.profiles.get("sales", "small")
            system.remove_namespace("sales")
            s.profiles.assign("sales", "small", "sales")
        with begin() as s:
            assert s.profiles.assignments("sales", "small") == []

    def test_assignment_and_disabling_exclude_each_other(self, begin: Begin) -> None:
        with begin() as s:
            s.profiles.create("default", "small")
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.profiles.get("default", "small")
            with begin() as other:
                other.profiles.assign("default", "small", "default")
            s.profiles.set_status("default", "small", ProfileStatus.DISABLED)
