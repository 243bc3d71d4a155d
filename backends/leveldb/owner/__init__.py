"""The process that owns the database: it commits for all, and serves the others.

A request comes in by `listener` and `connection` to the `server`; a commit goes through `committer` into the `store`,
which checks it against the `history` and writes it; `keeper` opens, heals and closes the database.
"""
