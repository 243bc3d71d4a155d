"""Dispositions of signals that a child process inherits."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def inherited(*ignored: signal.Signals) -> Iterator[None]:
    """Let children started in the block ignore these signals, and end at SIGINT, SIGTERM and SIGHUP otherwise.

    A process in a shell's background ignores interrupts, one under nohup SIGHUP, and so would the children.
    """
    before: dict[signal.Signals, signal.Handlers | object] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            ends = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
            before[number] = signal.signal(number, signal.SIG_IGN if number in ignored else ends)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
