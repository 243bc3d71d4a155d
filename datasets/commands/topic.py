"""`structable topic`: list, show and follow topics; look at dead letters, give them back, and move groups."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from structable.datasets import Feed, Topic, TopicStatus
from structable.datasets.messaging.reading import body_document, document_of
from structable.datasets.messaging.reading import tail as tail_of
from structable.datasets.system.messages import TOPIC_TABLES, GroupSource, parse_id
from structable.spi.authors import is_aware

from .arguments import Form, Format, Prefix, StoreUrl, Url, one_line, opened, url_and_arguments

app = typer.Typer(help="List, show and follow topics; look after the groups that read them.", no_args_is_help=True)

Made = TypeVar("Made")

_PLACES = "first, end, a message's id, or a time with its zone"

Name = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic; feed/TABLE for groups over a table's feed.", show_default=False),
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]


@app.callback()
def topic() -> None:
    """List, show and follow topics; look after the groups that read them."""


@app.command("list")
def list_topics(url: Url, prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """List the topics."""
    with opened(url, prefix, write=False) as system:
        beginning = prefix + TOPIC_TABLES
        tables = [name for name in sorted(system.storage.admin.list()) if name.startswith(beginning)]
    names = [name.removeprefix(beginning).replace("_", "-") for name in tables]
    if form is Format.JSON:
        typer.echo(json.dumps(names))
    else:
        for name in names:
            typer.echo(name)


@app.command()
def show(url: StoreUrl, name: Name = "", prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Show how far the groups of a topic are: messages they have not handled, the age of the first, their members."""
    url, name = url_and_arguments(url, name)
    source = _source(name)
    with opened(url, prefix, write=False) as system:
        found = system.topics.status(source)
    if form is Format.JSON:
        groups = [group._asdict() for group in found.groups]
        typer.echo(json.dumps({"earliest": str(found.earliest), "latest": str(found.latest), "groups": groups}))
    else:
        _show(found)


def _show(found: TopicStatus) -> None:
    typer.echo(f"kept after {found.earliest}, up to {found.latest}")
    if not found.groups:
        return
    names = [one_line(one.group) for one in found.groups]
    width = max([len("group"), *map(len, names)])
    typer.echo(f"{'group':<{width}}  {'lag':>12}  {'seconds':>12}  {'attempts':>8}  owner")
    for name, one in zip(names, found.groups, strict=True):
        lag = f"{'~' if one.estimated else ''}{one.lag:,}"
        typer.echo(f"{name:<{width}}  {lag:>12}  {one.seconds:>12,.1f}  {one.attempts:>8}  {one_line(one.owner)}")
        if one.error is not None:
            typer.echo(f"{'':<{width}}  {one_line(one.error)}")


@app.command()
def tail(
    url: StoreUrl,
    name: Name = "",
    since: Annotated[str, typer.Option(metavar="PLACE", help=f"Where to begin: {_PLACES}.")] = "end",
    follow: Annotated[
        bool,
        typer.Option("--follow/--no-follow", help="Continue with what is published next, until Ctrl-C or SIGTERM."),
    ] = True,
    limit: Annotated[int | None, typer.Option(min=1, metavar="MESSAGES", help="End after this number.")] = None,
    prefix: Prefix = "sys_",
    form: Form = Format.TEXT,
) -> None:
    """Print messages, one a line, as they are committed; no group moves."""
    url, name = url_and_arguments(url, name)
    source, place = _source(name), _place(since)
    # A read-only storage may be a copy, which never gets a new message.
    with opened(url, prefix, write=follow) as system:
        messages = tail_of(system.storage, source, prefix, place, follow=follow)
        for count, message in enumerate(messages, 1):
            document = {**document_of(message), "body": _shown(message.body)}
            if form is Format.JSON:
                typer.echo(json.dumps(document))
            else:
                body = json.dumps(document["body"], ensure_ascii=False)
                text = f"{one_line(message.key)}  {one_line(body)}"
                typer.echo(f"{message.id}  {message.published.isoformat()}  {text}")
            if count == limit:
                return


@app.command()
def dead(url: StoreUrl, name: Name = "", group: Group = "", prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """List the messages that a group has given up, with their last errors."""
    url, name, group = url_and_arguments(url, name, group)
    source = _source(name)
    with opened(url, prefix, write=False) as system:
        found = system.topics.dead(source, group)
    if form is Format.JSON:
        documents = [{**msgspec.to_builtins(replace(one, body=None)), "body": _shown(one.body)} for one in found]
        typer.echo(json.dumps(documents))
        return
    for one in found:
        typer.echo(
            f"{one.id}  {one.died.isoformat()}  {one_line(one.key)}  {one.attempts} attempts  {one_line(one.error)}"
        )


@app.command()
def redrive(
    url: StoreUrl,
    name: Name = "",
    group: Group = "",
    ids: Annotated[list[str] | None, typer.Option("--id", help="Only the message of this id. May be repeated.")] = None,
    prefix: Prefix = "sys_",
    form: Form = Format.TEXT,
) -> None:
    """Publish again, for this group alone, the messages that it has given up."""
    url, name, group = url_and_arguments(url, name, group)
    for one in ids or ():
        _checked(parse_id, one)
    source = _source(name)
    with opened(url, prefix, write=True) as system:
        count = system.topics.redrive(source, group, ids or None)
    typer.echo(json.dumps({"redriven": count}) if form is Format.JSON else f"{count:,} published again")


@app.command()
def seek(
    url: StoreUrl,
    name: Name = "",
    group: Group = "",
    place: Annotated[str, typer.Argument(metavar="PLACE", help=f"{_PLACES}.", show_default=False)] = "",
    prefix: Prefix = "sys_",
    form: Form = Format.TEXT,
) -> None:
    """Move a group: before the first kept message, behind the last one, behind the one with an id, or to a time."""
    url, name, group, place = url_and_arguments(url, name, group, place)
    source, to = _source(name), _place(place)
    with opened(url, prefix, write=True) as system:
        system.topics.seek(source, group, to)
    typer.echo(json.dumps({"group": group, "place": place}) if form is Format.JSON else f"{group} continues at {place}")


def _source(name: str) -> GroupSource[Any]:
    """Return a topic of bytes, which fits any body, or a feed."""
    if name.startswith("feed/"):
        return _checked(Feed, name.removeprefix("feed/"))
    return _checked(lambda text: Topic(text, bytes), name)


def _place(text: str) -> str | dt.datetime:
    if text in ("first", "end"):
        return text
    if ":" not in text and "-" not in text:
        _checked(parse_id, text)
        return text
    at = _checked(dt.datetime.fromisoformat, text)
    if not is_aware(at):
        raise typer.BadParameter(f"the time {text!r} has no zone; end it with Z, or +01:00")
    return at


def _checked(make: Callable[[str], Made], text: str) -> Made:
    try:
        return make(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _shown(body: object) -> object:
    """Return a stored body as a document: the JSON itself, else a text, else Base64.

    Python also reads NaN and infinities as JSON, which other readers of the output refuse: such a body is a text.
    """
    if not isinstance(body, bytes):
        return body_document(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(body).decode()
    try:
        document = json.loads(text)
        json.dumps(document, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return document
