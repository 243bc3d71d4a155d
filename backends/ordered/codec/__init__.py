"""Encodes rows, keys and index entries to bytes whose order is the order of the values.

`key_fields` encodes one value, `keys` a key and an index entry; `row_layout` defines the position of each field in a
row, `row_encoding`, `rows` and `row_patching` write, read and change rows; `source` makes the functions of a table.
"""
