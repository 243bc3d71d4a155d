"""The signals that end a command: each raises, so that the command closes its store and says how far it came."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Ended", "ending_signals"]

_TOLD_TO_END = (signal.SIGTERM, signal.SIGHUP)
_DEFAULTS = (signal.default_int_handler, signal.SIG_DFL)


class Ended(KeyboardInterrupt):
    """The process must end; `number` is the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def ending_signals() -> Iterator[list[Ended]]:
    """Raise in the block for each Ctrl-C, and for the first SIGTERM or SIGHUP; yield what was raised.

    A library, such as Arrow, may turn what was raised into another error. Later SIGTERM and SIGHUP, as service managers
    send them both, leave the command to its end. Signals that are ignored, as with `nohup`, still are.
    """
    raised: list[Ended] = []
    if threading.current_thread() is not threading.main_thread():
        yield raised
        return

    def end(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT or not raised:
            raised.append(Ended(number))
            raise raised[-1]

    given = [(number, signal.getsignal(number)) for number in (signal.SIGINT, *_TOLD_TO_END)]
    replaced = [(number, handler) for number, handler in given if handler in _DEFAULTS]
    for number, _ in replaced:
        signal.signal(number, end)
    try:
        yield raised
    finally:
        for number, handler in replaced:
            signal.signal(number, handler)
