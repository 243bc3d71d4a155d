"""The protocol between the owner of a database and its clients: a Unix socket, and a page of shared memory.

`channel` sends frames, `messages` encodes them, `error_codec` carries errors, `shared_memory` announces commits.
"""
