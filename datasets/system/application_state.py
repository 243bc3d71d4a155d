"""What applications keep."""

from __future__ import annotations

from .context import Dataset

__all__ = ["ApplicationStates"]


class ApplicationStates(Dataset):
    """The dataset `application_state`."""
