"""Statements and rows: the SQL of an operation on a table, and the conversion of its parameters and results.

`binding` is a table with everything derived from it. `write_statements` generates all writes, with `merging` for merge
engines; `row_limit` judges their sizes, and reads the server's rejections. `key_lookups` reads by key; `queries` and
`conditions` are scans and filters. `types` is the table of field types, by which `row_codec` converts values.
"""
