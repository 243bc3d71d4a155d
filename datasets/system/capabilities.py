"""Capabilities of the platform, changed by one operation at a time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from structable.datasets.errors import InUseError
from structable.datasets.identifiers import check_name, check_texts
from structable.datasets.tables.platform import CAPABILITIES, CAPABILITY_OPERATIONS, Capability, CapabilityOperation

from .context import Dataset

ENABLED = "ENABLED"


class PlatformCapabilities(Dataset):
    """The datasets `capabilities` and `capability_operations`. The status of an enabled capability is `ENABLED`."""

    def begin(self, capability: str, action: str, config: object = None) -> None:
        """Open an operation on a capability, which need not exist yet.

        Raises
        ------
        InUseError
            If one is open.
        """
        check_name(capability, "capability")
        operations = self._context.records(CAPABILITY_OPERATIONS)
        opened = operations.get(capability)
        if opened is not None:
            raise InUseError(f"capability {capability}", f"its open operation {opened.action}")
        operations.insert(CapabilityOperation(capability=capability, action=action, config=config))

    def finish(self, capability: str, status: str, *, at: dt.datetime | None = None) -> Capability:
        """End the open operation: the capability gets the operation's configuration, and this status.

        Raises
        ------
        NotFoundError
            If no operation is open.
        """
        now = self._context.now(at)
        operations = self._context.records(CAPABILITY_OPERATIONS)
        opened = operations.require(capability)
        made = Capability(capability=capability, status=status, config=opened.config, updated=now)
        self._context.records(CAPABILITIES).put(made)
        operations.delete(capability)
        return made

    def get(self, capability: str) -> Capability | None:
        """Return the capability, or None."""
        return self._context.records(CAPABILITIES).get(capability)

    def operation(self, capability: str) -> CapabilityOperation | None:
        """Return the open operation, or None."""
        return self._context.records(CAPABILITY_OPERATIONS).get(capability)

    def enabled(self, capabilities: Iterable[str]) -> set[str]:
        """Return the names among these whose capability is enabled."""
        found = self._context.records(CAPABILITIES).get_many(
            [(name,) for name in check_texts(capabilities, "capabilities")]
        )
        return {one.capability for one in found if one.status == ENABLED}
