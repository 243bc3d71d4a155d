"""Upkeep of an HBase store, and what the doctor reports.

`background` has the threads that send heartbeats and run the `janitor`, which removes what dead sessions left, by when
their cells last changed (`last_seen`); `diagnosis` compares HBase's tables with the catalog.
"""
