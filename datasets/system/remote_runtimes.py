"""Runs that remote runtimes execute."""

from __future__ import annotations

from .context import Dataset

__all__ = ["RemoteRuntimes"]


class RemoteRuntimes(Dataset):
    """The dataset `remote_runtimes`."""
