"""Connections: `connection_factory` opens one, `connection` runs `statement`s on it, `pool` lends them.

`copying` is COPY, `errors` translates the server's errors, `commit_outcome` looks up a commit whose answer was lost.
"""
