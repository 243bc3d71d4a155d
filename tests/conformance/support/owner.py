"""A process that owns LevelDB databases, so that all others are clients.

It opens and closes the URL that a command names, and answers each command with a word.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from structable.spi import Storage, connect

_ROOT = Path(__file__).parents[3]


@contextmanager
def owner_process() -> Iterator[subprocess.Popen[str]]:
    """Start such a process, and kill it at the end."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def owned(process: subprocess.Popen[str], url: str) -> Iterator[str]:
    """Let the process own a database."""
    assert _tell(process, url) == "held"
    yield url
    assert _tell(process, url) == "closed"


def _tell(process: subprocess.Popen[str], url: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{url}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def _serve() -> None:
    held: dict[str, Storage] = {}
    for line in sys.stdin:
        url = line.strip()
        if url in held:
            held.pop(url).close()
        else:
            held[url] = connect(url)
            held[url].admin.list()  # the first call opens the database
        print("closed" if url not in held else "held", flush=True)


if __name__ == "__main__":
    _serve()
