"""The border to plyvel: who is inside a call of it, so that a database can be closed when nobody is.

plyvel crashes the process if a database is closed while another thread is inside one of its calls, for these release
the interpreter lock. So the functions that call it are marked with `border`, look at a flag that says whether they
still may, and `Database.close` raises the flag and waits until no thread's stack holds one of them. Whoever has looked
is on some stack until the call is over, so this is safe, and it costs a reader nothing but the look.

What has called `uninterrupted` is not inside: it waits, perhaps for the very thread that closes the database, and looks
again when it goes on.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import CodeType, FrameType, FunctionType
from typing import ParamSpec, TypeVar

from structable.backends.base.uninterrupted import uninterrupted

__all__ = ["border", "wait_until_outside"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_BORDER: set[CodeType] = set()
_WAITING = uninterrupted.__code__
_LOOKING = threading.Lock()


def border(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Mark a function that calls plyvel; after a call of `uninterrupted` it looks again whether it still may."""
    assert isinstance(function, FunctionType)
    _BORDER.add(function.__code__)
    return function


def wait_until_outside(seconds: float, *, generators: bool = True) -> bool:
    """Wait until every call of plyvel that another thread is in now has ended; False if one takes longer.

    Parameters
    ----------
    seconds : float
        How long to wait.
    generators : bool
        Whether running scans count: they read snapshots, so that only the end of a database concerns them.
    """
    deadline = time.monotonic() + seconds
    waited_for = _frames_inside(generators)
    pause = 0.00005
    while waited_for:
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.01)
        waited_for &= _frames_inside(generators)
    return True


def _frames_inside(generators: bool) -> set[FrameType]:
    # CPython 3.11 crashes when a collection of garbage begins inside `f_back` of another thread's frame.
    with _LOOKING:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return _frames_at_border(generators)
        finally:
            if collecting:
                gc.enable()


def _frames_at_border(generators: bool) -> set[FrameType]:
    me = threading.get_ident()
    inside: set[FrameType] = set()
    for thread, top in sys._current_frames().items():
        frame: FrameType | None = top if thread != me else None
        # From the innermost call outwards: a signal's handler may be inside, called by the main thread as it waits.
        while frame is not None and (code := frame.f_code) is not _WAITING:
            if code in _BORDER and (generators or not code.co_flags & CO_GENERATOR):
                inside.add(frame)
            frame = frame.f_back
    return inside
