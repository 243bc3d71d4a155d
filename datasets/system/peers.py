"""Tethered platforms."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Peers"]


class Peers(Dataset):
    """The dataset `peers`."""
