"""The programs and tests of docs/how-to.md run as they are shown, in processes of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "how-to.md"
FILE = r"^<!-- executed {} -->\n```python\n(# (?P<name>\w+\.py)\n.*?)^```$"


def write_files(how: str, folder: Path) -> list[str]:
    files = re.finditer(FILE.format(how), PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = {file["name"]: file[1] for file in files}
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(found)


def run(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    finished = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_programs(tmp_path: Path) -> None:
    names = write_files("as a program", tmp_path)
    assert names == ["hits.py", "greenlets.py"]
    for name in names:
        place = tmp_path / name.removesuffix(".py")
        place.mkdir()
        run([str(tmp_path / name)], place)


def test_tests_with_the_fixture(tmp_path: Path) -> None:
    assert write_files("by pytest", tmp_path) == ["test_hits.py", "conftest.py"]
    assert "4 passed" in run(["-m", "pytest", "-p", "no:cacheprovider"], tmp_path)
