"""Statements and rows: what one operation on a table sends, and what it makes of the answer.

`binding` is a table with its `statements`; `queries` and `conditions` are scans and filters as SQL; `types` and
`row_codec` convert values.
"""
