"""A process that leads, and writes under its lease until it is lost: `python -m` with the store's URL.

It says when it is about to commit and when it has committed, and goes on when it has read a line: the test knows where
it is stopped.
"""

from __future__ import annotations

import sys

from structable.datasets import Leader, Lease, LeaseLostError, Session, SystemData
from structable.spi import connect

from .commits import ObservedCommits
from .ledger import entries, note

NAME = "job"


def write_under(system: SystemData, lease: Lease) -> None:
    """Keep that the lease's owner wrote, with the number of writes that came before."""

    def write(s: Session) -> None:
        lease.check(s.tx)
        number = len(entries(s.tx, "leased", lease.name))
        note(s.tx, "leased", lease.name, token=lease.token, owner=lease.owner, number=number)

    system.run(write)


def main(url: str) -> None:
    with connect(url) as storage, SystemData.open(storage) as leading:
        waiting = SystemData(ObservedCommits(storage, lambda: wait("committing"), lambda: wait("committed")))

        def lead(lease: Lease) -> None:
            say(f"leading {lease.token}")
            while True:
                write_under(waiting, lease)

        try:
            Leader(leading, NAME, owner="first", ttl=1).run(lead)
        except LeaseLostError:
            say("lost")


def wait(words: str) -> None:
    say(words)
    sys.stdin.readline()


def say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
