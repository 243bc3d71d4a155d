"""Log files and checkpoints."""

from __future__ import annotations

from .context import Dataset

__all__ = ["LogFiles"]


class LogFiles(Dataset):
    """The dataset `log_files`."""
