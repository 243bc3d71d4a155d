"""The grammar that all commands share: `structable COMMAND [URL] [TABLE] ...`, and opening the store."""

from __future__ import annotations

import enum
import os
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from structable.spi import Storage, StorageUrl, connect

from .errors import UsageProblem

URL_VARIABLE = "STRUCTABLE_URL"


def _tables(url: str, incomplete: str) -> list[str]:
    """Return the names of a store's tables with a prefix, for a shell; empty if the store cannot be read."""
    try:
        with open_store(url) as storage:
            return [name for name in storage.admin.list() if name.startswith(incomplete)]
    except Exception:
        return []


def complete_url(incomplete: str) -> list[str]:
    """Complete the tables of the environment's store, which need no URL before them."""
    url = os.environ.get(URL_VARIABLE, "")
    return _tables(url, incomplete) if url and "/" not in incomplete else []


def complete_table(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the tables of the store named earlier in the command."""
    return _tables(str(context.params.get("url") or os.environ.get(URL_VARIABLE, "")), incomplete)


Url = Annotated[
    str,
    typer.Argument(
        autocompletion=complete_url,
        metavar="URL",
        help=f"The store, as scheme://place. Left out, the environment variable {URL_VARIABLE} names it.",
        show_default=False,
    ),
]
Table = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="The table's name.", show_default=False, autocompletion=complete_table),
]


class StoreCommand(TyperCommand):
    """A command whose first argument is the store's URL; the environment may provide it instead.

    The first argument is the URL if it contains `://`: no table name contains that.
    """

    # Any: the parameters' class is private to Typer.
    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **options)
        for parameter in self.params:
            if parameter.name == "url":
                parameter.required = False  # in the help: `parse_args` inserts a missing one

    # Any: the parser's context class is private to Typer.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Put the URL of the environment in front of arguments that begin without one."""
        if not ctx.resilient_parsing:
            given = self.make_parser(ctx).parse_args(list(args))[0]
            if not given.get("help") and "://" not in str(given.get("url")):
                args = [_url_of_environment(ctx.command_path), *args]
        return super().parse_args(ctx, args)


def _url_of_environment(command: str) -> str:
    url = os.environ.get(URL_VARIABLE, "")
    if not url:
        raise UsageProblem(
            f"no store is given; name its URL first, as in '{command} scheme://place', or set {URL_VARIABLE}; "
            "'structable backends' lists the schemes"
        )
    if "://" not in url:
        raise UsageProblem(f"{URL_VARIABLE} is {url!r}, which is not a storage URL like scheme://place")
    return url


class StoreAccess(enum.Enum):
    """The effect of a command on a store. Only CREATE creates a missing one: a mistyped URL must not become a store."""

    READ = "read"
    """Changes nothing."""
    WRITE = "write"
    """Writes to an existing store."""
    CREATE = "create"
    """Creates the store if it is missing."""


def open_store(url: str, access: StoreAccess = StoreAccess.READ) -> Storage:
    """Connect to the store of a URL, whose parameters `create` and `read_only` override the access."""
    try:
        options: dict[str, object] = {"create": access is StoreAccess.CREATE, "read_only": access is StoreAccess.READ}
        for name in StorageUrl.parse(url).parameters:
            options.pop(name, None)
        return connect(url, **options)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
