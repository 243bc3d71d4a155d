"""The datasets `applications`, `application_versions`, `application_history` and `application_state`."""

from __future__ import annotations

import pytest

from structable.datasets import AlreadyExistsError, InUseError, NotFoundError, StaleParentError, SystemData, new_run_id
from structable.datasets.tables.runs import RUNS, Run, RunStatus
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock


def add_run(system: SystemData, application: str, version: str, *, active: bool) -> None:
    """Put a run of a version."""
    runs = RUNS.named("sys_runs")(system.storage)
    status = RunStatus.RUNNING if active else RunStatus.COMPLETED
    runs.put(
        Run(
            namespace="default",
            application=application,
            program_type="service",
            program="web",
            run=new_run_id(),
            version=version,
            status=status,
            active=active or None,
            source=1,
        )
    )


class TestApplications:
    def test_deployed_version_is_the_latest(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            one = s.applications.deploy("default", "shop", "1", {"programs": ["web"]}, artifact=["shop", "1.0"])
            two = s.applications.deploy("default", "shop", "2", {}, parent="1", author="ada", summary="faster")
            three = s.applications.deploy("default", "shop", "3", {}, latest=False)
        with begin() as s:
            assert s.applications.latest("default", "shop") == two
            assert s.applications.get("default", "shop", "1") == one
            assert one.spec == {"programs": ["web"]}
            assert [one.ordinal, two.ordinal, three.ordinal, three.created] == [1, 2, 3, clock.time]
            assert s.applications.versions("default", "shop") == [three, two, one]
            keys = [("default", "shop", "3"), ("default", "shop", "9"), ("default", "shop", "1")]
            assert s.applications.get_many(keys) == [one, three]
            assert s.applications.latest("default", "absent") is None

    def test_first_version_is_the_latest_in_any_case(self, begin: Begin) -> None:
        with begin() as s:
            made = s.applications.deploy("default", "shop", "1", {}, latest=False)
            assert s.applications.latest("default", "shop") == made

    def test_refused_deployments_write_nothing(self, begin: Begin) -> None:
        with begin() as s:
            s.applications.deploy("default", "shop", "1", {})
        with begin() as s:
            with pytest.raises(AlreadyExistsError):
                s.applications.deploy("default", "shop", "1", {})
            with pytest.raises(StaleParentError) as error:
                s.applications.deploy("default", "shop", "2", {}, parent="0")
            assert (error.value.parent, error.value.latest) == ("0", "1")
            with pytest.raises(StaleParentError):
                s.applications.deploy("default", "other", "2", {}, parent="0")
            with pytest.raises(NotFoundError):
                s.applications.deploy("absent", "shop", "1", {})
            with pytest.raises(ValueError, match="application"):
                s.applications.deploy("default", "", "1", {})
        with begin() as s:
            assert len(s.applications.versions("default", "shop")) == 1
            assert s.applications.count("default") == 1

    def test_two_first_deployments_collide(self, begin: Begin) -> None:
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.applications.latest("default", "shop")
            with begin() as other:
                other.applications.deploy("default", "shop", "1", {})
            s.applications.deploy("default", "shop", "2", {})

    def test_pages_and_counts(self, begin: Begin) -> None:
        with begin() as s:
            for namespace, name in (("default", "ab"), ("default", "aa"), ("default", "b"), ("system", "a")):
                s.applications.deploy(namespace, name, "1", {})
        with begin() as s:
            page = s.applications.page("default", prefix="a", limit=1)
            rest = s.applications.page("default", prefix="a", limit=1, cursor=page.next)
            assert [one.application for one in page.items + rest.items] == ["aa", "ab"]
            assert [one.application for one in s.applications.page("default", reverse=True).items] == ["b", "ab", "aa"]
            assert (s.applications.count(), s.applications.count("default"), s.applications.count("system")) == (
                3,
                3,
                1,
            )

    def test_marks_and_sources(self, begin: Begin) -> None:
        with begin() as s:
            s.applications.deploy("default", "shop", "1", {})
            s.applications.deploy("default", "shop", "2", {})
            s.applications.mark_latest("default", "shop", "1")
            s.applications.set_source("default", "shop", "1", {"commit": "abc"})
        with begin() as s:
            latest = s.applications.latest("default", "shop")
            assert latest is not None
            assert (latest.version, latest.source) == ("1", {"commit": "abc"})
            with pytest.raises(NotFoundError):
                s.applications.mark_latest("default", "shop", "3")
            with pytest.raises(NotFoundError):
                s.applications.set_source("default", "shop", "3", {})

    def test_deleted_latest_gives_way_to_the_last_of_the_others(self, begin: Begin) -> None:
        with begin() as s:
            for version in ("1", "2", "3"):
                s.applications.deploy("default", "shop", version, {})
        with begin() as s:
            s.applications.delete_version("default", "shop", "3")
            latest = s.applications.latest("default", "shop")
            assert latest is not None
            assert latest.version == "2"
            assert s.applications.deploy("default", "shop", "4", {}).ordinal == 4
        with begin() as s:
            for version in ("1", "2", "4"):
                s.applications.delete_version("default", "shop", version)
        with begin() as s:
            assert s.applications.latest("default", "shop") is None
            assert s.applications.count() == 0
            with pytest.raises(NotFoundError):
                s.applications.delete_version("default", "shop", "1")

    def test_versions_with_active_runs_stay(self, begin: Begin, system: SystemData) -> None:
        with begin() as s:
            s.applications.deploy("default", "shop", "1", {})
            s.applications.deploy("default", "shop", "2", {})
        add_run(system, "shop", "1", active=True)
        add_run(system, "shop", "2", active=False)
        with begin() as s:
            with pytest.raises(InUseError):
                s.applications.delete_version("default", "shop", "1")
            with pytest.raises(InUseError):
                s.applications.delete("default", "shop")
            s.applications.delete_version("default", "shop", "2")
        with begin() as s:
            assert [one.version for one in s.applications.versions("default", "shop")] == ["1"]

    def test_state_goes_with_its_application(self, begin: Begin) -> None:
        with begin() as s:
            with pytest.raises(NotFoundError):
                s.application_state.put("default", "shop", "offset", b"1")
            s.applications.deploy("default", "shop", "1", {})
            s.application_state.put("default", "shop", "offset", b"1")
            s.application_state.put("default", "shop", "other", b"2")
            s.application_state.delete("default", "shop", "other")
        with begin() as s:
            assert s.application_state.get("default", "shop", "offset") == b"1"
            assert s.application_state.get("default", "shop", "other") is None
            s.applications.delete("default", "shop")
            assert s.application_state.get("default", "shop", "offset") is None
            assert s.applications.versions("default", "shop") == []
        with begin() as s:
            s.applications.deploy("default", "shop", "1", {})
            s.application_state.put("default", "shop", "a", b"1")
            assert s.application_state.delete_all("default", "shop") == 1

    def test_state_and_deletion_exclude_each_other(self, begin: Begin) -> None:
        with begin() as s:
            s.applications.deploy("default", "shop", "1", {})
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.applications.latest("default", "shop")
            with begin() as other:
                other.application_state.put("default", "shop", "offset", b"1")
            s.applications.delete("default", "shop")
