"""Write jobs: rows staged as sorted runs, committed atomically.

`jobs` begins, stages and ends them, `staged` writes and reads the runs, `rows` and `merging` turn them into changes of
the table, `commit` passes these to the engine. `records` are the catalog's records of jobs; `recovery` completes a
commit that a crash interrupted, `stuck_jobs` reports those it cannot complete.
"""
