"""Sealed secrets."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Secrets"]


class Secrets(Dataset):
    """The dataset `secrets`."""
