"""Capabilities of the platform."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Capabilities"]


class Capabilities(Dataset):
    """The dataset `capabilities`."""
