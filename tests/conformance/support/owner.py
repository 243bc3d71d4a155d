"""A process that opens stores first and holds them, so that all others are its clients: `python -m` with URLs as input.

A URL that comes for the first time is opened, and closed when it comes again; each is answered by a line.
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
        held[url].admin.list()  # opens what was not opened yet
    print("closed" if url not in held else "held", flush=True)
