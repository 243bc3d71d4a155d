"""Streams: micro-batches read from a table's changes (`reader`) or written to it (`writer`, `foreach_batches`)."""
