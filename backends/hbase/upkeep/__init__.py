"""Upkeep of an HBase store, and the doctor's report.

`background` has the threads that send heartbeats and run the `janitor`, which cleans up after dead sessions in
`rounds`, detected by the last change of their cells; `diagnosis` compares HBase's tables with the catalog.
"""
