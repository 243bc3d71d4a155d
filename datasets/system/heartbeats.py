"""Heartbeats of runs."""

from __future__ import annotations

from .context import Dataset

__all__ = ["Heartbeats"]


class Heartbeats(Dataset):
    """The dataset `heartbeats`."""
