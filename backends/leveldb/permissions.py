"""Files and sockets of one user: links are not followed, and files that other users may have made are rejected.

A user who may write in a database folder can replace its files by links to other files, for structable to write to. So
other users lose the right to write in the folder and its parts before these are used, and each entry must be of the
right kind and user.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedFileError(PermissionError):
    """A file or folder may come from another user; the message names it, and the remedy."""


def open_private(path: Path, flags: int) -> int:
    """Open a regular file of this user, or of the user of its folder; a new one is open to this user alone.

    Raises `UntrustedFileError` if it is a link, not a regular file, another user's, or has other names.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if path.is_symlink():
            raise UntrustedFileError(_link(path)) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedFileError(f"{path} is not a regular file; remove it")
        if status.st_nlink > 1:
            raise UntrustedFileError(f"{path} is a hard link to a file with other names; remove it")
        if not _trusted(status.st_uid, path.parent):
            raise UntrustedFileError(f"{path} belongs to user {status.st_uid}; remove it")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def close_to_others(folder: Path) -> bool:
    """Remove other users' right to write in a folder of this user.

    Returns whether they had it, so that entries may be theirs. Raises `UntrustedFileError` if the folder is a link,
    another user's, or for all users.
    """
    status = os.lstat(folder)
    if stat.S_ISLNK(status.st_mode):
        raise UntrustedFileError(_link(folder))
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{folder} is not a folder")
    me = os.geteuid()
    if me not in (0, status.st_uid):
        raise UntrustedFileError(
            f"{folder} belongs to user {status.st_uid}, this process to user {me}; use a folder of user {me}, "
            "such as a new one inside of it"
        )
    if not status.st_mode & _OTHERS_WRITE:
        return False
    if status.st_mode & stat.S_ISVTX:
        raise UntrustedFileError(f"{folder} is a folder for all users, like /tmp; use a new one inside of it")
    os.chmod(folder, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
    return True


def check_entries(folder: Path, *, owners: bool) -> None:
    """Check that the entries of a folder are files and folders, not links; `UntrustedFileError` if one is not.

    With `owners`, which takes longer, each entry at any depth must be this user's, and folders are closed to others.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            _check_kind(entry)
            if owners:
                path = Path(entry.path)
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # another process has removed it
                if not _trusted(status.st_uid, folder):
                    raise UntrustedFileError(f"{path} belongs to user {status.st_uid}; remove it")
                if stat.S_ISDIR(status.st_mode):
                    close_to_others(path)
                    check_entries(path, owners=True)


def check_kinds(folder: Path) -> None:
    """Check that no file of a folder is a pipe, a socket or a device, which could block when opened.

    Raises `UntrustedFileError` if one is.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_symlink():
                _check_kind(entry)


def check_peer(connection: socket.socket, folder: Path) -> None:
    """Check that the other side of a Unix socket runs as this user, the user of the folder, or root."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    if user not in (os.getuid(), os.stat(folder).st_uid, 0):
        raise PermissionError(f"user {user} does not own {folder}")


def _check_kind(entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        raise UntrustedFileError(_link(entry.path))
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
        return
    if os.path.lexists(entry.path):  # otherwise another process has removed it
        raise UntrustedFileError(f"{entry.path} is not a regular file; remove it")


def _trusted(user: int, folder: Path) -> bool:
    return user in (os.geteuid(), 0) or user == os.stat(folder).st_uid


def _link(path: Path | str) -> str:
    return f"{path} is a symbolic link, which structable does not follow; remove it, or put its target here"
