"""Publishers that hold transactions open, roll them back and are killed: `python -m`, with a URL, a name and a seed.

A publisher tells what it does, a line for each transaction that is about to end, and another one when it has.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable

from structable.datasets import SystemData, Topic
from structable.spi import TransactionConflictError, connect

HISTORY = Topic("history", bytes)
Publish = dict[str, object]
_LONGEST_HELD = 0.02


def publish(system: SystemData, name: str, seed: str, count: int, tell: Callable[[Publish], None]) -> None:
    """Run transactions that publish, each with the time before its beginning and after its end."""
    chance = random.Random(seed)
    for number in range(count):
        told: Publish = {"transaction": f"{name}/{number}", "began": time.monotonic(), "messages": 0}
        try:
            with system.transaction() as s:
                for index in range(chance.choice((1, 1, 2, 5, 40))):
                    s.publish(HISTORY, f"{name}/{number}/{index}".encode())
                    told["messages"] = index + 1
                    if chance.random() < 0.1:
                        time.sleep(chance.random() * _LONGEST_HELD)
                if chance.random() < 0.2:
                    s.tx.rollback()
                    tell({**told, "outcome": "rolled back"})
                    continue
                tell({**told, "outcome": "unknown"})
        except TransactionConflictError:  # with the first listener, whom the table's catalog entry names
            tell({**told, "outcome": "rolled back"})
        else:
            tell({**told, "outcome": "committed", "ended": time.monotonic()})


def main(url: str, name: str, seed: str, count: str) -> None:
    with connect(url) as storage:
        print("ready", flush=True)
        sys.stdin.readline()
        publish(SystemData(storage), name, seed, int(count), lambda told: print(json.dumps(told), flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
