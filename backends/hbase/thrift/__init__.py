"""HBase through its Thrift gateway: every request of the store, without any knowledge of transactions.

In the order of a call: `requests` describes it, `gateway` sends it under a `retry` policy through the `pool`, whose
`connection` writes `messages` to a `transport`. `scanner` reads many rows, and `errors` classifies replies and
explains failed connections.
"""

from .grammar import import_happybase

import_happybase()  # before any module of this package imports thriftpy2
