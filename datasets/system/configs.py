"""Named configurations."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Configs"]


class Configs(Dataset):
    """The dataset `configs`."""
