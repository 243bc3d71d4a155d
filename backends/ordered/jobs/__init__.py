"""Write jobs: rows staged as sorted runs, committed at once.

`jobs` begins, stages and ends them, `commit` merges the runs and hands them to the engine, `records` are what is kept
of a job; `recovery` completes a commit that a crash interrupted, `stuck_jobs` tells of those that cannot be completed.
"""
