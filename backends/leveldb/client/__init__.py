"""A process that does not own the database.

`client` is its route to the owner, `requests` sends requests over the connections of a `pool`, and `snapshot` is a
snapshot that the owner holds for it.
"""
