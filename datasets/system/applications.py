"""Applications and their versions."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Applications"]


class Applications(Dataset):
    """The dataset `applications`."""
