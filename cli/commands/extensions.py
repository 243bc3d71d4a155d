"""Commands of other packages: Typer applications, found through the entry points of group `structable.commands`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

import typer
from typer.core import TyperCommand, TyperGroup

from structable.cli.language.errors import CommandError

__all__ = ["ENTRY_POINT_GROUP", "extension", "extension_names"]

ENTRY_POINT_GROUP = "structable.commands"


def extension_names() -> list[str]:
    """Return the names of the commands of other packages, in order, without loading them."""
    return sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})


def extension(name: str) -> TyperCommand | TyperGroup | None:
    """Load the command of this name; None if no package has it. An application with one command is that command.

    A command that cannot be loaded fails with the reason when it is run, so that all other commands and the help work.
    """
    entries = sorted(set(entry_points(group=ENTRY_POINT_GROUP, name=name)), key=lambda entry: entry.value)
    if not entries:
        return None
    if len(entries) > 1:
        providers = " and ".join(_provider(entry) for entry in entries)
        return _failing(name, f"the command {name!r} comes with {providers}: uninstall one of them")
    try:
        application = entries[0].load()
    except Exception as error:  # any error of the other package's import
        return _failing(name, f"the command {name!r} of {_provider(entries[0])} cannot be loaded: {error}")
    if not isinstance(application, typer.Typer):
        reason = f"the entry point {entries[0].value!r} of {_provider(entries[0])} is not a Typer application"
        return _failing(name, reason)
    group = typer.main.get_group(application)
    group.name = name
    if application.registered_callback is None and len(application.registered_commands) == 1:
        (command,) = group.commands.values()
        assert isinstance(command, TyperCommand)
        command.name = name
        return command
    return group


def _provider(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def _failing(name: str, reason: str) -> TyperCommand:
    return TyperCommand(
        name,
        callback=_raising(reason),
        help=f"Not usable: {reason}.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )


def _raising(reason: str) -> Callable[[], None]:
    def fail() -> None:
        raise CommandError(reason)

    return fail
