"""Encodes rows, keys and index entries to bytes whose order is the order of the values.

`key_fields` encodes one value, `keys` a key; `row_layout` defines the position of each field in a row, `row_encoding`,
`row_decoding` and `row_patching` write, read and change rows; `source` makes the functions of a table.
"""
