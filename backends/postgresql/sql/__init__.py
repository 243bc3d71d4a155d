"""Statements and rows: the SQL of an operation on a table, and the conversion of its parameters and results.

`binding` is a table with its `statements`; `queries` and `conditions` are scans and filters as SQL; `types` and
`row_codec` convert values.
"""
