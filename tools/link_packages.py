#!/usr/bin/env python3
"""Make .packages/structable, a folder of links to the packages under the names they are imported by.

An editable install maps `structable.spi` to `spi/` by an import hook, which Python follows and static tools cannot.
They get this folder instead. The packages are those of pyproject.toml; a new file in one of them needs no new link.
"""

import os
import tomllib
from pathlib import Path

root = Path(__file__).resolve().parent.parent
links = root / ".packages" / "structable"
links.mkdir(parents=True, exist_ok=True)
settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
folders = {name.split(".")[1] for name in settings["packages"]}
for link in links.iterdir():
    if link.name not in folders:
        link.unlink()
for folder in folders:
    new = links / f".{folder}.{os.getpid()}"
    new.symlink_to(Path("..") / ".." / folder)
    new.rename(links / folder)
