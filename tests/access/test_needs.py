"""What table access needs, and says so where it is missing."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["aiolimiter", "cachetools", "opentelemetry.metrics", "tenacity"])
def test_missing_library_is_an_error_that_names_the_extra(module: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; import structable.access"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith(
        f"ModuleNotFoundError: tables for services need {module}, which is not installed; "
        "install what structable[access] needs: pip install 'tenacity>="
    )
