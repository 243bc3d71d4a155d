"""A process that changes the rows of a table that others change as well: `python -m`, with the store's URL.

It adds 1 to `theirs` of the row "hot" in a transaction, until its input ends, and prints how often.
"""

from __future__ import annotations

import sys
import threading

from structable.spi import Storage, Transaction, connect


def add_once(transaction: Transaction) -> None:
    table = transaction.table("hot_rows")
    row = table.read(("hot",))
    assert row is not None
    table.update({"id": "hot", "theirs": row.theirs + 1})


def add_until(storage: Storage, stop: threading.Event, begun: threading.Event) -> int:
    """Add until `stop`, and return how often; `begun` is set after the first time."""
    count = 0
    while count == 0 or not stop.is_set():
        storage.run(add_once, max_attempts=1000)
        count += 1
        begun.set()
    return count


def main(url: str) -> None:
    stop, begun = threading.Event(), threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    def tell() -> None:
        begun.wait()
        print("begun", flush=True)

    for target in (wait, tell):
        threading.Thread(target=target, daemon=True).start()
    with connect(url) as storage:
        print(add_until(storage, stop, begun), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
