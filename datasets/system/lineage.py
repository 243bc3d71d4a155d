"""Which runs used which datasets."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Lineage"]


class Lineage(Dataset):
    """The dataset `lineage`."""
