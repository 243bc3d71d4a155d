"""The arguments that the commands of the datasets share."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from structable.datasets import SystemData
from structable.spi import Storage, connect
from structable.spi.text import escaped_text

_URL_VARIABLE = "STRUCTABLE_URL"


class Format(enum.StrEnum):
    """The form of the output."""

    TEXT = "text"
    JSON = "json"


Url = Annotated[str, typer.Argument(envvar=_URL_VARIABLE, help="The store.", show_default=False)]
StoreUrl = Annotated[
    str,
    typer.Argument(
        metavar="[URL]",
        help=f"The store. Left out, the environment variable {_URL_VARIABLE} names it.",
        show_default=False,
    ),
]
Prefix = Annotated[str, typer.Option(help="What the tables' names begin with.")]
Form = Annotated[Format, typer.Option("--format", help="The form of the output.")]


def url_and_arguments(*given: str) -> list[str]:
    """Return the URL and the arguments behind it, where the first one is the URL, or the last one is empty."""
    values = list(given)
    if "://" not in values[0] and not values[-1]:
        values = [os.environ.get(_URL_VARIABLE, ""), *values[:-1]]
    if "://" not in values[0] or not all(values):
        raise typer.BadParameter(f"give the URL of the store, or set {_URL_VARIABLE}, and then every other argument")
    return values


def connected(url: str, **options: object) -> Storage:
    """Connect to a store; a malformed URL is misuse of the command."""
    try:
        return connect(url, **options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def one_line(text: str | None) -> str:
    """Return a text on one line, without control characters, or `-` if there is none."""
    return escaped_text(" ".join((text or "-").split()))


@contextmanager
def opened(url: str, prefix: str, *, write: bool) -> Iterator[SystemData]:
    """Yield the datasets of a store that has them, to read them or to write as well."""
    with connected(url, create=False, read_only=not write) as storage:
        yield SystemData.open(storage, prefix=prefix)
