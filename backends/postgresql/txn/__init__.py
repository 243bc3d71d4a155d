"""Transactions: `server_transaction` decides which statements to send, and when; what each operation sends.

A `bound_table` has statements that can be built again for a newer version of it. Writes of rows are `row_statements`:
`one_row` plans those of one row, and commits a plan alone; `many_rows`, `update_many`, `merges` and `keyless_writes`
group those of many rows; `range_writes` write what a scan finds. `cursor_scan` and `explain` are scans.
"""
