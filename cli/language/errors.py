"""The message and the exit code of a failed command, and the signals that end one; docs/cli.md holds the table.

Every error is one line on standard error, without secrets and without control characters. Each signal raises an
exception, so that the command closes its store and reports its progress.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType

from structable.spi import (
    BackendNotFoundError,
    CommitOutcomeUnknownError,
    InvalidFieldError,
    RecordNotFoundError,
    StorageUnavailableError,
    StoreNotFoundError,
    StructableError,
    TableNotFoundError,
    TransactionConflictError,
    mask_url,
)
from structable.spi.text import escaped_text

DEBUG_VARIABLE = "STRUCTABLE_DEBUG"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")
_MASKED = re.compile(r".*=\*\*\*([:;,.)]*)")
_LABELLED = re.compile(
    r"(\b\w*(?:password|passwd|passphrase)\w*=)(?!\*\*\*[:;,.)]*(?:\s|$))('(?:[^'\\]|\\.)*'|[^\s'\"&,;]+)",
    re.IGNORECASE,
)
_TOLD_TO_END = (signal.SIGTERM, signal.SIGHUP)
_DEFAULTS = (signal.default_int_handler, signal.SIG_DFL)


class ExitCode(enum.IntEnum):
    """The exit codes of the command."""

    DONE = 0
    FAILED = 1
    """The store or the contract rejected the operation, or a check found a problem."""
    USAGE = 2
    """The command line, an expression or an input file is wrong; the store was not changed."""
    NOT_FOUND = 3
    """The store, table, row or backend does not exist."""
    TRY_AGAIN = 4
    """A conflict, or an unavailable store: nothing was changed, and the same command may succeed later."""
    HUNG_UP = 129
    """SIGHUP: the terminal has gone."""
    INTERRUPTED = 130
    """Ctrl-C."""
    READER_GONE = 141
    """The reader of the output, such as `head`, has ended."""
    TERMINATED = 143
    """SIGTERM."""


class CommandError(Exception):
    """Ends a command with an exit code and a message, which names the fault and the remedy."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageProblem(CommandError):
    """An argument, an expression or an input file is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


class Ended(KeyboardInterrupt):
    """The process must end; `number` is the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def ending_signals() -> Iterator[list[Ended]]:
    """Raise in the block for each Ctrl-C, and for the first SIGTERM or SIGHUP; yield the raised exceptions.

    A library, such as Arrow, may turn the exception into another error. Later SIGTERM and SIGHUP signals do not
    interrupt the command again: service managers send both. Ignored signals, as with `nohup`, stay ignored.
    """
    raised: list[Ended] = []
    if threading.current_thread() is not threading.main_thread():
        yield raised
        return

    def end(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT or not raised:
            raised.append(Ended(number))
            raise raised[-1]

    given = [(number, signal.getsignal(number)) for number in (signal.SIGINT, *_TOLD_TO_END)]
    replaced = [(number, handler) for number, handler in given if handler in _DEFAULTS]
    for number, _ in replaced:
        signal.signal(number, end)
    try:
        yield raised
    finally:
        for number, handler in replaced:
            signal.signal(number, handler)


def explain_error(error: BaseException) -> tuple[str, ExitCode]:
    """Return the message and the exit code of a command's error; an unexpected error is named with its type."""
    match error:
        case CommandError():
            return str(error), error.code
        case StoreNotFoundError():
            reason = str(error).partition("; connect without")[0]
            return f"{reason}; 'structable create' creates it", ExitCode.NOT_FOUND
        case TableNotFoundError() | RecordNotFoundError() | BackendNotFoundError():
            return str(error), ExitCode.NOT_FOUND
        case InvalidFieldError():
            return str(error), ExitCode.USAGE
        case TransactionConflictError() | StorageUnavailableError():
            return str(error), ExitCode.TRY_AGAIN
        case StructableError():
            return str(error), ExitCode.FAILED
        case Ended(number=signal.SIGTERM):
            return "terminated", ExitCode.TERMINATED
        case Ended(number=signal.SIGHUP):
            return "hung up", ExitCode.HUNG_UP
        case KeyboardInterrupt():
            return "interrupted", ExitCode.INTERRUPTED
        case MemoryError():
            return "there is not enough memory", ExitCode.FAILED
        case OSError() if error.strerror:
            where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
            return f"{where}{error.strerror}", ExitCode.FAILED
    hint = f"; {DEBUG_VARIABLE}=1 shows the traceback"
    return f"unexpected {type(error).__name__}: {error}{hint}", ExitCode.FAILED


def outcome_unknown(error: BaseException) -> bool:
    """Whether an error says that a commit may have happened; such an error is never replaced by another."""
    return isinstance(error, CommitOutcomeUnknownError) or isinstance(error.__cause__, CommitOutcomeUnknownError)


def one_line(message: str) -> str:
    """Return a message on one line, with control characters escaped."""
    return escaped_text(" ".join(part.strip() for part in message.splitlines() if part.strip()))


def masked(message: str, given: Iterable[str] = ()) -> str:
    """Return a message with the passwords of URLs and connection strings masked, and nothing else.

    The given URLs are also masked as they were typed, spaces and quotes included. The password itself is never searched
    for: `a` occurs in every word, and a masked word would reveal the password.
    """
    for text in sorted(given, key=len, reverse=True):
        for form in (text, repr(text)[1:-1]):
            if (shown := mask_url(form)) != form:
                message = message.replace(form, shown)
    message = _URL.sub(_masked_url, message)
    return _LABELLED.sub(r"\1***", message)


def _masked_url(url: re.Match[str]) -> str:
    # Punctuation of the message after a mask at the end of a URL is not part of the password.
    already = _MASKED.fullmatch(url[0])
    return mask_url(url[0]) + (already[1] if already else "")
