"""`tools/format_java.py` on a machine where Maven fetches nothing."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_lint_goes_on_without_the_formatter_but_not_in_ci(tmp_path: Path) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho no network\nexit 1\n")
    maven.chmod(0o755)
    machine = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)}
    for required, arguments, code in (("0", ("--check",), 0), ("1", ("--check",), 1), ("0", (), 1)):
        run = subprocess.run(
            [sys.executable, "-m", "tools.format_java", *arguments],
            cwd=ROOT,
            env={**machine, "STRUCTABLE_REQUIRE_ALL_BACKENDS": required},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == code
        assert run.stderr.startswith(f"the format of Java is not {'checked' if arguments else 'corrected'}: mvn could")
        assert "no network" in run.stderr
