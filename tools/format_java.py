"""Format all Java of the project by google-java-format; with `--check`, fail if a file would change, and change none.

1.28.0 is the last version that runs on Java 17. Where it cannot be fetched, `--check` checks nothing, and fails if
STRUCTABLE_REQUIRE_ALL_BACKENDS is 1, as tests of a missing server do.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers.fetching import cache, fetch, filled_once
from tests.servers.processes import ServerFailedError

VERSION = "1.28.0"
ROOT = Path(__file__).parent.parent
FOLDERS = ("spark_bridge/jvm/java", "tests/hbase/support")


def jar() -> Path:
    """Return the formatter, which Maven fetches once for all checkouts of this machine."""
    folder = filled_once(cache() / f"google-java-format-{VERSION}", fill)
    return folder / f"google-java-format-{VERSION}-all-deps.jar"


def fill(folder: Path) -> None:
    """Have Maven copy the formatter into a folder."""
    if shutil.which("mvn") is None:
        install = [ROOT / "tools/apt-install", "Maven, for google-java-format", "maven"]
        if subprocess.run(install, check=False).returncode != 0:
            raise ServerFailedError("Maven, which fetches google-java-format, is missing")
    artifact = f"com.google.googlejavaformat:google-java-format:{VERSION}:jar:all-deps"
    copy = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    fetch("google-java-format", ["mvn", "-q", "-B", *copy])


if __name__ == "__main__":
    checks = "--check" in sys.argv
    try:
        formatter = jar()
    except ServerFailedError as error:
        print(f"the format of Java is not {'checked' if checks else 'corrected'}: {error}", file=sys.stderr)
        sys.exit(int(not checks or os.environ.get("STRUCTABLE_REQUIRE_ALL_BACKENDS") == "1"))
    mode = ["--dry-run", "--set-exit-if-changed"] if checks else ["--replace"]
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin/java") if home else "java"
    files = [str(file.relative_to(ROOT)) for name in FOLDERS for file in sorted((ROOT / name).glob("*.java"))]
    done = subprocess.run([java, "-jar", formatter, *mode, *files], cwd=ROOT, check=False)
    if done.returncode != 0 and checks:
        print("google-java-format would change these files, or cannot read one; run `make format`", file=sys.stderr)
    sys.exit(done.returncode)
