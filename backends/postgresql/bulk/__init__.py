"""Splits and write jobs, many rows at a time, by COPY.

A scan: `split_planning` makes splits of `split_state`, which `split_reading` reads. A job: `jobs` begins it, `staging`
holds the rows that `copy_encoder` encodes, `job_commit` writes them into the table by `staged_merge`.
"""
