"""What the owner of a database and its clients exchange: messages over a Unix socket, and a page of shared memory.

`channel` sends frames, `messages` encodes them, `error_codec` carries errors, `shared_memory` tells clients of commits.
"""
