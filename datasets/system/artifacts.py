"""Artifacts and their plugins."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Artifacts"]


class Artifacts(Dataset):
    """The dataset `artifacts`."""
