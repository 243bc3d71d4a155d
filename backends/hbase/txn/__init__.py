"""Snapshot transactions over HBase, itself atomic in one row only; docs/hbase-protocol.md explains the protocol.

In the order in which a transaction acts:

    transactions      begins and commits; owns the `session`, whose heartbeat keeps old versions
    snapshot, reader  read at a timestamp; `visibility` decides which intents count there
    commit            takes the steps of a commit, for write jobs `bulk`:
      intent_set        1. the write set as `intents`
      prewrite          2. puts list, record and intents, draws the commit timestamp, reads rows back;
                           `recent_writes` selects them
      conflicts         3. finds other transactions in the rows read back
      decision          4. one compare-and-put in the `status_table`
      finaliser         5. in the background, `intent_resolution` turns intents into versions
"""
