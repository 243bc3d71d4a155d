"""`structable job`: count, list, show, retry, cancel and run the jobs of queues."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer

from structable.datasets import InvalidCursorError, Job, JobState, NotFoundError

from .arguments import Form, Format, Prefix, StoreUrl, Url, one_line, opened, url_and_arguments
from .work import work

app = typer.Typer(help="Count, list, show, retry, cancel and run the jobs of queues.", no_args_is_help=True)

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
Id = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]


@app.callback()
def job() -> None:
    """Count, list, show, retry, cancel and run the jobs of queues."""


@app.command()
def counts(url: Url, queue: Queue = "", prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Count the jobs of a queue, or of each queue that has any, in each state; all in one snapshot."""
    if queue or "://" not in url:
        url, queue = url_and_arguments(url, queue)
    with opened(url, prefix, write=False) as system, system.transaction(read_only=True) as s:
        found = {name: s.jobs.counts(name) for name in ([queue] if queue else s.jobs.queues())}
    if form is Format.JSON:
        typer.echo(json.dumps({name: {state.name: n for state, n in one.items()} for name, one in found.items()}))
        return
    width = max([len("queue"), *(len(one_line(name)) for name in found)])
    typer.echo(f"{'queue':<{width}}" + "".join(f"  {state.name:>12}" for state in JobState))
    for name, one in found.items():
        typer.echo(f"{one_line(name):<{width}}" + "".join(f"  {number:>12,}" for number in one.values()))


@app.command("list")
def list_jobs(
    url: StoreUrl,
    queue: Queue = "",
    state: Annotated[str, typer.Option(help="READY, RUNNING, DONE, DEAD or CANCELLED.")] = "READY",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The maximum number of jobs.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Continue after the page that printed this cursor.")] = None,
    prefix: Prefix = "sys_",
    form: Form = Format.TEXT,
) -> None:
    """List the jobs of a queue in a state."""
    url, queue = url_and_arguments(url, queue)
    if state.upper() not in JobState.__members__:
        raise typer.BadParameter(f"the state {state!r} is not one of {', '.join(JobState.__members__)}")
    with opened(url, prefix, write=False) as system, system.transaction(read_only=True) as s:
        try:
            page = s.jobs.page(queue, JobState[state.upper()], cursor=cursor, limit=limit)
        except InvalidCursorError as error:
            raise typer.BadParameter(str(error)) from error
    if form is Format.JSON:
        typer.echo(json.dumps({"jobs": [_document(one) for one in page.items], "next": page.next}))
        return
    for one in page.items:
        typer.echo(
            f"{one.id}  priority {one.priority}  due {one.due.isoformat()}"
            f"  attempt {one.attempt} of {one.max_attempts}  {one_line(one.kind)}"
        )
    if page.next is not None:
        typer.echo(f"more: --cursor {page.next}")


@app.command()
def show(url: StoreUrl, id: Id = "", prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Show a job: its state, arguments, attempts, last error and result."""
    url, id = url_and_arguments(url, id)
    with opened(url, prefix, write=False) as system, system.transaction(read_only=True) as s:
        found = s.jobs.get(id)
    if found is None:
        raise NotFoundError(f"{prefix}jobs", (id,))
    document = _document(found)
    if form is Format.JSON:
        typer.echo(json.dumps(document))
        return
    for name, value in document.items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            typer.echo(f"{name:<12}  {one_line(text)}")


@app.command()
def retry(url: StoreUrl, id: Id = "", prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Make a DEAD job READY again, with all its attempts."""
    url, id = url_and_arguments(url, id)
    with opened(url, prefix, write=True) as system:
        system.run(lambda s: s.jobs.retry(id))
    typer.echo(json.dumps({"id": id, "state": "READY"}) if form is Format.JSON else f"{id} is READY")


@app.command()
def cancel(url: StoreUrl, id: Id = "", prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Cancel a job that has not ended. Exit code 1 if it has."""
    url, id = url_and_arguments(url, id)
    with opened(url, prefix, write=True) as system:
        cancelled = system.run(lambda s: s.jobs.cancel(id))
    if form is Format.JSON:
        typer.echo(json.dumps({"id": id, "cancelled": cancelled}))
    else:
        typer.echo(f"{id} is CANCELLED" if cancelled else f"{id} had ended before")
    if not cancelled:
        raise typer.Exit(1)


app.command()(work)  # it is `structable work`, too


def _document(job: Job) -> dict[str, object]:
    fields = msgspec.structs.asdict(job)
    del fields["job"], fields["lane"]
    shown: dict[str, object] = msgspec.to_builtins({**fields, "state": job.state.name})
    return shown
