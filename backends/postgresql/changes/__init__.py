"""Reading of change feeds: `feed` is the users' object, over `feed_view` (positions, marks, expiry), `change_reading`.

`entry_queries` are the queries of entries, `commit_sizes` divides a range into queries and splits, `change_splits`
plans splits and reads them as Arrow.
"""
