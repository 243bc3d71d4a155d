"""`ListeningSocket`: the Unix socket of the owner, and the file that leads clients to it."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path

from structable.backends.leveldb.folder import DatabaseFolder

_LONGEST_PATH = 107
_PRIVATE_PREFIX = "structable-"
_BACKLOG = 128


class ListeningSocket:
    """A listening socket in the database folder, or in a private folder if that path would be too long.

    Once it listens, its path is published in the folder's file `owner`. After an `OSError` nothing is left behind.
    """

    def __init__(self, folder: DatabaseFolder) -> None:
        self._folder = folder
        self.path = ""
        self._files: list[tuple[int, int]] = []
        self._remove_predecessor()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(None)  # the program may have set a default
            # Linux gives the socket's file this mode, so the file is never open to others, not even for a moment.
            os.fchmod(self._socket.fileno(), 0o600)
            self.path = self._make_path()
            self._socket.bind(self.path)
            self._socket.listen(_BACKLOG)
            folder.write_owner(self.path)
            self._files = self._identities()
        except BaseException:
            self._socket.close()
            self.remove()
            raise

    def _make_path(self) -> str:
        path = str(self._folder.socket)
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
        parent = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
        if not os.access(parent, os.W_OK | os.X_OK) or len(os.fsencode(parent)) > _LONGEST_PATH - 40:
            parent = tempfile.gettempdir() if len(tempfile.gettempdir()) < _LONGEST_PATH - 40 else "/tmp"
        return os.path.join(tempfile.mkdtemp(prefix=_PRIVATE_PREFIX, dir=parent), "socket")

    def _remove_predecessor(self) -> None:
        owner = self._folder.read_owner()
        if owner is not None:
            _remove_private(owner[0])
        self._folder.socket.unlink(missing_ok=True)

    def _identities(self) -> list[tuple[int, int]]:
        found = [os.lstat(path) for path in (self.path, self._folder.owner)]
        return [(status.st_dev, status.st_ino) for status in found]

    @property
    def reachable(self) -> bool:
        """Whether clients can find the socket: neither its file nor `owner` was removed or replaced."""
        try:
            return self._identities() == self._files
        except OSError:
            return False

    def accept(self) -> socket.socket:
        """Wait for a client and return the connection; `OSError` after `shut`, or if it cannot be made."""
        connection = self._socket.accept()[0]
        connection.settimeout(None)
        return connection

    def shut(self) -> None:
        """Wake a thread that waits in `accept`; clients are refused from now on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket; no thread may be in `accept`."""
        self._socket.close()

    def remove(self) -> None:
        """Remove the socket's file, once: the next owner's file may have the same path."""
        path, self.path = self.path, ""
        if path == str(self._folder.socket):
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if not self._files or (status.st_dev, status.st_ino) == self._files[0]:
                    os.unlink(path)
        elif path:
            _remove_private(path)


def _remove_private(path: str) -> None:
    """Remove a socket in a private folder of this user, and nothing else."""
    parent = Path(path).parent
    with contextlib.suppress(OSError):  # it is already gone
        status = os.lstat(parent)
        private = parent.name.startswith(_PRIVATE_PREFIX) and stat.S_ISDIR(status.st_mode)
        if private and status.st_uid == os.getuid():
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    os.unlink(path)
            os.rmdir(parent)
