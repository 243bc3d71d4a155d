"""Rows, keys and index entries as bytes whose order is the order of the values.

`key_fields` encodes one value, `keys` a key; `row_layout` says where a row's fields lie, `row_encoding`,
`row_decoding` and `row_patching` write, read and change them; `source` makes the functions of a table.
"""
