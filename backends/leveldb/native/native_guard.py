"""The native-call guard: a database is closed only while no thread is inside a call of plyvel.

plyvel releases the interpreter lock during its calls, and crashes the process if a database is closed under one. So
each function that calls plyvel is decorated with `native_call` and checks a flag first; `Database.close` sets the flag
and waits until no thread's stack holds such a function. A thread that passed the check stays visible on its stack until
the call returns, so nothing is missed. A counter of readers would do the same, but a read of one row takes 5 % longer
even with a plain list as the counter (18 % of the engine's part), and an exception raised by a signal's handler between
counting and `try` would leave it wrong.

A thread that has called `uninterrupted` is not inside: it waits, perhaps for the thread that closes the database, and
checks the flag again when it continues.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import CodeType, FrameType, FunctionType
from typing import ParamSpec, TypeVar

from structable.backends.base.uninterrupted import uninterrupted

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_GUARDED: dict[CodeType, bool] = {}
"""The guarded functions, and whether they read the newest state."""
_WAITING = uninterrupted.__code__
_WALK = threading.Lock()
_own_ident = ctypes.PYFUNCTYPE(ctypes.c_ulong)(("PyThread_get_thread_ident", ctypes.pythonapi))
"""Returns the number of this thread; where gevent replaced it, `threading.get_ident` returns a greenlet's number."""


def native_call(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Guard a function that calls plyvel; after a call of `uninterrupted` the function must check the flag again."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    _GUARDED[code] = not code.co_flags & CO_GENERATOR  # scans read snapshots
    return function


def native_upkeep(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Guard a function that calls plyvel and reads nothing, as `native_call` does."""
    assert isinstance(function, FunctionType)
    _GUARDED[function.__code__] = False
    return function


def wait_for_native_calls(seconds: float, *, newest_state: bool = False) -> bool:
    """Wait until each guarded call that another thread is in now has ended; False if one takes longer.

    With `newest_state`, wait only for calls that read the newest state; closing the database must wait for all calls.
    """
    deadline = time.monotonic() + seconds
    waited_for = _guarded_frames(newest_state)
    pause = 0.00005
    while waited_for:
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.01)
        waited_for &= _guarded_frames(newest_state)
    return True


def _guarded_frames(newest_state: bool) -> set[FrameType]:
    # CPython 3.11 crashes when a collection of garbage begins inside `f_back` of another thread's frame.
    with _WALK:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return _walk_stacks(newest_state)
        finally:
            if collecting:
                gc.enable()


def _walk_stacks(newest_state: bool) -> set[FrameType]:
    inside: set[FrameType] = set()
    frames = sys._current_frames()
    # A reference of a frame to itself would keep the variables of all callers until garbage is collected.
    del frames[_own_ident()]
    for top in frames.values():
        frame: FrameType | None = top
        # From the innermost call outwards: a signal handler may be inside, called by the main thread while it waits.
        while frame is not None and (code := frame.f_code) is not _WAITING:
            if code in _GUARDED and (_GUARDED[code] or not newest_state):
                inside.add(frame)
            frame = frame.f_back
    return inside
