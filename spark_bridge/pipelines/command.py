"""`structable plan`: the plan of a pipeline, as text or as a picture. No Spark starts, and no store is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from structable.spi.authors import named_module

from .api import Pipeline
from .plan import Plan

app = typer.Typer(help="Plan a pipeline.")

Target = Annotated[
    str,
    typer.Argument(metavar="MODULE:PIPELINE", help="A module, and the name of a Pipeline in it.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Dot = Annotated[bool, typer.Option("--dot", help="As a picture in Graphviz' language.")]
Mermaid = Annotated[bool, typer.Option("--mermaid", help="As a picture in Mermaid's language.")]
Svg = Annotated[
    Path | None,
    typer.Option("--svg", metavar="FILE", help="As a picture in a file, which needs Graphviz.", show_default=False),
]


@app.command()
def plan(target: Target, json: Json = False, dot: Dot = False, mermaid: Mermaid = False, svg: Svg = None) -> None:
    """Print the plan of a pipeline: partition counts, groups, stages and steps. Exit code 1 if it has problems."""
    chosen = [
        name for name, given in (("--json", json), ("--dot", dot), ("--mermaid", mermaid), ("--svg", svg)) if given
    ]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)} exclude one another; give one of them")
    found = _pipeline(target).plan(strict=False)
    if svg is not None:
        found.to_svg(svg)
    else:
        typer.echo(_text(found, json=json, dot=dot, mermaid=mermaid))
    for problem in found.problems:
        typer.echo(problem.text, err=True)
    if found.problems:
        raise typer.Exit(1)


def _text(found: Plan, *, json: bool, dot: bool, mermaid: bool) -> str:
    if json:
        return found.to_json()
    if dot:
        return found.to_dot()
    return found.to_mermaid() if mermaid else found.explain()


def _pipeline(target: str) -> Pipeline:
    try:
        found, name = named_module(target, "MODULE:PIPELINE, as in app.streams:pipeline")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    pipeline = getattr(found, name, None)
    if not isinstance(pipeline, Pipeline):
        names = sorted(key for key, value in vars(found).items() if isinstance(value, Pipeline))
        raise typer.BadParameter(f"{found.__name__} has no Pipeline {name!r}; it has {', '.join(names) or 'none'}")
    return pipeline
