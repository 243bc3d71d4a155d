"""What runs in the background of an HBase store, and what the doctor asks.

`heartbeat` renews a process's session; `janitor` removes what dead sessions left, by when they were `last_seen`;
`diagnosis` compares HBase's tables with the catalog. `background` holds the threads.
"""
