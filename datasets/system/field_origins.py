"""The origins of the fields that operations write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from structable.datasets.identifiers import DatasetRef, check_name, check_names
from structable.datasets.tables.field_lineage import EndpointField, FieldLineage, FieldOperation

Properties = dict[DatasetRef, dict[str, str]]
Flow = Mapping[EndpointField, set[EndpointField]]


class Origins(NamedTuple):
    """For each written field the fields that it comes from; for each read field the fields that it goes to."""

    incoming: Flow
    outgoing: Flow


def checked(info: FieldLineage) -> tuple[Properties, Properties, tuple[FieldOperation, ...]]:
    """Return the properties of sources and of destinations, and the operations.

    Raises
    ------
    ValueError
        If they do not fit each other.
    """
    operations = tuple(info.operations)
    outputs: dict[str, tuple[str, ...]] = {}
    for operation in operations:
        _check(operation, outputs)
        outputs[operation.name] = operation.outputs
    read = {operation.source for operation in operations if operation.source is not None}
    written = {operation.destination for operation in operations if operation.destination is not None}
    if not read and not written:
        raise ValueError("no operation reads a source or writes a destination")
    return _endpoints("sources", info.sources, read), _endpoints("destinations", info.destinations, written), operations


def origins(operations: Iterable[FieldOperation]) -> Origins:
    """Return the origins of written fields, and the destinations of read fields.

    Parameters
    ----------
    operations : iterable of FieldOperation
        As `checked` returns them.
    """
    incoming: dict[EndpointField, set[EndpointField]] = defaultdict(set)
    outgoing: dict[EndpointField, set[EndpointField]] = defaultdict(set)
    made: dict[tuple[str, str], set[EndpointField]] = {}
    for operation in operations:
        if operation.source is not None:
            for field in operation.outputs:
                made[operation.name, field] = {EndpointField(*operation.source, field)}
        elif operation.destination is not None:
            for used in operation.inputs:
                written = EndpointField(*operation.destination, used[1])
                incoming[written] |= made[used]
                for read in made[used]:
                    outgoing[read].add(written)
        else:
            of_all = set().union(*(made[used] for used in operation.inputs))
            for field in operation.outputs:
                made[operation.name, field] = of_all
    return Origins(incoming, outgoing)


def _check(operation: FieldOperation, outputs: Mapping[str, tuple[str, ...]]) -> None:
    what = f"operation {check_name(operation.name, 'operation')!r}"
    if operation.name in outputs:
        raise ValueError(f"{what} appears twice")
    if operation.source is not None and (operation.inputs or operation.destination is not None):
        raise ValueError(f"{what} reads a source; it can have neither inputs nor a destination")
    if operation.destination is not None and operation.outputs:
        raise ValueError(f"{what} writes a destination; it can have no outputs")
    for endpoint in (operation.source, operation.destination):
        if endpoint is not None:
            check_names(endpoint_namespace=endpoint[0], endpoint=endpoint[1])
    for field in operation.outputs:
        check_name(field, "field")
    for name, field in operation.inputs:
        if field not in outputs.get(name, ()):
            raise ValueError(f"{what} uses {field!r} of {name!r}, which no earlier operation produces")


def _endpoints(
    what: str, given: Mapping[DatasetRef, Mapping[str, str]] | Iterable[DatasetRef], used: set[DatasetRef]
) -> Properties:
    found: Properties = {
        DatasetRef(*endpoint): dict(given[endpoint]) if isinstance(given, Mapping) else {} for endpoint in given
    }
    if found.keys() != used:
        raise ValueError(f"the {what} are {sorted(found)}, but the operations have {sorted(used)}")
    return found
