"""Compute profiles: assigned to entities, used by runs, deleted when neither."""

from __future__ import annotations

import datetime as dt

from structable.datasets.errors import InUseError
from structable.datasets.identifiers import check_names
from structable.datasets.records import Page
from structable.datasets.tables.namespaces import (
    PROFILE_ASSIGNMENTS,
    PROFILES,
    Profile,
    ProfileAssignment,
    ProfileStatus,
)
from structable.datasets.tables.runs import RUNS
from structable.spi import Range, col

from .context import Dataset


class Profiles(Dataset):
    """The datasets `profiles` and `profile_assignments`.

    Disabling or deleting one holds the fence `profile/NAMESPACE/PROFILE` exclusively; assignments and new runs share
    it.
    """

    def create(
        self, namespace: str, profile: str, *, provisioner: object = None, at: dt.datetime | None = None
    ) -> Profile:
        """Create a profile, ENABLED.

        Raises
        ------
        AlreadyExistsError
            If it exists.
        NotFoundError
            If there is no such namespace.
        """
        check_names(profile=profile)
        made = Profile(
            namespace=namespace,
            profile=profile,
            provisioner=provisioner,
            status=ProfileStatus.ENABLED,
            created=self._context.now(at),
        )
        self._context.member_of(namespace)
        self._context.records(PROFILES).insert(made)
        return made

    def get(self, namespace: str, profile: str) -> Profile | None:
        """Return the profile, or None."""
        return self._context.records(PROFILES).get(namespace, profile)

    def page(self, namespace: str, *, cursor: str | None = None, limit: int = 100) -> Page[Profile]:
        """Return a page of a namespace's profiles, by name."""
        return self._context.records(PROFILES).page(Range.prefix((namespace,)), cursor=cursor, limit=limit)

    def set_status(self, namespace: str, profile: str, status: ProfileStatus) -> None:
        """Enable or disable a profile.

        Raises
        ------
        NotFoundError
            If there is no such profile.
        """
        status = ProfileStatus(status)
        self._context.records(PROFILES).change((namespace, profile), status=status)
        if status is ProfileStatus.DISABLED:
            self._context.exclude(_fence(namespace, profile))

    def assign(self, namespace: str, profile: str, entity: str, *, at: dt.datetime | None = None) -> None:
        """Assign a profile to an entity; a second time only the time changes.

        Raises
        ------
        NotFoundError
            If there is no such profile.
        InUseError
            If it is disabled.
        """
        check_names(entity=entity)
        now = self._context.now(at)
        found = self._context.records(PROFILES).require(namespace, profile)
        if found.status is ProfileStatus.DISABLED:
            raise InUseError(f"profile {namespace}/{profile}", "its status", "is disabled; enable it first")
        self._context.member_of(namespace)  # `remove_namespace` excludes it
        self._context.records(PROFILE_ASSIGNMENTS).put(
            ProfileAssignment(namespace=namespace, profile=profile, entity=entity, created=now)
        )
        self._context.share(_fence(namespace, profile))

    def unassign(self, namespace: str, profile: str, entity: str) -> None:
        """Take an assignment back; nothing is written if there is none."""
        self._context.records(PROFILE_ASSIGNMENTS).delete(namespace, profile, entity)

    def assignments(self, namespace: str, profile: str) -> list[ProfileAssignment]:
        """Return the assignments of a profile, by entity."""
        with self._context.records(PROFILE_ASSIGNMENTS).scan(Range.prefix((namespace, profile))) as found:
            return list(found)

    def delete(self, namespace: str, profile: str) -> None:
        """Delete a profile.

        Raises
        ------
        NotFoundError
            If there is no such profile.
        InUseError
            If it is enabled, assigned, or used by an active run.
        """
        found = self._context.records(PROFILES).require(namespace, profile)
        self._context.exclude(_fence(namespace, profile))
        what = f"profile {namespace}/{profile}"
        if found.status is not ProfileStatus.DISABLED:
            raise InUseError(what, "its status", "is enabled; disable it first")
        for assignment in self.assignments(namespace, profile):
            raise InUseError(what, f"entity {assignment.entity}")
        runs = self._context.records(RUNS)
        within = Range.prefix((namespace,))
        with runs.find("profile", profile, range=within, where=col("active") == True, limit=1) as active:  # noqa: E712
            for run in active:
                raise InUseError(what, f"run {run.run}")
        self._context.records(PROFILES).delete(namespace, profile)


def _fence(namespace: str, profile: str) -> str:
    return f"profile/{namespace}/{profile}"
