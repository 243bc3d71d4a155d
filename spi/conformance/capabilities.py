"""What a store may lack: each capability is declared once by the backend's author, and a skipped test names it."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Capabilities", "meaning"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the store under test can do beyond what every store must.

    Everything that is not listed here is mandatory. The suite never asks which backend it runs on.

    Parameters
    ----------
    restartable : bool
        What was committed is there when every `Storage` was closed and the same URL is connected again.
    multi_process : bool
        Several processes can connect to one URL at once, and `plan_scan` and write jobs work across them.
    durable_after_kill : bool
        A commit that returned survives kill -9 of every client (only asked where `multi_process` is declared).
    writes_never_wait : bool
        No write waits for another open transaction: conflicts show up at the write or at the commit. Declared, more
        interleavings are tried on one thread.
    """

    restartable: bool = True
    multi_process: bool = True
    durable_after_kill: bool = True
    writes_never_wait: bool = False


_MEANINGS = {
    "restartable": "what was committed is there after every connection was closed",
    "multi_process": "several processes can connect to one URL at once",
    "durable_after_kill": "a commit that returned survives kill -9 of every client",
    "writes_never_wait": "no write waits for another open transaction",
}


def meaning(capability: str) -> str:
    """Return what a capability says, in a few words.

    Raises
    ------
    ValueError
        If there is no such capability.
    """
    if capability not in _MEANINGS:
        raise ValueError(
            f"{capability!r} is no capability; there are {', '.join(f.name for f in fields(Capabilities))}"
        )
    return _MEANINGS[capability]
