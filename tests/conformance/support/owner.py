"""A process that owns LevelDB databases, so that all others are clients: `python -m` with URLs as input.

It opens a URL on its first line and closes it on the next, and answers each with a line.
"""

import sys

from structable.spi import Storage, connect

held: dict[str, Storage] = {}
for line in sys.stdin:
    url = line.strip()
    if url in held:
        held.pop(url).close()
    else:
        held[url] = connect(url)
        held[url].admin.list()  # the first call opens the database
    print("closed" if url not in held else "held", flush=True)
