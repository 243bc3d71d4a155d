"""The build backend of structable: setuptools', building wheels in a folder of their own.

setuptools builds in `build/` of the source and packs what it finds there, modules that are gone included, and pip
runs it in the checkout itself. Here each wheel is built in a new folder, and nothing is left behind.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TypeAlias

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "prepare_metadata_for_build_editable",
]

_Settings: TypeAlias = dict[str, str | list[str] | None] | None
_SETTINGS = "DIST_EXTRA_CONFIG"  # names a file of settings that setuptools reads last


def build_wheel(wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None) -> str:
    """Build a wheel; the arguments are those of PEP 517. Hooks that leave their output in the source are absent."""
    with tempfile.TemporaryDirectory(prefix="structable-build-") as folder:
        settings = Path(folder, "settings.cfg")
        settings.write_text(
            f"[build]\nbuild_base = {folder}/build\n[egg_info]\negg_base = {folder}\n", encoding="utf-8"
        )
        before = os.environ.get(_SETTINGS)
        os.environ[_SETTINGS] = str(settings)
        try:
            return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
        finally:
            if before is None:
                del os.environ[_SETTINGS]
            else:
                os.environ[_SETTINGS] = before
