"""Transactions: `server_transaction` decides which statements to send, and when; operations of several statements.

A `bound_table` has statements that can be built again for a newer version of it. `row_probes` look before a write,
`upsert_many` and `range_writes` write many rows, `cursor_scan` and `explain` are scans.
"""
