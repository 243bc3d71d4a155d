"""Connections: `connection_factory` makes them, `connection` runs pipelines on one, `pool` shares them out.

`errors` says what the server's answers mean, `commit_outcome` whether a commit whose answer was lost has happened.
"""
