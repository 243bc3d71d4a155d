"""A process that does not own the database: it asks the owner through a `pool` of connections.

`client` is its way to the owner, `snapshot` a snapshot that the owner holds for it.
"""
