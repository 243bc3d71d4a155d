"""Scans: `planning` chooses the index or the key range, `intervals` are what it reads, `execution` reads it.

`splits` and `split_choice` divide a scan among processes, `lookup` reads many keys, `sorting` orders by a field.
"""
