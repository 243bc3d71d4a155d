"""Write jobs: rows staged as sorted runs, committed atomically.

`jobs` begins, stages and ends them, `commit` merges the runs and passes them to the engine, `records` are the catalog's
records of jobs; `recovery` completes a commit that a crash interrupted, `stuck_jobs` reports those it cannot complete.
"""
