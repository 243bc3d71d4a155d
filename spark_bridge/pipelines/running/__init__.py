"""Pipelines on Spark: `stages` builds and checks them, `runs` starts them, `plan_files` keeps the plan for restarts."""

from .runs import PipelineRun, run_available, run_batch, start

__all__ = ["PipelineRun", "run_available", "run_batch", "start"]
