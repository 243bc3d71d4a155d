"""Spark's Python workers: whether they can import structable, their garbage collection, their sockets."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_PROGRAM = "import structable.spark_bridge.source"
_SECONDS = 60
_CONTAINERS = 100_000
"""A number of objects: more than the tuples and rows that Python makes for 10,000 rows."""


def warn_of_another_python(context: SparkContext) -> None:
    """Warn if the workers of this machine run a Python that cannot import structable; others cannot be checked."""
    program = context.pythonExec
    found = shutil.which(program)
    # By its path: environments share one program by links.
    if found is None or os.path.abspath(found) == os.path.abspath(sys.executable):
        return
    tried = subprocess.run([found, "-c", _PROGRAM], capture_output=True, text=True, timeout=_SECONDS, check=False)
    if tried.returncode:
        reason = tried.stderr.strip().rpartition("\n")[2]
        warnings.warn(
            f"Spark's workers run {program}, which cannot import structable ({reason}): set the environment variable "
            f"PYSPARK_PYTHON to {sys.executable} before the session is made",
            stacklevel=2,
        )


@lru_cache(maxsize=1)
def freeze_imports() -> None:
    """Exclude all objects that exist now from garbage collection, in a process that Spark reuses for further tasks.

    Such a process collects garbage after each task. A full collection visits all imported modules, for some 30 ms on
    the cores that the query needs, and finds nothing: modules stay until the process ends.
    """
    if "SPARK_REUSE_WORKER" in os.environ:
        gc.collect()
        gc.freeze()


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect no garbage inside the block for the tuples and rows of a batch, which form no cycles and are freed soon.

    Otherwise they are visited again and again: for a quarter of the processor time of a look-up join's task.
    """
    before = gc.get_threshold()
    # A threshold of 0 turns collection off and stays. A nested block changes nothing, as the outer one may end first.
    raises = 0 < before[0] < _CONTAINERS
    if raises:
        gc.set_threshold(_CONTAINERS, *before[1:])
    try:
        yield
    finally:
        if raises:
            gc.set_threshold(*before)


def acknowledge() -> None:
    """Acknowledge the data that this process has received over TCP, and send waiting data at once.

    Spark sends a task's function, and then its input, with Nagle's algorithm on: the input waits until the function is
    acknowledged, which Linux delays by 40 ms in a process that Spark uses again.
    """
    if not hasattr(socket, "TCP_QUICKACK"):
        return  # only Linux has it, and only there do open files have names
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or none of TCP
            is_blocking = os.get_blocking(int(name))
            connection = socket.socket(fileno=int(name))
            try:
                os.set_blocking(int(name), is_blocking)  # a default time-out of the program changes it
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            finally:
                connection.detach()
