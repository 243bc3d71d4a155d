"""`structable work`: run the jobs of a queue."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Annotated, cast

import typer

from structable.datasets import SystemData, Worker
from structable.datasets.jobs import Handler
from structable.spi.authors import named_module

from .arguments import Prefix, StoreUrl, connected, url_and_arguments

app = typer.Typer(help="Run the jobs of a queue.")


@app.command()
def work(
    url: StoreUrl,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)] = "",
    handlers: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:HANDLERS", help="A module, and the name of a dict of kinds to handlers.", show_default=False
        ),
    ] = "",
    threads: Annotated[int, typer.Option(min=1, help="The number of jobs that run at once.")] = 4,
    prefix: Prefix = "sys_",
) -> None:
    """Run the jobs of a queue by the handlers of a module, until Ctrl-C, SIGTERM or SIGHUP; any number may run.

    The first signal ends the claims, and the command ends when the running jobs have; a second Ctrl-C ends it at once.
    """
    url, queue, handlers = url_and_arguments(url, queue, handlers)
    found = _handlers(handlers)
    with connected(url, create=False) as storage:
        system = SystemData.open(storage, prefix=prefix)
        with _stopping() as (stop, received):
            Worker(system, queue, found, threads).run(stop)
    if received:
        raise typer.Exit(128 + received[0])


def _handlers(target: str) -> Mapping[str, Handler]:
    try:
        module, name = named_module(target, "MODULE:HANDLERS, as in app.jobs:handlers")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    found = getattr(module, name, None)
    if not isinstance(found, Mapping) or not all(
        isinstance(kind, str) and callable(one) for kind, one in found.items()
    ):
        raise typer.BadParameter(f"{target}: it must be a dict of kinds, which are str, to functions of (s, job)")
    return cast("Mapping[str, Handler]", found)


@contextlib.contextmanager
def _stopping() -> Iterator[tuple[threading.Event, list[int]]]:
    """Yield an event that the first signal sets, and the signals' numbers; a second Ctrl-C has its former handler.

    Signals that are ignored, as with `nohup`, still are.
    """
    stop, received = threading.Event(), list[int]()
    former = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN:
            former[number] = handler

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        stop.set()
        signal.signal(signal.SIGINT, former.get(signal.SIGINT, signal.SIG_IGN))

    for number in former:
        signal.signal(number, end)
    try:
        yield stop, received
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
