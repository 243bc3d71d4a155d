"""Runs of programs."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Runs"]


class Runs(Dataset):
    """The dataset `runs`."""
