"""Administration that HBase's Thrift gateway does not offer, by a Java program on HBase's own class path."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .settings import JAVA

_PROGRAM = Path(__file__).with_name("Administration.java")


class AdministrationError(RuntimeError):
    """HBase refused the operation; the message is its reason."""


class Administration:
    """A Java program that runs one operation after another, until `close` or the end of this process.

    The class path is HBase's jars, after a folder with the hbase-site.xml of the server.
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
        """Split the region of the key, or else at the median row, and wait for the new regions."""
        self._ask("split", table, *([] if key is None else [base64.b64encode(key).decode()]))

    def flush(self, table: str) -> None:
        """Flush the table's memory to files."""
        self._ask("flush", table)

    def compact(self, table: str) -> None:
        """Flush, then rewrite all files of the table without deleted cells; return when it is done."""
        self._ask("compact", table)

    @contextmanager
    def snapshots(self, tables: Iterable[str]) -> Iterator[Callable[[], None]]:
        """Take a snapshot of each table, and return a function that restores all of them, dropped tables included."""
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
        """Grant a user rights (letters of RWXCA, or none to revoke) on a table, or on all of `namespace:`."""
        if table.endswith(":"):
            self._ask("grant_all", table[:-1], user, rights or "-")
        else:
            self._ask("grant", table, user, rights or "-")

    def close(self) -> None:
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
