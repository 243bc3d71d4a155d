"""`StoreProcess`: another process on the same store, which the test can command, await and kill."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from .worker import decoded, encoded

LONGEST = 120.0
"""The longest wait for one answer of a client, in seconds."""


class StoreProcess:
    """A process that runs one command of `worker.COMMANDS` on a store."""

    def __init__(self, url: str, command: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "structable.testing.conformance.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: queue.Queue[tuple[bool, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send((command, url, arguments))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # an unfinished line of a killed process does not count
                self._answers.put(decoded(line))
        self._answers.put(None)

    def send(self, message: object) -> None:
        """Send the process an object that it waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write(encoded(message))
        self._process.stdin.flush()

    def next(self) -> Any:  # noqa: ANN401 - the test knows the type
        """Return the next result of the command, or raise what the process raised."""
        try:
            answer = self._answers.get(timeout=LONGEST)
        except queue.Empty:
            raise AssertionError(f"the client process gave no answer in {LONGEST:g} seconds") from None
        if answer is None:
            self._answers.put(None)
            raise EOFError(f"the client process ended with {self._process.wait()}")
        succeeded, result = answer
        if not succeeded:
            raise result
        return result

    def so_far(self) -> list[Any]:
        """Return the results received so far."""
        results = []
        while not self._answers.empty():
            results.append(self.next())
        return results

    def rest(self) -> list[Any]:
        """Return all results up to the end of the process."""
        results = []
        while True:
            try:
                results.append(self.next())
            except EOFError:
                return results

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - the test knows the type
        """Let a process in `obey` perform a command, and return the result."""
        self.send((function, arguments))
        return self.next()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # the process waits for no command any more
                pipe.close()
