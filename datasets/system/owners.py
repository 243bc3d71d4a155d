"""Owners of entities."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Owners"]


class Owners(Dataset):
    """The dataset `owners`."""
