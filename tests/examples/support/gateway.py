"""The gateway as a process of its own, and its clients."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[3]
SPECIFICATION = ROOT / "examples" / "gateway" / "profiles.json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str

    @property
    def json(self) -> object:
        return json.loads(self.text)

    @property
    def message(self) -> str:
        document = self.json
        assert isinstance(document, dict)
        return str(document["message"])


class Gateway:
    """A running gateway.

    Parameters
    ----------
    process : subprocess.Popen
        Its process, whose standard output is piped.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.search(r"at (http://\S+)$", ready)
        assert found, f"the gateway did not start: {ready}{process.stdout.read()}"
        self.url = found[1]

    def request(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> Answer:
        """Send a request over a connection of its own."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            given = body.encode() if isinstance(body, str) else body
            connection.request(method, path, given, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Return a connection for what is no request."""
        place = urlsplit(self.url)
        return socket.create_connection((place.hostname, place.port))

    def end(self, how: int = signal.SIGTERM) -> int:
        """Signal the process, and return its exit code."""
        self.process.send_signal(how)
        return self.process.wait(60)


@contextmanager
def running(url: str, *options: str) -> Iterator[Gateway]:
    """Start a gateway over the example's table, and end it afterwards if the test has not."""
    command = [sys.executable, "-m", "examples.gateway", "--url", url, "--specification", str(SPECIFICATION)]
    process = subprocess.Popen(
        [*command, "--port", "0", *options],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Gateway(process)
    finally:
        if process.poll() is None:
            process.kill()
        assert process.stdout is not None
        sys.stdout.write(process.stdout.read())  # shown with a failure
        process.stdout.close()
        process.wait()
