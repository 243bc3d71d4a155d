"""Credential profiles and identities."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Credentials"]


class Credentials(Dataset):
    """The dataset `credentials`."""
