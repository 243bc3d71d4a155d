"""Connections: `connection_factory` opens one, `connection` runs `statement`s on it, `pool` lends them.

`session_claim` lets a connection behind a pooler check whether a session of the server is its own. `copying` is COPY,
`errors` translates the server's errors, `commit_outcome` looks up a commit whose answer was lost.
"""
