"""Whether a disk has room to reopen a database, determined by writing: `statvfs` omits quotas and reserves."""

from __future__ import annotations

import os
from pathlib import Path

from .log import log_files

__all__ = ["probe_space"]

_PROBE = 256 << 10


def probe_space(folder: Path) -> None:
    """Raise `OSError` if there is no room to reopen a database, which turns its logs into table files."""
    wanted = _PROBE + sum(path.stat().st_size for path in log_files(folder))
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
