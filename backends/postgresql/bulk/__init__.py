"""Splits and write jobs, many rows at a time, by COPY.

A scan: `splits` plans, `split_state` travels, `split_reading` reads. A job: `jobs` begins it, `staging` takes rows in
by `copy_encoder`, `job_commit` and `publishing` merge them into the table.
"""
