"""A runner that kills itself at a batch: `python -m tests.migrations.support.killed URL FOLDER ROWS BATCH PLACE`."""

from __future__ import annotations

import os
import signal
import sys

from structable.migrations import Migrator, batches
from structable.spi import connect
from tests.migrations.support.clocks import fast

PLACES = ("before", "inside", "after")


def main(url: str, folder: str, rows: int, batch: int, place: str) -> None:
    """Run, and be killed before, inside or after the batch of a number, each of so many rows; never if none comes."""
    do_batch, transform = batches.do_batch, batches.transform
    count = 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(*args: object, **options: object) -> object:
        nonlocal count
        count += 1
        if count >= batch and place == "before":
            die()
        done = do_batch(*args, **{**options, "rows": rows})  # type: ignore[arg-type]
        if count >= batch and place == "after":
            die()
        return done

    def transformed(*args: object) -> object:
        done = transform(*args)  # type: ignore[arg-type]
        if count >= batch and place == "inside":
            die()
        return done

    batches.do_batch = counted  # type: ignore[assignment]
    batches.transform = transformed  # type: ignore[assignment]
    with connect(url) as storage:
        Migrator(storage, folder, monotonic=fast).up()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
