"""Which programs use which datasets."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Usages"]


class Usages(Dataset):
    """The dataset `usage`."""
