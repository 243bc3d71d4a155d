"""Compares plans as JSON, to allow only safe changes between two starts of a pipeline on one checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from structable.spi import PlanChangedError

from .explain import VERSION, to_json
from .graph import StepKind
from .planned import PlannedPipeline

Facts = Mapping[str, Any]


def check_restart(before: str, plan: PlannedPipeline) -> None:
    """Check that a plan can continue from a checkpoint.

    Parameters
    ----------
    before : str
        The JSON of the checkpoint's plan.
    plan : PlannedPipeline
        The present plan.

    Raises
    ------
    PlanChangedError
        If it cannot, with every difference.
    """
    found = list(differences(before, plan))
    if found:
        cure = "Start it with a new checkpoint, or undo the change; a count is pinned by partitions="
        raise PlanChangedError(f"pipeline {plan.name!r}", found, cure)


def differences(before: str, plan: PlannedPipeline) -> Iterator[str]:
    """Yield every change that a checkpoint does not survive; `before` is the JSON of its plan."""
    try:
        old: Facts = json.loads(before)
    except ValueError:
        yield "the checkpoint's plan is damaged"
        return
    new: Facts = json.loads(to_json(plan))
    if old.get("version") != VERSION:
        yield f"the checkpoint's plan has version {old.get('version')}, and this release reads {VERSION}"
        return
    yield from _changed("the pipeline", "name", old["pipeline"], new["pipeline"])
    yield from _stage_differences(old["stages"], new["stages"])
    was, now = _grouped_inputs(old), _grouped_inputs(new)
    for name in sorted(was.keys() & now.keys()):
        yield from _changed(f"input {name}", "partition count", was[name], now[name])


def _stage_differences(old: Facts, new: Facts) -> Iterator[str]:
    read = {source for stage in old.values() for source in stage["sources"]}
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"stage {name} of {_listed(old[name]['sources'])} is gone"
        elif name not in old:
            shared = sorted(read.intersection(new[name]["sources"]))
            if shared and not new[name]["side_input"]:
                yield f"stage {name} is new, and reads {_listed(shared)}, which another stage has read"
        else:
            yield from _changed(f"stage {name}", "sources", old[name]["sources"], new[name]["sources"])
            yield from _front_differences(name, old[name]["front"], new[name]["front"])
            was, now = _state_places(old[name]), _state_places(new[name])
            if set(was) == set(now):
                yield from _changed(f"stage {name}", "order of joins by what its steps read", was, now)


def _state_places(stage: Facts) -> list[str]:
    """Return the stream-stream joins in the order in which Spark numbers their state, once for each output."""
    joins: dict[str, list[str]] = {}
    for step in stage["front"]:
        own = [step["name"]] if step["kind"] == StepKind.STREAM_JOIN else []
        joins[step["name"]] = [join for stream in step["inputs"] for join in joins[stream]] + own
    return [join for output in stage["outputs"] for join in joins[output]]


def _front_differences(stage: str, old: Iterable[Facts], new: Iterable[Facts]) -> Iterator[str]:
    was, now = _of_kind(old, StepKind.STREAM_JOIN), _of_kind(new, StepKind.STREAM_JOIN)
    yield from _changed(f"stage {stage}", "stream-stream joins", list(was), list(now))
    for name in sorted(was.keys() & now.keys()):
        for what, fact in (
            ("state partitions", "partitions"),
            ("keys", "on"),
            ("type", "how"),
            ("time columns", "times"),
            ("window", "window"),
            ("lateness", "lateness"),
            ("streams", "origins"),
        ):
            yield from _changed(f"join {name}", what, was[name][fact], now[name][fact])
    was, now = _of_kind(old, StepKind.PARTITION_BY), _of_kind(new, StepKind.PARTITION_BY)
    yield from _changed(f"stage {stage}", "intermediates before state", sorted(was), sorted(now))
    for name in sorted(was.keys() & now.keys()):
        for what, fact in (("key", "key"), ("partition count", "partitions"), ("partitioner", "partitioner")):
            yield from _changed(f"intermediate {name}", what, was[name][fact], now[name][fact])


def _of_kind(front: Iterable[Facts], kind: StepKind) -> dict[str, Facts]:
    """Return the steps of a kind by name, in order, each with the sources, intermediates and joins that it reads."""
    origins: dict[str, list[str]] = {}
    found: dict[str, Facts] = {}
    for step in front:
        above = [origins[stream] for stream in step["inputs"]]
        if step["kind"] == kind:
            found[step["name"]] = {**step, "origins": above}
        passing = step["kind"] in (StepKind.MAP, StepKind.FILTER, StepKind.MERGE)
        origins[step["name"]] = [name for names in above for name in names] if passing else [step["name"]]
    return found


def _grouped_inputs(plan: Facts) -> dict[str, object]:
    return {
        member["name"]: member["partitions"]
        for group in plan["groups"]
        for member in group["members"]
        if "input" in member["reasons"]
    }


def _changed(subject: str, what: str, was: object, now: object) -> Iterator[str]:
    if was != now:
        yield f"{subject}: its {what} was {_shown(was)}, and is {_shown(now)}"


def _shown(value: object) -> str:
    return _listed(value) if isinstance(value, list) else str(value)


def _listed(values: Iterable[object]) -> str:
    return f"({', '.join(map(_shown, values))})"
