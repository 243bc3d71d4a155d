"""CPython interpreters that Maven fetches, each with the packages that tests without servers need."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.page_code import ROOT
from tests.servers.fetching import cache, fetch, filled_once

_PLACE = "org/bytedeco/cpython/linux-x86_64"
_EXTRAS = "access,cli,conformance,datasets,hbase,postgresql"
_PINS = ROOT / "constraints.txt"


def interpreter(version: str) -> Path:
    """Return the program of a version of the artifact `org.bytedeco:cpython`, such as 3.13.5-1.5.12."""
    pins = hashlib.sha256(_PINS.read_bytes()).hexdigest()[:12]
    folder = filled_once(cache() / f"python-{version}-{pins}", lambda unfinished: _fill(unfinished, version))
    return _program(folder)


def installed_structable(folder: Path) -> Path:
    """Return a folder with structable as pip installs it, for PYTHONPATH."""
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip_wheel, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("structable-*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def _fill(folder: Path, version: str) -> None:
    artifact = f"-Dartifact=org.bytedeco:cpython:{version}:jar:linux-x86_64"
    fetch(f"Python {version}", ["mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}"])
    (jar,) = folder.glob("*.jar")
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(f"{_PLACE}/")])
    jar.unlink()
    program = _program(folder)
    program.chmod(0o755)
    python = str(program)
    fetch("pip", [python, "-m", "ensurepip"])
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    packages = [f"{ROOT}[{_EXTRAS}]", "freezegun", "pendulum", "pytest-rerunfailures", "pytest-xdist"]
    fetch("packages", [*pip, "install", "--constraint", str(_PINS), *packages])
    fetch("packages", [*pip, "uninstall", "-y", "structable"])  # each run has its own


def _program(folder: Path) -> Path:
    (python,) = (one for one in (folder / _PLACE / "bin").glob("python3.*") if one.name[8:].isdecimal())
    return python
