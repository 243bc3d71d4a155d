"""What owner and clients say to one another: messages over a Unix socket, and a page of shared memory.

`wire` frames and encodes messages, `error_codec` carries errors across, `shared_memory` tells clients of commits.
"""
