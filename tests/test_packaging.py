"""What is installed is complete: every package, its type marker, its entry points, and a pin for every requirement."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution, entry_points
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PYPROJECT["tool"]["setuptools"]["packages"]
FOLDERS = {name: ROOT.joinpath(*name.split(".")[1:]) for name in PACKAGES}
TOP_FOLDERS = sorted({ROOT / name.split(".")[1] for name in PACKAGES})


def sources() -> list[Path]:
    return sorted(source for folder in TOP_FOLDERS for source in folder.rglob("*.py"))


def test_every_folder_with_source_is_listed_as_a_package() -> None:
    assert {source.parent for source in sources()} <= set(FOLDERS.values())


def test_every_package_is_marked_as_typed() -> None:
    assert [name for name, folder in FOLDERS.items() if not (folder / "py.typed").exists()] == []


def test_wheel_holds_every_module(tmp_path: Path) -> None:
    # Built from a copy: setuptools leaves build/ behind, and takes what it finds there for current.
    copy = tmp_path / "source"
    for folder in TOP_FOLDERS:
        shutil.copytree(folder, copy / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip_wheel, "--wheel-dir", str(tmp_path), str(copy)], check=True)

    (wheel,) = tmp_path.glob("structable-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("structable-")}
    modules = {f"structable/{source.relative_to(ROOT)}" for source in sources()}
    markers = {f"structable/{folder.relative_to(ROOT)}/py.typed" for folder in FOLDERS.values()}
    assert packed == modules | markers


def test_entry_points_load() -> None:
    ours = entry_points(group="structable.backends")
    assert {entry.name for entry in ours} >= {"leveldb", "memory"}
    for entry in ours:
        assert isinstance(entry.load(), type)


def test_constraints_pin_every_requirement_to_what_is_installed() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    needed: dict[str, str] = {}
    found = {("structable", "dev")}
    waiting = list(found)
    while waiting:
        name, extra = waiting.pop()
        installed = distribution(name)
        if name != "structable":
            needed[name] = installed.version
        for line in installed.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted = {(canonicalize_name(requirement.name), each) for each in ("", *requirement.extras)}
                waiting += wanted - found
                found |= wanted
    assert needed == pins
