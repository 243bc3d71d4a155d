"""The jars that HBase runs on, fetched by Maven once for all checkouts of this machine.

STRUCTABLE_TEST_HBASE_VERSION names another version of HBase than the pom's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tests.servers.fetching import cache, fetch, filled_once

VERSION_VARIABLE = "STRUCTABLE_TEST_HBASE_VERSION"

_POM = Path(__file__).with_name("pom.xml")


def missing() -> str | None:
    """Return a description of what this machine lacks to run HBase, or None."""
    if shutil.which("java") is None:
        return "Java 17 or later (Debian: openjdk-17-jre-headless)"
    if not _folder().exists() and shutil.which("mvn") is None:
        return "Maven, which fetches HBase (Debian: maven)"
    return None


def resolve() -> Path:
    """Return the folder of all jars; Maven fills it at the first use, and its failure is a ServerFailedError."""
    return filled_once(_folder(), _fill)


def _fill(folder: Path) -> None:
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    if version := _version():
        goal.append(f"-Dhbase={version}")
    fetch("HBase", ["mvn", "-q", "-B", "-f", _POM, *goal])


def _folder() -> Path:
    # Other versions in the pom are other jars.
    wanted = hashlib.sha256(_POM.read_bytes() + _version().encode())
    return cache() / f"hbase-{wanted.hexdigest()[:12]}"


def _version() -> str:
    return os.environ.get(VERSION_VARIABLE, "")
