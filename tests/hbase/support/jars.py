"""The jars that HBase runs on, fetched by Maven once for all checkouts of this machine.

STRUCTABLE_TEST_HBASE_VERSION names another version of HBase than the pom's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.processes import ServerFailedError

__all__ = ["missing", "resolve"]

_POM = Path(__file__).with_name("pom.xml")
_TIMEOUT = 900  # seconds for 110 MB and a slow registry


def missing() -> str | None:
    """Return a description of what this machine lacks to run HBase, or None."""
    if shutil.which("java") is None:
        return "Java 17 or later (Debian: openjdk-17-jre-headless)"
    if not _folder().exists() and shutil.which("mvn") is None:
        return "Maven, which fetches HBase (Debian: maven)"
    return None


def resolve() -> Path:
    """Return the folder of all jars; Maven fills it at the first use, and its failure is a ServerFailedError."""
    folder = _folder()
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process finds the work done
        if folder.exists():
            return folder
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)  # of an interrupted process
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={unfinished}", "-DincludeScope=runtime"]
        if version := _version():
            goal.append(f"-Dhbase={version}")
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", _POM, *goal],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise ServerFailedError(f"Maven could not fetch HBase:\n{done.stdout}{done.stderr}")
        unfinished.rename(folder)
    return folder


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Other versions in the pom are other jars.
    wanted = hashlib.sha256(_POM.read_bytes() + _version().encode())
    return cache / "structable" / f"hbase-{wanted.hexdigest()[:12]}"


def _version() -> str:
    return os.environ.get("STRUCTABLE_TEST_HBASE_VERSION", "")
