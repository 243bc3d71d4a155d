"""Compute profiles."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Profiles"]


class Profiles(Dataset):
    """The dataset `profiles`."""
