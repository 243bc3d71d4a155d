"""Streams: micro-batches of a table's changes (`reader`), and those written to it (`writer`, `foreach_batches`)."""
