"""The sessions of docs/cli.md and of the first hour of operations show what really happens."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?P<command>.*\n(?:> .*\n)*)(?P<output>(?:(?![$>] ).*\n)*)", re.MULTILINE)


@pytest.mark.parametrize("page", ["cli", "first-hour-operations"])
def test_example_shows_what_happens(page: str, tmp_path: Path) -> None:
    text = (DOCS / f"{page}.md").read_text("utf-8")
    blocks = [(match["language"], match["content"]) for match in BLOCK.finditer(text)]
    specification = "".join(content for language, content in blocks if language == "toml")
    (tmp_path / f"{tomllib.loads(specification)['name']}.toml").write_text(specification)
    script = 'structable() { "$PYTHON" -m structable.cli "$@"; }\n'
    expected = ""
    for match in COMMAND.finditer("".join(content for language, content in blocks if language == "console")):
        script += re.sub(r"^> ", "", match["command"], flags=re.MULTILINE)
        expected += match["output"]
    done = subprocess.run(
        ["sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONUTF8": "1"},
        check=False,
    )
    # A table's last column is filled up with spaces, which the page does not show.
    assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()
