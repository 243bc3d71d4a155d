"""The installed packages are complete: every package, type marker and entry point, and a pin for every requirement."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution, entry_points
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import structable.spi
from tests.page_code import blocks_of

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


def test_wheel_holds_every_module_and_no_stale_one(tmp_path: Path) -> None:
    copy = tmp_path / "source"
    for folder in TOP_FOLDERS:
        shutil.copytree(folder, copy / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tools").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "tools/build_backend.py"):
        shutil.copy(ROOT / name, copy / name)
    before = {path.relative_to(copy) for path in copy.rglob("*")}
    modules = {f"structable/{source.relative_to(ROOT)}" for source in sources()}
    markers = {f"structable/{folder.relative_to(ROOT)}/py.typed" for folder in FOLDERS.values()}
    java = (ROOT / "spark_bridge" / "jvm" / "java").glob("*.java")
    markers |= {f"structable/{source.relative_to(ROOT)}" for source in java}
    assert packed(copy, tmp_path / "first") == modules | markers
    assert {path.relative_to(copy) for path in copy.rglob("*") if "__pycache__" not in path.parts} == before

    # The remains of an earlier build, and a module deleted since.
    stale = copy / "build" / "lib" / "structable" / "spi" / "stale.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    (copy / "spi" / "_bulk.py").unlink()
    assert packed(copy, tmp_path / "second") == (modules | markers) - {"structable/spi/_bulk.py"}


def packed(source: Path, folder: Path) -> set[str]:
    """Build a wheel and return the names of its files, without its metadata."""
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip_wheel, "--wheel-dir", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("structable-*.whl")
    return {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("structable-")}


def test_first_pages_in_an_empty_environment(tmp_path: Path) -> None:
    """As a reader does: an environment with what the pages name, and nothing else; their code as programs."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    pins, wanted = str(ROOT / "constraints.txt"), f"{ROOT}[leveldb,access]"
    install = [str(python), "-m", "pip", "install", "-q", "--constraint", pins, wanted]
    subprocess.run(install, check=True)
    for page in (ROOT / "README.md", ROOT / "docs" / "first-hour-service.md"):
        blocks = [block.code for block in blocks_of(page.read_text(encoding="utf-8")) if block.language == "python"]
        program = tmp_path / "program.py"
        program.write_text("\n".join(blocks), encoding="utf-8")
        subprocess.run([str(python), "-I", str(program)], cwd=tmp_path, check=True)


def test_version() -> None:
    assert structable.spi.__version__ == PYPROJECT["project"]["version"]


def test_a_folder_of_the_same_name_beside_a_program(tmp_path: Path) -> None:
    """As README.md says: without an __init__ it does no harm, with one it hides the installed package."""
    installed, beside = tmp_path / "installed", tmp_path / "program"
    for name in ("spi", "cli"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, installed / "structable" / name, ignore=ignored)
    (beside / "structable").mkdir(parents=True)
    program = "import sys; sys.path[:0] = sys.argv[1:]; import structable.spi; print(structable.spi.__file__)"
    run = [sys.executable, "-I", "-S", "-c", program, str(beside), str(installed)]
    assert str(installed) in subprocess.run(run, capture_output=True, text=True, check=True).stdout
    (beside / "structable" / "__init__.py").touch()
    hidden = subprocess.run(run, capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: No module named 'structable.spi'" in hidden.stderr
    (beside / "structable" / "__init__.py").unlink()
    (installed / "structable").rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", beside / "structable", dirs_exist_ok=True)
    (tmp_path / "elsewhere").rename(installed / "structable")
    assert str(beside) in subprocess.run(run, capture_output=True, text=True, check=True).stdout


def test_entry_points_load() -> None:
    ours = entry_points(group="structable.backends")
    assert {entry.name for entry in ours} >= {"leveldb", "memory"}
    for entry in ours:
        assert isinstance(entry.load(), type)


def test_constraints_pin_every_requirement_to_the_installed_version() -> None:
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
