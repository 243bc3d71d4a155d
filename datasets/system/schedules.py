"""Schedules and their triggers."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Schedules"]


class Schedules(Dataset):
    """The dataset `schedules`."""
