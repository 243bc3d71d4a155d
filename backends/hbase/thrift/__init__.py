"""HBase by its Thrift gateway: every request of the store goes through here, and nothing here knows of transactions.

In the order of a call: `requests` builds it, `gateway` sends it under a `retry` policy through the `pool`, whose
`connection` writes `messages` to a `transport`; `scanner` reads many rows; `errors` says what an answer means.
"""
