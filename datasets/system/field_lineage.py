"""Which fields came from which."""

from __future__ import annotations

from .context import Dataset

__all__ = ["FieldLineages"]


class FieldLineages(Dataset):
    """The dataset `field_lineage`."""
