"""A bank whose clients are killed at random stays sound in every snapshot."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from structable.spi import connect

from .support.bank import open_bank, quick, require_sound
from .support.internals import collect_garbage, engine_of
from .support.shared import Place

_ROOT = Path(__file__).parents[2]
_ACCOUNTS = 8
_CLIENTS = 4
_SECONDS = 10
_STARTING = 60


class _Client:
    """A process that makes transfers until it is killed."""

    def __init__(self, url: str, name: str) -> None:
        command = [sys.executable, "-m", "tests.hbase.support.bank_worker", "load", url, name]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._first = self._process.stdout.readline()

    def kill(self) -> list[str]:
        """Kill -9 it, and return its acknowledged transfers."""
        self._process.kill()
        rest, _ = self._process.communicate(timeout=_STARTING)
        lines = [self._first, *rest.splitlines(keepends=True)]
        return [line.strip() for line in lines if line.endswith("\n")]


def test_clients_killed_at_random(hbase_server: Place, hbase_url: str) -> None:
    """Every snapshot has the whole total; acknowledged transfers happened once; dead processes leave nothing behind."""
    url = quick(hbase_url)
    chance = random.Random(5)
    with connect(url) as storage:
        open_bank(storage, _ACCOUNTS)
        acknowledged: list[str] = []
        clients = [_Client(url, f"c{number}") for number in range(_CLIENTS)]
        started = _CLIENTS
        end = time.monotonic() + _SECONDS
        try:
            while time.monotonic() < end:
                seen = require_sound(storage, _ACCOUNTS)
                assert seen <= require_sound(storage, _ACCOUNTS)
                if chance.random() < 0.2:
                    acknowledged += clients.pop(chance.randrange(_CLIENTS)).kill()
                    assert set(acknowledged) <= require_sound(storage, _ACCOUNTS)
                    clients.append(_Client(url, f"c{started}"))
                    started += 1
        finally:
            for client in clients:
                acknowledged += client.kill()
        found = require_sound(storage, _ACCOUNTS)
        assert started > _CLIENTS
        assert len(acknowledged) == len(set(acknowledged)) > 0
        # A client may have been killed between its commit and the acknowledgement: at most one transfer each, of a
        # name that was never used before.
        assert set(acknowledged) <= found
        assert len(found) <= len(acknowledged) + started
        while (report := collect_garbage(storage)).pending or report.unfinalised or report.aborted or report.finalised:
            assert require_sound(storage, _ACCOUNTS) == found
        assert report.sessions <= 1 + started
        assert require_sound(storage, _ACCOUNTS) == found
        assert engine_of(storage).transactions.finaliser.backlog == 0
