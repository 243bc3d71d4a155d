"""`structable join`: show, check, rebuild and run a join, by the definition recorded in its store."""

from __future__ import annotations

import datetime as dt
import enum
import json
import os
import threading
from typing import Annotated

import typer

from structable.spark_bridge.base.table_ref import TableRef
from structable.spi import (
    ChangesLostError,
    FeedPosition,
    Storage,
    StoreNotFoundError,
    TableNotFoundError,
    UnsupportedOperationError,
    connect,
)
from structable.spi.authors import without_secrets

from .affected import oldest_change
from .progress import PROGRESS, ProgressRecord, all_records
from .recording import Definition
from .worker import JoinWorker

app = typer.Typer(help="Check, rebuild and run foreign-key joins.", no_args_is_help=True)

_URL_VARIABLE = "STRUCTABLE_URL"


class Format(enum.StrEnum):
    """The form of the output."""

    TEXT = "text"
    JSON = "json"


Url = Annotated[
    str,
    typer.Argument(
        metavar="[URL]",
        help=f"The result's store. Left out, the environment variable {_URL_VARIABLE} names it.",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The join's name.", show_default=False)]
Form = Annotated[Format, typer.Option("--format", help="The form of the output.")]


@app.callback()
def join() -> None:
    """Check, rebuild and run foreign-key joins."""


@app.command()
def status(url: Url, name: Name = "", form: Form = Format.TEXT) -> None:
    """Show how a join is defined, where its result stands, and how long the oldest unjoined change has waited."""
    store, chosen = _store_and_name(url, name)
    record, definition = _recorded(store, chosen)
    sides: dict[str, dict[str, object]] = {}
    for side in ("left", "right"):
        ref = _ref(definition, side, store)
        at = None if record.positions is None else record.positions.left if side == "left" else record.positions.right
        sides[side] = {"table": ref.name, "position": None if at is None else str(at), "waiting": _waiting(ref, at)}
    intent = record.intent
    shown = {
        "join": chosen,
        "how": definition.document["how"],
        "on": definition.document["on"],
        "result": definition.result_table,
        **sides,
        "intent": None if intent is None else intent.job_id,
        "lease": None if intent is None else dt.datetime.fromtimestamp(intent.lease, dt.UTC).isoformat(),
    }
    if form is Format.JSON:
        typer.echo(json.dumps(shown))
        return
    on = definition.document["on"]
    pairs = ", ".join(on if isinstance(on, list) else [f"{ours} = {theirs}" for ours, theirs in on.items()])
    typer.echo(f"{chosen}: {shown['how']} join on {pairs} into {shown['result']}")
    for side, values in sides.items():
        waiting = values["waiting"]
        lag = f"{waiting:.1f} s behind" if isinstance(waiting, float) else waiting or "up to date"
        typer.echo(f"{side:<6} {values['table']} at {values['position'] or 'no position yet'}: {lag}")
    if intent is not None:
        typer.echo(f"intent {intent.job_id}, lease until {shown['lease']}")


@app.command()
def verify(url: Url, name: Name = "") -> None:
    """Print how many rows of the result differ from the join of both tables now. Exit code 1 if any does."""
    with _worker(*_store_and_name(url, name)) as worker:
        differing = worker.verify()
    typer.echo(f"{differing}")
    if differing:
        raise typer.Exit(1)


@app.command()
def rebuild(url: Url, name: Name = "") -> None:
    """Join everything again, by the recorded definition, and write what differs."""
    with _worker(*_store_and_name(url, name)) as worker:
        done = worker.rebuild()
    typer.echo(f"{done.inserted:,} rows inserted, {done.updated:,} updated, {done.deleted:,} deleted")


@app.command()
def run(
    url: Url,
    name: Name = "",
    poll: Annotated[float, typer.Option(metavar="SECONDS", help="The time between two looks.", min=0.01)] = 0.2,
) -> None:
    """Keep the result up to date, by the recorded definition, until Ctrl-C or SIGTERM; any number may run."""
    with _worker(*_store_and_name(url, name), poll=poll) as worker:
        worker.run(threading.Event())


def _store_and_name(url: str, name: str) -> tuple[str, str]:
    if not name and "://" not in url:
        url, name = os.environ.get(_URL_VARIABLE, ""), url
    if "://" not in url or not name:
        raise typer.BadParameter(
            f"give the URL of the result's store, or set {_URL_VARIABLE}, and then the name of the join"
        )
    return url, name


def _recorded(url: str, name: str) -> tuple[ProgressRecord, Definition]:
    with _connected(url) as storage:
        try:
            records = {record.consumer: record for record in all_records(storage.table(PROGRESS.name))}
        except TableNotFoundError:
            records = {}
    if name not in records:
        known = ", ".join(sorted(records)) or "none"
        raise typer.BadParameter(f"the store has no join {name!r}; its joins: {known}")
    return records[name], Definition.parse(records[name].definition)


def _connected(url: str, **options: object) -> Storage:
    try:
        return connect(url, **{"create": False, "read_only": True, **options})
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _ref(definition: Definition, table: str, url: str) -> TableRef:
    """Return the reference to a table; one in the result's store keeps the given URL, which may have a password."""
    recorded = definition.ref(table)
    home = definition.ref("result")
    if table == "result" or (recorded.url, recorded.options) == (home.url, home.options):
        return TableRef(url, recorded.name)
    return TableRef(url, recorded.name) if recorded.url == without_secrets(url) else recorded


def _worker(url: str, name: str, *, poll: float = 0.2) -> JoinWorker:
    _, definition = _recorded(url, name)
    join = definition.join(name, [_ref(definition, table, url) for table in ("left", "right", "result")])
    return JoinWorker(join, poll=poll)


def _waiting(ref: TableRef, since: FeedPosition | None) -> float | str | None:
    """Return how many seconds the oldest change after a position has waited, or why it is unknown; None without one."""
    if since is None:
        return "not joined yet"
    try:
        with _connected(ref.url, **dict(ref.options)) as storage:
            oldest = oldest_change(storage.changes(ref.name), since)
    except ChangesLostError:
        return "its changes are lost: the next step joins everything"
    except (StoreNotFoundError, TableNotFoundError, UnsupportedOperationError) as error:
        return str(error)
    return None if oldest is None else max(0.0, (dt.datetime.now(dt.UTC) - oldest).total_seconds())
