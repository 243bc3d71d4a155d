"""Snapshot transactions over HBase, whose own transactions end at a row.

In the order of a commit: `session` and `clock` give the timestamps, `snapshot` and `reader` read by them, `write_set`
says what to write, `prewrite` leaves `intents`, `conflicts` looks for other writers, `commit` decides in the
`status_table`, and `finaliser` turns intents into versions; `visibility` decides what a reader may see meanwhile.
"""
