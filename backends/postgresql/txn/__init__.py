"""A transaction at work: what `server_transaction` sends, and when; the operations of more than one statement.

`table_call` is a statement that can be built again for a newer version of its table, the `bound_table`. `row_probes`
look before a write, `upsert_many` and `range_writes` write many rows, `cursor_scan` and `explain` are scans.
"""
