"""Durable changes of files, and whether there is room for more."""

from __future__ import annotations

import os
from pathlib import Path

_PROBE = 256 << 10


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes) -> None:
    """Replace the content of a file: after a crash the file has the new content or the old one."""
    new = path.with_name(f"{path.name}.new")
    with open(new, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(path.parent)


def cut(path: Path, size: int) -> None:
    """Cut a file off at a size, durably."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def probe_disk(folder: Path, size: int) -> None:
    """Raise `OSError` if there is no room for `size` bytes. It writes them, since `statvfs` ignores quotas."""
    wanted = _PROBE + size
    probes: list[Path] = []
    try:
        while wanted > 0:
            probe = folder / f"probe-{len(probes)}"
            probes.append(probe)
            with open(probe, "wb") as file:
                file.write(bytes(_PROBE))
                file.flush()
                os.fsync(file.fileno())
            wanted -= _PROBE
    finally:
        for probe in probes:
            probe.unlink(missing_ok=True)
