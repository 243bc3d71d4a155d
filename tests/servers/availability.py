"""The response of a test to a missing server, and a check for containers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from typing import NoReturn

import pytest


class NoServerError(Exception):
    """There is no server; the message says how to get one."""


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it where all stores must be tested."""
    if os.environ.get("STRUCTABLE_REQUIRE_ALL_BACKENDS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def containers_run() -> bool:
    """Tell whether testcontainers is installed and a Docker daemon answers."""
    docker = shutil.which("docker")
    if docker is None or importlib.util.find_spec("testcontainers") is None:
        return False
    try:
        asked = subprocess.run(
            [docker, "version", "--format", "{{.Server.Version}}"], capture_output=True, timeout=20, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0
