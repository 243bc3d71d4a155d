"""Format all Java of the project by google-java-format; with `--check`, fail if a file would change, and change none.

1.28.0 is the last version that runs on Java 17.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers.fetching import cache, fetch, filled_once

VERSION = "1.28.0"
ROOT = Path(__file__).parent.parent
FOLDERS = ("spark_bridge/java", "tests/hbase/support")


def jar() -> Path:
    """Return the formatter, which Maven fetches once for all checkouts of this machine."""
    folder = filled_once(cache() / f"google-java-format-{VERSION}", fill)
    return folder / f"google-java-format-{VERSION}-all-deps.jar"


def fill(folder: Path) -> None:
    """Have Maven copy the formatter into a folder."""
    if shutil.which("mvn") is None:
        subprocess.run([ROOT / "tools/apt-install", "Maven, for google-java-format", "maven"], check=True)
    artifact = f"com.google.googlejavaformat:google-java-format:{VERSION}:jar:all-deps"
    copy = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    fetch("google-java-format", ["mvn", "-q", "-B", *copy])


if __name__ == "__main__":
    mode = ["--dry-run", "--set-exit-if-changed"] if "--check" in sys.argv else ["--replace"]
    java = os.path.join(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java"
    files = [str(file.relative_to(ROOT)) for name in FOLDERS for file in sorted((ROOT / name).glob("*.java"))]
    done = subprocess.run([java, "-jar", jar(), *mode, *files], cwd=ROOT, check=False)
    if done.returncode != 0 and "--check" in sys.argv:
        print("google-java-format would change these files, or cannot read one; run `make format`", file=sys.stderr)
    sys.exit(done.returncode)
