"""A process that works on a store: `python -m` with its URL; each line of input is a part of a workload."""

from __future__ import annotations

import json
import sys
import traceback

from structable.spi import connect

from .workloads import open_system, work


def main(url: str) -> None:
    with connect(url) as storage:
        storage.admin.list()
        print("ready", flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            try:
                answer: dict[str, object] = dict(work(open_system(storage, order["workload"]), **order))
            except BaseException:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
