"""Metadata of entities, and search."""

from __future__ import annotations

from .context import Dataset

__all__ = ["MetadataSets"]


class MetadataSets(Dataset):
    """The dataset `metadata`."""
