"""Client processes: each opens programs, and all begin a round together."""

from __future__ import annotations

import multiprocessing
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from time import perf_counter
from typing import Any

from .programs import Opening, Program, Share, Step

_SPAWN = multiprocessing.get_context("spawn")
_PATIENCE = 600.0
_PATIENCE_OF_CALLS = 7_200.0
"""Seconds; SQLite loads ten million records in one transaction."""
_TOGETHER = 60.0
_FIRST_STEPS = 2_000


class ClientError(RuntimeError):
    """A client process failed; the message is its traceback."""


class Fleet:
    """Client processes, each with a connection of its own to every open database.

    Parameters
    ----------
    pipes : list of Connection
        One for each process.
    """

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    @property
    def size(self) -> int:
        """The number of clients."""
        return len(self._pipes)

    @contextmanager
    def opened(self, name: str, opening: Opening) -> Iterator[None]:
        """Open a program in all clients, one after the other, and close it in the opposite order."""
        with ExitStack() as stack:
            for number, pipe in enumerate(self._pipes):
                _ask(pipe, "open", name, opening, number, self.size)
                stack.callback(_ask, pipe, "close", name)
            yield

    def call(self, name: str, method: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a method of the first client's program, and return its result."""
        pipe = self._pipes[0]
        pipe.send(("call", name, method, *arguments))
        return _checked(_receive(pipe, _PATIENCE_OF_CALLS))

    def run(self, name: str, work: str, seed: int, seconds: float) -> list[Share]:
        """Let all clients take steps for the given time, beginning at the same moment."""
        for pipe in self._pipes:
            pipe.send(("run", name, work, seed, seconds))
        answers = [_receive(pipe) for pipe in self._pipes]
        if failures := [answer.text for answer in answers if isinstance(answer, _Failure)]:
            raise ClientError("\n".join(failures))  # of one, others only saw that it did not come
        return answers


@contextmanager
def fleet(size: int) -> Iterator[Fleet]:
    """Start the given number of client processes, and end them afterwards."""
    together = _SPAWN.Barrier(size)
    with ExitStack() as stack:
        yield Fleet([stack.enter_context(_client(together)) for _ in range(size)])


@contextmanager
def _client(together: Barrier) -> Iterator[Connection]:
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(there, together), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.join(_TOGETHER)


@dataclass(frozen=True, slots=True)
class _Failure:
    text: str


def _ask(pipe: Connection, *request: object) -> Any:  # noqa: ANN401
    pipe.send(request)
    return _checked(_receive(pipe))


def _receive(pipe: Connection, patience: float = _PATIENCE) -> Any:  # noqa: ANN401
    if not pipe.poll(patience):
        raise ClientError(f"a client did not answer within {patience:.0f} s")
    try:
        return pipe.recv()
    except EOFError:
        raise ClientError("a client process has ended") from None


def _checked(answer: object) -> Any:  # noqa: ANN401
    if isinstance(answer, _Failure):
        raise ClientError(answer.text)
    return answer


def _serve(pipe: Connection, together: Barrier) -> None:
    client = _Client(together)
    try:
        while True:
            verb, *arguments = pipe.recv()
            try:
                answer = getattr(client, verb)(*arguments)
            except Exception:
                together.abort()  # the others must not wait for this one
                answer = _Failure(traceback.format_exc())
            pipe.send(answer)
    except EOFError:
        return
    finally:
        client.close_all()


class _Client:
    """The work of one client process: its methods are the requests."""

    def __init__(self, together: Barrier) -> None:
        self._together = together
        self._programs: dict[str, Program] = {}
        self._amounts: dict[tuple[str, str], int] = {}

    def open(self, name: str, opening: Opening, client: int, clients: int) -> None:
        self._programs[name] = opening(client=client, clients=clients)

    def call(self, name: str, method: str, *arguments: object) -> object:
        return getattr(self._programs[name], method)(*arguments)

    def close(self, name: str) -> None:
        self._programs.pop(name).close()

    def close_all(self) -> None:
        for name in list(self._programs):
            self.close(name)

    def run(self, name: str, work: str, seed: int, seconds: float) -> Share:
        program = self._programs[name]
        # Planning is not part of the time: as many steps as the last round suggests, and the round ends with them.
        steps = program.plan(work, seed, self._amounts.get((name, work), _FIRST_STEPS))
        self._together.wait(_TOGETHER)
        share = _take(program, steps, seconds)
        done = share.steps.total()
        program.performed(steps[:done])
        self._amounts[name, work] = max(2 * done, _FIRST_STEPS)
        return share


def _take(program: Program, steps: list[Step], seconds: float) -> Share:
    actions, effects = program.actions, Counter[str]()
    done = 0
    begin = now = perf_counter()
    end = begin + seconds
    for action, arguments in steps:
        effects[action] += actions[action](*arguments)
        done += 1
        now = perf_counter()
        if now >= end:
            break
    return Share(now - begin, Counter(action for action, _ in steps[:done]), effects)
