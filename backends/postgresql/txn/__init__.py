"""Transactions, and the statements that each operation sends; `server_transaction` decides what to send, and when.

A `bound_table` has statements that can be built again for a newer version of it. `row_statements` write rows:
`one_row` plans the statements for one row, and commits a plan alone; `many_rows`, `update_many`, `merges` and
`keyless_writes` group the statements for many rows; `range_writes` writes the rows that a scan finds. `cursor_scan` and
`explain` are scans.
"""
