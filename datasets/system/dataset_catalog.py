"""Datasets, kinds and modules."""

from __future__ import annotations

from .context import Dataset

__all__ = ["DatasetCatalog"]


class DatasetCatalog(Dataset):
    """The dataset `dataset_catalog`."""
