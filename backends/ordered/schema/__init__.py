"""What tables there are: `catalog` reads and caches their `schema`, `binding` makes it usable, `admin` changes it.

`spaces` numbers the key ranges of tables and indexes, `garbage` removes those that were dropped.
"""
