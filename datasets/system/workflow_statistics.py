"""How long workflows took."""

from __future__ import annotations

from .context import Dataset

__all__ = ["WorkflowStatistics"]


class WorkflowStatistics(Dataset):
    """The dataset `workflow_statistics`."""
