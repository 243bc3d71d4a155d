"""A shared server that dies: one test fails with the end of its log, and it is started again."""

from __future__ import annotations

import fcntl
import socket
import time
from pathlib import Path
from typing import Protocol

from .processes import ServerFailedError


class ServerDiedError(AssertionError):
    """The server that tests share was found dead. The message ends with the server's log."""


class Revivable(Protocol):
    """A server that tests share."""

    folder: Path

    def trouble(self) -> str | None:
        """Return the reason why the server is lost; None if it is well, as far as a check can tell."""

    def revive(self) -> None:
        """Start the dead server again, with its data and an empty log; ServerFailedError if it does not start."""

    def last_words(self) -> str:
        """Return the end of its log."""


def require_alive(server: Revivable, name: str) -> None:
    """Return if a server is well; else start it again for later tests, and raise ServerDiedError for this one.

    Of several processes that share the server one does so; the others go on when it is done. A server that does not
    start again is not tried again: every further call raises at once.
    """
    if server.trouble() is None:
        return
    with (server.folder / "revival").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lost = server.folder / "lost"
        if lost.exists():
            raise ServerDiedError(f"{name} died before and did not start again: {lost.read_text()}")
        trouble = server.trouble()
        if trouble is None:
            return
        end = server.last_words()
        try:
            server.revive()
        except ServerFailedError as error:
            reason = str(error).partition("\n")[0]
            lost.write_text(reason)
            raise ServerDiedError(
                f"{name} died, for {trouble}, and does not start again: {reason}. All further tests that need it fail "
                f"at once. Its log ended with:\n{end}"
            ) from error
    raise ServerDiedError(
        f"{name} died, for {trouble}. It runs again, for the tests to come. Its log ended with:\n{end}"
    )


def require_reachable(host: str, port: int, name: str) -> None:
    """Return if a server listens there; else raise ServerDiedError: after a few attempts, later at once."""
    refusal: OSError | None = None
    for attempt in range(1 if (host, port) in _unreachable else _ATTEMPTS):
        if attempt:
            time.sleep(1.0)
        try:
            socket.create_connection((host, port), timeout=10.0).close()
        except OSError as error:
            refusal = error
        else:
            _unreachable.discard((host, port))
            return
    _unreachable.add((host, port))
    raise ServerDiedError(f"{name}, {host}:{port}, cannot be reached: {refusal}")


_ATTEMPTS = 5
_unreachable: set[tuple[str, int]] = set()
