"""Transactions: `server_transaction` decides which statements to send, and when; operations of several statements.

`table_call` is a statement that can be built again for a newer version of its table, the `bound_table`. `row_probes`
look before a write, `upsert_many` and `range_writes` write many rows, `cursor_scan` and `explain` are scans.
"""
