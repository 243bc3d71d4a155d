"""Change feeds in the database: their tables, and the triggers that write them.

`layout` names every table and column.
"""
