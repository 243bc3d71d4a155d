"""Repositories and synchronisation."""

from __future__ import annotations

from .context import Dataset

__all__ = ["SourceControl"]


class SourceControl(Dataset):
    """The dataset `source_control`."""
