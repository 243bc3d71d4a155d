"""Jobs that wait for schedules."""

from __future__ import annotations

from .context import Dataset

__all__ = ["ScheduleJobs"]


class ScheduleJobs(Dataset):
    """The dataset `schedule_jobs`."""
