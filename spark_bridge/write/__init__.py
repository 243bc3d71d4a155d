"""Writing to tables: by the format (`writer`), or by `send_to` and `send_update_to` (`rows` and `updates`).

For these two, `arrangement` brings the rows of a key into one task and their order, `grouping` and `folding` turn them
into the batches of a write job, and `jobs` stages and commits it.
"""
