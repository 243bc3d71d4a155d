"""The answer to each failure: a status, and a JSON object with the error's name and message."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Handler

from structable.spi import (
    CommitOutcomeUnknownError,
    InvalidFieldError,
    RecordExistsError,
    RecordNotFoundError,
    StorageUnavailableError,
    StructableError,
    TableNotFoundError,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
)

from .documents import RequestError

_log = logging.getLogger("gateway")

_STATUSES: list[tuple[type[Exception], int]] = [
    (RequestError, 400),
    (InvalidFieldError, 400),
    (RecordNotFoundError, 404),
    (RecordExistsError, 409),
    (TransactionConflictError, 409),
    (UnsupportedOperationError, 501),
    (StorageUnavailableError, 503),
    (TableNotFoundError, 503),
    (TransactionClosedError, 503),
    # Not one of the statuses that clients repeat by themselves: the write may have been done.
    (CommitOutcomeUnknownError, 500),
]


@web.middleware
async def answer_failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run a handler, and turn the exception that it raises into an answer."""
    try:
        return await handler(request)
    except web.HTTPException as answer:
        if answer.status < 400:
            raise
        return _failure(answer.status, type(answer).__name__, answer.text or answer.reason, answer.headers.get("Allow"))
    except (RequestError, StructableError) as error:
        for kind, status in _STATUSES:
            if isinstance(error, kind):
                return _failure(status, type(error).__name__, str(error))
        _log.exception("%s %s failed", request.method, request.path)
        return _failure(500, type(error).__name__, str(error))
    except Exception:
        _log.exception("%s %s failed", request.method, request.path)
        return _failure(500, "InternalError", "the gateway failed; its log has the reason")


def _failure(status: int, error: str, message: str, allowed: str | None = None) -> web.Response:
    answer = web.json_response({"error": error, "message": message}, status=status)
    if status == 503:
        answer.headers["Retry-After"] = "1"
    if allowed is not None:
        answer.headers["Allow"] = allowed
    return answer
