"""Preferences by scope."""

from __future__ import annotations

from .context import Dataset

__all__ = ["PreferenceSets"]


class PreferenceSets(Dataset):
    """The dataset `preferences`."""
