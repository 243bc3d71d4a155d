"""Administration that HBase's Thrift gateway does not offer, by a Java program on HBase's own class path."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .settings import JAVA

__all__ = ["Administration", "AdministrationError"]

_PROGRAM = Path(__file__).with_name("Administration.java")


class AdministrationError(RuntimeError):
    """HBase refused, with its reason."""


class Administration:
    """A program that stays until `close`, or the end of this process, and does one thing after the other.

    Parameters
    ----------
    class_path : str
        HBase's jars, after a folder with the hbase-site.xml of the server.
    """

    def __init__(self, class_path: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            ["java", "-Xmx128m", *JAVA, "-cp", class_path, _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def split(self, table: str, key: bytes | None = None) -> None:
        """Split the region of the key there, or else at the middle one of all rows, and wait for the new ones."""
        self._ask("split", table, *([] if key is None else [base64.b64encode(key).decode()]))

    def flush(self, table: str) -> None:
        """Flush the table's memory to files."""
        self._ask("flush", table)

    def compact(self, table: str) -> None:
        """Flush, then rewrite all files of the table without deleted cells, and wait for the end."""
        self._ask("compact", table)

    @contextmanager
    def snapshots(self, tables: Iterable[str]) -> Iterator[Callable[[], None]]:
        """Take a snapshot of each table, and give a function that restores all of them, dropped ones too."""
        with ExitStack() as stack:
            taken = {table: f"{table}-snapshot" for table in tables}
            for table, name in taken.items():
                self._ask("snapshot", table, name)
                stack.callback(self._ask, "forget", table, name)

            def restore() -> None:
                for table, name in taken.items():
                    self._ask("restore", table, name)

            yield restore

    def grant(self, table: str, user: str, rights: str) -> None:
        """Let a user do so much with a table, or, for a namespace and a colon, with all of its tables.

        Parameters
        ----------
        rights : str
            Letters of RWXCA, as HBase's shell has them; none takes the rights away.
        """
        if table.endswith(":"):
            self._ask("grant_all", table[:-1], user, rights or "-")
        else:
            self._ask("grant", table, user, rights or "-")

    def close(self) -> None:
        """End the program."""
        self._process.communicate()

    def _ask(self, *words: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().strip()
        if answer != "done":
            raise AdministrationError(f"{' '.join(words)}: {answer or 'the program ended'}")
