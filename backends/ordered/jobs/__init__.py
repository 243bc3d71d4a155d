"""Write jobs: rows staged as sorted runs, committed atomically.

`jobs` begins, stages and ends them, `encoding` and `staged` write and read the runs, `rows`, `merging` and `patching`
turn them into changes of the table, `commit` passes these to the engine; `recovery` completes a commit that a crash
interrupted, `sweeping` removes the remains of ended jobs.
"""
