"""What of a plan the state in a checkpoint depends on, and how a later plan differs from it. Knows nothing of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .graph import StreamJoin
from .planned import Planned, Stage, Step, StepKind

__all__ = ["differences", "state_of"]

_VERSION = 1


def state_of(planned: Planned) -> dict[str, Any]:
    """Return what a restart compares, for JSON: texts, numbers, lists and mappings."""
    inputs = {step.name for stage in planned.stages for step in stage.front if not step.inputs}
    members = {member.name: member.partitions for group in planned.groups for member in group.members}
    return {
        "version": _VERSION,
        "pipeline": planned.name,
        "stages": {stage.name: _state_of(stage) for stage in planned.stages},
        "inputs": {name: count for name, count in sorted(members.items()) if name in inputs},
    }


def _state_of(stage: Stage) -> dict[str, Any]:
    joins = {step.name: _join(step) for step in stage.front if step.kind is StepKind.STREAM_JOIN}
    return {
        "sources": list(stage.sources),
        "state partitions": stage.partitions,
        "joins": joins,
        "intermediates": {step.name: _partitions(step) for step in stage.front if step.kind is StepKind.PARTITION_BY},
    }


def _join(step: Step) -> dict[str, Any]:
    node = step.node
    assert isinstance(node, StreamJoin)
    window = node.window
    return {
        "streams": list(step.inputs),
        "on": [list(pair) for pair in node.on],
        "how": node.how,
        "times": [window.left_time, window.right_time],
        "window": [window.before, window.after],
        "lateness": [window.left_lateness, window.right_lateness],
    }


def _partitions(step: Step) -> dict[str, Any]:
    key: tuple[str, ...] = step.node.key  # type: ignore[attr-defined]  # of PartitionBy
    return {"key": list(key), "count": step.partitions, "partitioner": step.partitioner}


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return how a plan differs from an earlier one, where the state of that is lost or wrong by it; none if it is not.

    Both are as `state_of` returns them.
    """
    if was.get("version") != now["version"]:
        return [f"the file of the plan is of version {was.get('version')!r}, and this is version {now['version']}"]
    return list(_differences(was, now))


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if was["pipeline"] != now["pipeline"]:
        yield f"the pipeline's name was {was['pipeline']!r} and is {now['pipeline']!r}"
    for name in sorted(was["stages"].keys() - now["stages"].keys()):
        yield f"stage {name!r} is gone, with the sources {', '.join(was['stages'][name]['sources'])}"
    sources = {one for stage in was["stages"].values() for one in stage["sources"]}
    for name, stage in now["stages"].items():
        if name in was["stages"]:
            yield from _of_stage(name, was["stages"][name], stage)
        elif sources & set(stage["sources"]):
            yield f"stage {name!r} is new, and reads {', '.join(stage['sources'])}, which another stage read"
    for name, count in was["inputs"].items():
        if name in now["inputs"] and now["inputs"][name] != count:
            yield f"input {name!r} had {count} partitions and has {now['inputs'][name]}"


def _of_stage(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if was["sources"] != now["sources"]:
        yield f"stage {name!r} read {', '.join(was['sources'])} and reads {', '.join(now['sources'])}, in this order"
    if was["state partitions"] != now["state partitions"] and was["joins"] and now["joins"]:
        yield f"stage {name!r} had {was['state partitions']} state partitions and has {now['state partitions']}"
    for kind, what in (("joins", "join"), ("intermediates", "intermediate")):
        for step in sorted(was[kind].keys() | now[kind].keys()):
            before, after = was[kind].get(step), now[kind].get(step)
            if before is None or after is None:
                yield f"{what} {step!r} of stage {name!r} is {'new' if before is None else 'gone'}"
                continue
            for part in before:
                if before[part] != after.get(part):
                    yield f"{part} of {what} {step!r} was {_shown(before[part])} and is {_shown(after.get(part))}"


def _shown(value: object) -> str:
    return ", ".join(map(_shown, value)) if isinstance(value, list) else str(value)
