"""What a failed command says and the exit code it ends with; docs/cli.md holds the table.

Every error is one line on standard error, without secrets and without characters that a terminal would obey.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote

from structable.spi import (
    BackendNotFoundError,
    RecordNotFoundError,
    StorageUnavailableError,
    StructableError,
    TableNotFoundError,
    TransactionConflictError,
    mask_url,
)

__all__ = ["CommandError", "ExitCode", "UsageProblem", "explain_error", "one_line", "without_secrets"]

DEBUG_VARIABLE = "STRUCTABLE_DEBUG"
_PASSWORDS = (re.compile(r"://[^/:@]*:([^/]+)@"), re.compile(r"^[^/:@]*(?:://[^/:@]*)?:(?!//)(.+)@"))


class ExitCode(enum.IntEnum):
    """How a command ends."""

    DONE = 0
    FAILED = 1
    """The store or the contract refused, or a check found a problem."""
    USAGE = 2
    """The command line, an expression or an input file is wrong; the store was not changed."""
    NOT_FOUND = 3
    """There is no such table, row or backend."""
    TRY_AGAIN = 4
    """A conflict, or the store is not available: nothing was done, and the same command may succeed later."""
    INTERRUPTED = 130
    """Ctrl-C."""
    READER_GONE = 141
    """Whatever read the output, such as `head`, has ended."""


class CommandError(Exception):
    """A command cannot go on.

    Parameters
    ----------
    message : str
        What was wrong and what would be right.
    code : ExitCode
        How the process ends.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageProblem(CommandError):
    """What the user gave is wrong: an argument, an expression, an input file."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


def explain_error(error: BaseException) -> tuple[str, ExitCode]:
    """Return the message and the exit code of an error that ended a command.

    Parameters
    ----------
    error : BaseException
        Any; one that no code foresaw is named with its type, and how to see its traceback.
    """
    match error:
        case CommandError():
            return str(error), error.code
        case TableNotFoundError() | RecordNotFoundError() | BackendNotFoundError():
            return str(error), ExitCode.NOT_FOUND
        case TransactionConflictError() | StorageUnavailableError():
            return str(error), ExitCode.TRY_AGAIN
        case StructableError():
            return str(error), ExitCode.FAILED
        case KeyboardInterrupt():
            return "interrupted", ExitCode.INTERRUPTED
        case MemoryError():
            return "there is not enough memory", ExitCode.FAILED
        case OSError() if error.strerror:
            where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
            return f"{where}{error.strerror}", ExitCode.FAILED
    hint = f"; {DEBUG_VARIABLE}=1 shows the traceback"
    return f"unexpected {type(error).__name__}: {error}{hint}", ExitCode.FAILED


def one_line(message: str) -> str:
    """Return a message on one line, with control characters escaped."""
    joined = " ".join(part.strip() for part in message.splitlines() if part.strip())
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in joined)


def without_secrets(message: str, urls: Iterable[str]) -> str:
    """Return a message with every secret of some URLs masked, in whatever form a driver repeated it.

    Parameters
    ----------
    message : str
        To be shown.
    urls : iterable of str
        The URLs that were used; what is no URL does no harm.
    """
    for url in urls:
        message = message.replace(url, mask_url(url))
        for secret in sorted(_secrets(url), key=len, reverse=True):
            message = message.replace(secret, "***")
    return message


def _secrets(url: str) -> set[str]:
    place, _, query = url.partition("?")
    found = set()
    for pattern in _PASSWORDS:  # the second, of a malformed URL, only where the first finds none
        if password := pattern.search(place):
            found |= {password[1], unquote(password[1])}
            break
    for name, value in parse_qsl(query):
        if mask_url(f"?{name}={value}").endswith("=***"):
            found.add(value)
    return found - {""}
