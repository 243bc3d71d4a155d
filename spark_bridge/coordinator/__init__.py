"""The coordinator: plans scans, holds their snapshots and ends write jobs, in the driver's process.

`applications` starts one for each application, and `client` reaches it from all of Spark's processes.
"""
