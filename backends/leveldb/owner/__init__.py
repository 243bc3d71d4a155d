"""The process that owns the database: it commits for all processes, and serves the others.

The `server` accepts clients through its `listener`; each has a `connection`, and all share a `service`. A commit goes
through the `committer` into the `store`, which checks it against the `history` and writes it. The `database_handle`
opens, heals and closes the database. `local_route` is the route of the engines in this process.
"""
