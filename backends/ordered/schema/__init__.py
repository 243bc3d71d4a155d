"""The tables of a store: `catalog` reads and caches their `schema`, `binding` compiles it, `admin` changes it.

`spaces` numbers the key ranges of tables and indexes, `garbage` removes dropped ones.
"""
