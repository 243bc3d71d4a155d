"""Scans: `planning` chooses an index or a key range, `intervals` computes its intervals, `execution` reads them.

`splits` and `split_choice` divide a scan among processes, `lookup` reads many keys, `sorting` orders by a field.
"""
