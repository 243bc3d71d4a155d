"""Tasks that provision clusters."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Provisioning"]


class Provisioning(Dataset):
    """The dataset `provisioning`."""
