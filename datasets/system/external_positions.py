"""Positions in topics of other systems."""

from __future__ import annotations

from .context import Dataset

__all__ = ["ExternalPositions"]


class ExternalPositions(Dataset):
    """The dataset `external_positions`."""
