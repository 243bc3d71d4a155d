"""The FastAPI example: two workers of uvicorn on one store, and what their requests answer."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.page_code import ROOT
from tests.waiting import until

Ask = Callable[..., "tuple[int, Any]"]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "examples.fastapi_service.service:service", "--workers", "2"]
    environment = {**os.environ, "STRUCTABLE_URL": f"leveldb://{tmp_path}/shop"}
    with subprocess.Popen(
        [*command, "--port", str(port), "--log-level", "warning"], cwd=ROOT, env=environment
    ) as server:

        def run(method: str, path: str, body: object = None) -> tuple[int, Any]:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, method=method)
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        def answers() -> bool:
            try:
                return run("GET", "/articles")[0] == 200
            except OSError:
                assert server.poll() is None
                return False

        until(answers)
        yield run
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def test_two_workers(ask: Ask) -> None:
    assert ask("POST", "/articles/pen", {"title": "Pen", "stock": 40}) == (201, None)
    assert ask("POST", "/articles/pen", {"title": "Pen"})[0] == 409
    assert ask("POST", "/articles/ink", {"stock": "many"})[0] == 422
    assert ask("GET", "/articles/pen") == (200, {"id": "pen", "title": "Pen", "stock": 40})
    assert ask("GET", "/articles/none")[0] == 404
    with ThreadPoolExecutor(8) as pool:
        sold = list(pool.map(lambda _: ask("POST", "/articles/pen/sold"), range(41)))
    assert sorted(code for code, _ in sold) == [200] * 40 + [409]
    assert sorted(body["stock"] for code, body in sold if code == 200) == list(range(40))
    assert ask("GET", "/articles") == (200, [])
