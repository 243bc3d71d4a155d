"""Tokens and nodes of workflows."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Workflows"]


class Workflows(Dataset):
    """The dataset `workflows`."""
