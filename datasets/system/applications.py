"""Applications: versions deployed one after the other, one of them the latest, and values that applications keep."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from structable.datasets.errors import AlreadyExistsError, InUseError, StaleParentError
from structable.datasets.identifiers import check_name, check_names
from structable.datasets.records import Page, Records
from structable.datasets.tables.applications import (
    APPLICATION_HISTORY,
    APPLICATION_STATE,
    APPLICATION_VERSIONS,
    APPLICATIONS,
    Application,
    ApplicationEdit,
    ApplicationState,
    ApplicationVersion,
)
from structable.datasets.tables.runs import RUNS
from structable.spi import Range, col

from .context import Dataset


class Applications(Dataset):
    """The datasets `applications`, `application_versions` and `application_history`.

    Deleting versions holds the fence `app/NAMESPACE/APPLICATION` exclusively; each new run shares it.
    """

    def deploy(
        self,
        namespace: str,
        application: str,
        version: str,
        spec: object,
        *,
        artifact: object = None,
        parent: str | None = None,
        author: str | None = None,
        summary: str | None = None,
        latest: bool = True,
        at: dt.datetime | None = None,
    ) -> ApplicationVersion:
        """Deploy a version, and make it the latest; the first version becomes the latest even with `latest=False`.

        Parameters
        ----------
        spec, artifact : JSON documents
            The application's specification, and its artifact.
        parent : str, optional
            The version that this one was made from.

        Raises
        ------
        AlreadyExistsError
            If the version exists.
        StaleParentError
            If the parent is not the latest version.
        NotFoundError
            If there is no such namespace.
        """
        check_names(application=application, version=version)
        now = self._context.now(at)
        head = self._heads.get(namespace, application)
        if parent is not None and (head is None or head.latest != parent):
            raise StaleParentError(parent, None if head is None else head.latest)
        if self._versions.get(namespace, application, version) is not None:
            raise AlreadyExistsError(self._versions.table.specification.name, (namespace, application, version))
        ordinal = 1 if head is None else head.edits + 1
        made = ApplicationVersion(
            namespace=namespace,
            application=application,
            version=version,
            spec=spec,
            artifact=artifact,
            author=author,
            summary=summary,
            ordinal=ordinal,
            created=now,
        )
        self._context.member_of(namespace)
        self._versions.insert(made)
        edit = ApplicationEdit(namespace=namespace, application=application, ordinal=ordinal, version=version)
        self._history.put(edit)
        becomes = version if latest or head is None else head.latest
        self._heads.put(
            Application(namespace=namespace, application=application, latest=becomes, edits=ordinal, updated=now)
        )
        return made

    def get(self, namespace: str, application: str, version: str) -> ApplicationVersion | None:
        """Return a version, or None."""
        return self._versions.get(namespace, application, version)

    def get_many(self, keys: Iterable[tuple[str, str, str]]) -> list[ApplicationVersion]:
        """Return the versions of these keys that exist, in key order."""
        return self._versions.get_many(keys)

    def latest(self, namespace: str, application: str) -> ApplicationVersion | None:
        """Return the latest version, or None if there is no such application."""
        head = self._heads.get(namespace, application)
        return None if head is None else self._versions.get(namespace, application, head.latest)

    def versions(self, namespace: str, application: str) -> list[ApplicationVersion]:
        """Return all versions, the one deployed last first."""
        with self._versions.scan(Range.prefix((namespace, application))) as found:
            return sorted(found, key=lambda version: version.ordinal, reverse=True)

    def page(
        self,
        namespace: str,
        *,
        prefix: str = "",
        reverse: bool = False,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ApplicationVersion]:
        """Return a page of the latest versions of applications whose names begin with `prefix`, by name."""
        where = col("application").startswith(prefix) if prefix else None
        heads = self._heads.page(Range.prefix((namespace,)), cursor=cursor, limit=limit, reverse=reverse, where=where)
        found = self._versions.get_many([(head.namespace, head.application, head.latest) for head in heads.items])
        return Page(found[::-1] if reverse else found, heads.next)

    def count(self, namespace: str | None = None) -> int:
        """Return the number of applications of a namespace; without one, of all but `system`."""
        if namespace is not None:
            return self._heads.count([Range.prefix((namespace,))])
        return self._heads.count([Range.below(("system",)), Range.above(("system",))])

    def mark_latest(self, namespace: str, application: str, version: str, *, at: dt.datetime | None = None) -> None:
        """Make a version the latest.

        Raises
        ------
        NotFoundError
            If there is no such version.
        """
        self._versions.require(namespace, application, version)
        self._heads.change((namespace, application), latest=version, updated=self._context.now(at))
        # Conflicts with a deletion of the version, which excludes this fence.
        self._context.share(_fence(namespace, application))

    def set_source(self, namespace: str, application: str, version: str, source: object) -> None:
        """Record where the source of a version is.

        Raises
        ------
        NotFoundError
            If there is no such version.
        """
        self._versions.change((namespace, application, version), source=source)

    def delete_version(self, namespace: str, application: str, version: str, *, at: dt.datetime | None = None) -> None:
        """Delete a version; if it was the latest, the most recently deployed of the others becomes the latest.

        The last version takes the application with it, as `delete` does.

        Raises
        ------
        NotFoundError
            If there is no such version.
        InUseError
            If it has active runs.
        """
        now = self._context.now(at)
        self._versions.require(namespace, application, version)
        self._context.exclude(_fence(namespace, application))
        self._refuse_active(namespace, application, version)
        rest = [one for one in self.versions(namespace, application) if one.version != version]
        if not rest:
            self.delete(namespace, application)
            return
        self._versions.delete(namespace, application, version)
        self._history.delete_all(Range.prefix((namespace, application)), col("version") == version)
        head = self._heads.require(namespace, application)
        becomes = rest[0].version if head.latest == version else head.latest
        # Always written: a concurrent deployment must conflict with this deletion.
        self._heads.change((namespace, application), latest=becomes, updated=now)

    def delete(self, namespace: str, application: str) -> None:
        """Delete an application with its versions, history and state.

        Raises
        ------
        NotFoundError
            If there is no such application.
        InUseError
            If it has active runs.
        """
        self._heads.require(namespace, application)
        self._context.exclude(_fence(namespace, application))
        self._refuse_active(namespace, application)
        prefix = Range.prefix((namespace, application))
        self._heads.delete(namespace, application)
        self._versions.delete_all(prefix)
        self._history.delete_all(prefix)
        self._context.records(APPLICATION_STATE).delete_all(prefix)

    def _refuse_active(self, namespace: str, application: str, version: str | None = None) -> None:
        where = None if version is None else col("version") == version
        runs = self._context.records(RUNS)
        with runs.find("active", True, range=Range.prefix((namespace, application)), where=where, limit=1) as found:
            for run in found:
                what = f"application {namespace}/{application}" + ("" if version is None else f" version {version}")
                raise InUseError(what, f"run {run.run} of {run.program_type} {run.program}")

    @property
    def _heads(self) -> Records[Application]:
        return self._context.records(APPLICATIONS)

    @property
    def _versions(self) -> Records[ApplicationVersion]:
        return self._context.records(APPLICATION_VERSIONS)

    @property
    def _history(self) -> Records[ApplicationEdit]:
        return self._context.records(APPLICATION_HISTORY)


def _fence(namespace: str, application: str) -> str:
    return f"app/{namespace}/{application}"


class ApplicationStates(Dataset):
    """The dataset `application_state`; deleting an application deletes its values."""

    def get(self, namespace: str, application: str, state_key: str) -> bytes | None:
        """Return the value, or None."""
        found = self._context.records(APPLICATION_STATE).get(namespace, application, state_key)
        return None if found is None else found.value

    def put(self, namespace: str, application: str, state_key: str, value: bytes) -> None:
        """Store a value, replacing the previous one.

        Raises
        ------
        NotFoundError
            If there is no such application.
        """
        check_name(state_key, "state_key")
        self._context.records(APPLICATIONS).require(namespace, application)
        self._context.records(APPLICATION_STATE).put(
            ApplicationState(namespace=namespace, application=application, state_key=state_key, value=value)
        )
        self._context.share(f"app/{namespace}/{application}")

    def delete(self, namespace: str, application: str, state_key: str) -> None:
        """Delete a value; nothing is written if there is none."""
        self._context.records(APPLICATION_STATE).delete(namespace, application, state_key)

    def delete_all(self, namespace: str, application: str) -> int:
        """Delete all values of an application, and return their number."""
        return self._context.records(APPLICATION_STATE).delete_all(Range.prefix((namespace, application)))
