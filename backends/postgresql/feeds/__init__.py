"""Change feeds: what the database keeps of them, and the triggers that write them.

`layout` names every table and column.
"""
