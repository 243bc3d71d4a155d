"""Values that applications keep under keys of their own."""

from __future__ import annotations

from structable.datasets.identifiers import check_name
from structable.datasets.tables.applications import APPLICATION_STATE, APPLICATIONS, ApplicationState
from structable.spi import Range

from .context import Dataset

__all__ = ["ApplicationStates"]


class ApplicationStates(Dataset):
    """The dataset `application_state`; a value goes with its application."""

    def get(self, namespace: str, application: str, state_key: str) -> bytes | None:
        """Return the value, or None."""
        found = self._context.records(APPLICATION_STATE).get(namespace, application, state_key)
        return None if found is None else found.value

    def put(self, namespace: str, application: str, state_key: str, value: bytes) -> None:
        """Keep a value, in place of the one before.

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
