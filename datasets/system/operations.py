"""Long operations."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Operations"]


class Operations(Dataset):
    """The dataset `operations`."""
