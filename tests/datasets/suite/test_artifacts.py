"""The datasets `artifacts`, `plugins` and `application_classes`."""

from __future__ import annotations

import pytest

from structable.datasets import (
    AlreadyExistsError,
    ArtifactRange,
    NotEmptyError,
    NotFoundError,
    ProvidedClass,
    ProvidedPlugin,
    SystemData,
    version_order,
)
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin

ETL = ArtifactRange("system", "etl", "1.0.0", "2.0.0")
JDBC = ProvidedPlugin("sink", "jdbc", {"driver": "any"})


class TestVersionOrder:
    def test_versions_are_in_order(self) -> None:
        versions = [
            "0",
            "1-SNAPSHOT",
            "1",
            "1.0",
            "1.8.0",
            "1.9",
            "1.9.0-1",
            "1.9.0-2",
            "1.9.0-10",
            "1.9.0-SNAPSHOT",
            "1.9.0-rc.2",
            "1.9.0-rc.10",
            "1.9.0-rc.10.1",
            "1.9.0-rc1-x",
            "1.9.0",
            "1.9.0.0",
            "1.10.0",
            "1.10.beta",
            "1.x",
            "02.1",
            "2.1",
            "10",
            "2024" + "0" * 31,
            "a",
            "b.1",
        ]
        texts = [version_order(version) for version in versions]
        assert texts == sorted(texts)
        assert [text.encode() for text in texts] == sorted(text.encode() for text in texts)

    def test_versions_of_equal_numbers_differ(self) -> None:
        assert version_order("1.09") < version_order("1.9") < version_order("1.010") < version_order("1.10")
        assert version_order("1.0") != version_order("1.00")
        assert version_order("1.0-a.b") != version_order("1.0-a-b")

    @pytest.mark.parametrize(
        "version",
        ["", ".", "1.", ".1", "1..2", "1-", "1-a.", "1 ", "1\n", "1/2", "ä", "1" * 36, "1." * 64 + "1", None, 1],
    )
    def test_bad_versions_are_refused(self, version: str) -> None:
        with pytest.raises(ValueError, match="version"):
            version_order(version)


class TestArtifacts:
    def test_added_one_is_read(self, begin: Begin) -> None:
        with begin() as s:
            added = s.artifacts.add(
                "default",
                "db",
                "1.0.0",
                parents=[ETL],
                plugins=[JDBC],
                application_classes=[ProvidedClass("org.Main")],
                properties={"scope": "USER"},
            )
        with begin() as s:
            assert s.artifacts.get("default", "db", "1.0.0") == added
            assert added.detail.plugins == (JDBC,)
            assert s.artifacts.get("default", "db", "1.0.1") is None
            with pytest.raises(AlreadyExistsError):
                s.artifacts.add("default", "db", "1.0.0")

    def test_versions_are_in_their_order(self, begin: Begin) -> None:
        with begin() as s:
            for version in ("1.10.0", "1.9.0", "1.9.0-SNAPSHOT", "2.0.0"):
                s.artifacts.add("default", "db", version)
            s.artifacts.add("default", "dc", "9.0.0")
        with begin() as s:

            def versions(low: str | None = None, high: str | None = None, reverse: bool = False) -> list[str]:
                return [one.version for one in s.artifacts.versions("default", "db", low, high, reverse)]

            assert versions() == ["1.9.0-SNAPSHOT", "1.9.0", "1.10.0", "2.0.0"]
            assert versions("1.9.0", "2.0.0") == ["1.9.0", "1.10.0"]
            assert versions(None, "1.9.0") == ["1.9.0-SNAPSHOT"]
            assert versions("1.10.0", reverse=True) == ["2.0.0", "1.10.0"]
            latest = s.artifacts.latest("default", "db")
            assert latest is not None
            assert latest.version == "2.0.0"
            assert s.artifacts.latest("default", "absent") is None
            page = s.artifacts.page("default", limit=3)
            rest = s.artifacts.page("default", cursor=page.next)
            assert [one.artifact for one in page.items + rest.items] == ["db"] * 4 + ["dc"]

    def test_plugins_are_found_by_the_parents_version(self, begin: Begin) -> None:
        with begin() as s:
            s.artifacts.add("default", "old", "1", parents=[ETL], plugins=[JDBC])
            s.artifacts.add(
                "default",
                "new",
                "1",
                parents=[ArtifactRange("system", "etl", "2.0.0", "3.0.0", low_inclusive=False, high_inclusive=True)],
                plugins=[JDBC, ProvidedPlugin("source", "file")],
            )
            s.artifacts.add("default", "open", "1", parents=[ArtifactRange("system", "etl")], plugins=[JDBC])
        with begin() as s:

            def brought(version: str, *names: str) -> list[str]:
                return [one.artifact for one in s.artifacts.plugins_of("system", "etl", version, *names)]

            assert brought("0.9.0") == ["open"]
            assert brought("1.0.0") == ["old", "open"]
            assert brought("2.0.0-SNAPSHOT") == ["old", "open"]
            assert brought("2.0.0") == ["open"]
            assert brought("2.0.1") == ["new", "open", "new"]
            assert brought("3.0.0", "sink") == ["new", "open"]
            assert brought("3.0.0", "source", "file") == ["new"]
            assert brought("3.0.0", "source", "jdbc") == []
            found = s.artifacts.plugins_of("system", "etl", "3.0.0", plugin="file")
            assert [(one.type, one.plugin, one.artifact) for one in found] == [("source", "file", "new")]
            assert brought("3.0.1") == ["open"]

    def test_plugins_without_parents_are_for_all_artifacts(self, begin: Begin) -> None:
        with begin() as s:
            s.namespaces.create("sales")
            s.artifacts.add("default", "own", "1", plugins=[JDBC])
            s.artifacts.add("system", "common", "1", plugins=[JDBC])
        with begin() as s:

            def brought(namespace: str) -> list[str]:
                return [one.artifact for one in s.artifacts.plugins_of(namespace, "any", "7")]

            assert brought("default") == ["own", "common"]
            assert brought("sales") == ["common"]
            assert brought("system") == ["common"]

    def test_applications_are_found_by_class(self, begin: Begin) -> None:
        with begin() as s:
            for version in ("1.9.0", "1.10.0"):
                s.artifacts.add(
                    "default", "app", version, application_classes=[ProvidedClass("org.Main", {"config": version})]
                )
        with begin() as s:
            found = s.artifacts.applications_of("default", "org.Main")
            assert [one.detail for one in found] == [{"config": "1.9.0"}, {"config": "1.10.0"}]
            assert s.artifacts.applications_of("default", "org.Other") == []

    def test_snapshots_are_replaced_with_what_they_brought(self, begin: Begin) -> None:
        with begin() as s:
            s.artifacts.add(
                "default",
                "db",
                "1-SNAPSHOT",
                parents=[ETL],
                plugins=[JDBC, ProvidedPlugin("sink", "file")],
                application_classes=[ProvidedClass("org.Old")],
            )
        with begin() as s:
            s.artifacts.add(
                "default", "db", "1-SNAPSHOT", plugins=[JDBC], application_classes=[ProvidedClass("org.New")]
            )
        with begin() as s:
            assert s.artifacts.plugins_of("system", "etl", "1.0.0") == []
            assert [one.plugin for one in s.artifacts.plugins_of("default", "db", "1-SNAPSHOT")] == ["jdbc"]
            assert s.artifacts.applications_of("default", "org.Old") == []
            assert len(s.artifacts.applications_of("default", "org.New")) == 1
            assert len(s.artifacts.versions("default", "db")) == 1

    def test_properties_are_replaced_alone(self, begin: Begin) -> None:
        with begin() as s:
            added = s.artifacts.add("default", "db", "1", plugins=[JDBC], properties={"a": "1"})
            s.artifacts.set_properties("default", "db", "1", {"b": "2"})
            with pytest.raises(NotFoundError):
                s.artifacts.set_properties("default", "db", "2", {})
        with begin() as s:
            found = s.artifacts.get("default", "db", "1")
            assert found is not None
            assert (found.detail.properties, found.detail.plugins) == ({"b": "2"}, added.detail.plugins)

    def test_deletion_takes_what_it_brought(self, begin: Begin) -> None:
        with begin() as s:
            s.artifacts.add(
                "default", "db", "1", parents=[ETL], plugins=[JDBC], application_classes=[ProvidedClass("org.Main")]
            )
            s.artifacts.add("default", "db", "2", parents=[ETL], plugins=[JDBC])
        with begin() as s:
            s.artifacts.delete("default", "db", "1")
            with pytest.raises(NotFoundError):
                s.artifacts.delete("default", "db", "1")
        with begin() as s:
            assert [one.version_order for one in s.artifacts.plugins_of("system", "etl", "1.0.0")] == [
                version_order("2")
            ]
            assert s.artifacts.applications_of("default", "org.Main") == []

    @pytest.mark.parametrize(
        ("parents", "plugins", "classes", "problem"),
        [
            ([ArtifactRange("system", "etl", "2", "1")], [JDBC], [], "versions from 2 to 1"),
            ([ETL, ArtifactRange("system", "etl")], [JDBC], [], "parent system/etl is given twice"),
            ([ArtifactRange("No", "etl")], [JDBC], [], "namespace"),
            ([ArtifactRange("system", "")], [JDBC], [], "parent"),
            ([ArtifactRange("system", "etl", "1..2")], [JDBC], [], "version"),
            ([], [JDBC, JDBC], [], "plugin sink/jdbc is given twice"),
            ([], [ProvidedPlugin("", "jdbc")], [], "type"),
            ([], [], [ProvidedClass("a"), ProvidedClass("a")], "class a is given twice"),
        ],
    )
    def test_bad_ones_are_refused(
        self,
        begin: Begin,
        parents: list[ArtifactRange],
        plugins: list[ProvidedPlugin],
        classes: list[ProvidedClass],
        problem: str,
    ) -> None:
        with begin() as s, pytest.raises(ValueError, match=problem):
            s.artifacts.add("default", "db", "1", parents=parents, plugins=plugins, application_classes=classes)
        with begin() as s:
            assert s.artifacts.page("default").items == []

    def test_artifacts_of_absent_namespaces_are_refused(self, begin: Begin) -> None:
        with begin() as s, pytest.raises(NotFoundError):
            s.artifacts.add("absent", "db", "1")

    def test_namespaces_with_artifacts_are_not_deleted(self, begin: Begin) -> None:
        with begin() as s:
            s.namespaces.create("sales")
            s.artifacts.add("sales", "db", "1")
        with begin() as s, pytest.raises(NotEmptyError) as error:
            s.namespaces.delete("sales")
        assert error.value.counts == {"artifacts": 1}

    def test_removal_of_a_namespace_takes_what_its_artifacts_brought(self, system: SystemData, begin: Begin) -> None:
        with begin() as s:
            s.namespaces.create("sales")
            s.artifacts.add(
                "sales", "db", "1", parents=[ETL], plugins=[JDBC], application_classes=[ProvidedClass("org.Main")]
            )
            s.artifacts.add("default", "db", "1", parents=[ETL], plugins=[JDBC])
        system.remove_namespace("sales")
        with begin() as s:
            assert [one.namespace for one in s.artifacts.plugins_of("system", "etl", "1.0.0")] == ["default"]
            assert s.artifacts.applications_of("sales", "org.Main") == []

    def test_snapshot_and_deletion_that_overlap_conflict(self, begin: Begin) -> None:
        with begin() as s:
            s.artifacts.add("default", "db", "1-SNAPSHOT", parents=[ETL], plugins=[JDBC])
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.artifacts.get("default", "db", "1-SNAPSHOT")
            with begin() as other:
                other.artifacts.delete("default", "db", "1-SNAPSHOT")
            s.artifacts.add("default", "db", "1-SNAPSHOT", plugins=[JDBC])
        with begin() as s:
            assert s.artifacts.plugins_of("system", "etl", "1.0.0") == []
