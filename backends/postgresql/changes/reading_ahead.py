"""`Ahead`: a result that a thread receives while the caller goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from structable.spi import StorageUnavailableError

__all__ = ["Ahead"]

Result = TypeVar("Result")


class Ahead(Generic[Result]):
    """The result of a call that begins now, in a thread of its own; `text` names it."""

    def __init__(self, text: str, call: Callable[[], Result]) -> None:
        self.text = text
        self._call = call
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        thread = threading.Thread(target=self._run, name="structable-ahead", daemon=True)
        with suppress(RuntimeError):  # no thread can start now: `result` calls
            thread.start()
            self._thread = thread

    def wait(self) -> None:
        """Wait for the end of the call."""
        if self._thread is not None:
            self._thread.join()

    def result(self) -> Result:
        """Return the result, or raise the call's exception."""
        if self._thread is None:
            return self._call()
        self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._results:
            raise StorageUnavailableError("these changes were being read by the process that forked this one")
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._error = error
