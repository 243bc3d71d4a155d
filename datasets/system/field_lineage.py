"""The fields from which others were made, by the operations of runs."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from structable.datasets.identifiers import DatasetRef, RunRef, check_names, run_id_bound, run_time
from structable.datasets.records import Records
from structable.datasets.tables.field_lineage import (
    LINEAGE_DESTINATIONS,
    LINEAGE_ENDPOINTS,
    LINEAGE_OPERATIONS,
    LINEAGE_SUMMARIES,
    Direction,
    EndpointField,
    FieldLineage,
    FieldOperation,
    LineageDestination,
    LineageEndpoint,
    LineageOperations,
    LineageSummary,
)
from structable.spi import Range, col

from .context import Dataset
from .field_origins import Origins, checked, origins


class RunOperations(NamedTuple):
    """Operations, and the runs that did them, in key order of their endpoint."""

    operations: tuple[FieldOperation, ...]
    runs: tuple[RunRef, ...]


class FieldLineages(Dataset):
    """The datasets `lineage_endpoints`, `lineage_operations`, `lineage_destinations` and `lineage_summaries`.

    Operations and the lineage derived from them are stored once, under their checksum, for any number of runs. Times
    are the times of run ids, in `begin <= time < end`.
    """

    def add(self, run: RunRef, info: FieldLineage) -> str:
        """Record a run's operations on fields, and return their checksum.

        A second call for the same run moves its earlier endpoints to the new operations.

        Raises
        ------
        ValueError
            If an operation uses a field that no earlier one outputs, the sources and destinations differ from the
            operations' endpoints, or there are none.
        """
        check_names(**run.ref._asdict())
        day = run_time(run.run).date()
        sources, destinations, operations = checked(info)
        document = LINEAGE_OPERATIONS.codec.encode_field("operations", operations)
        assert isinstance(document, str)
        checksum = hashlib.sha256(document.encode()).hexdigest()
        made = [
            LineageEndpoint(
                direction=direction,
                endpoint_namespace=endpoint.namespace,
                endpoint=endpoint.dataset,
                run=run.run,
                program=run.ref,
                checksum=checksum,
                properties=properties,
                day=day,
            )
            for direction, endpoints in ((Direction.INCOMING, destinations), (Direction.OUTGOING, sources))
            for endpoint, properties in endpoints.items()
        ]
        self._context.check(LINEAGE_ENDPOINTS, made)
        self._context.share(_fence(checksum))
        if self._operations.get(checksum) is None:
            self._put_operations(checksum, operations)
        before = self._endpoints.get_many([(one.direction, *_of(one), one.run) for one in made])
        self._endpoints.put_many(made)
        self._drop_unused({one.checksum for one in before} - {checksum})
        return checksum

    def fields(self, endpoint: DatasetRef, begin: dt.datetime, end: dt.datetime) -> set[str]:
        """Return the fields that runs wrote to an endpoint."""
        found = self._context.records(LINEAGE_DESTINATIONS).get_many(
            [(checksum, *endpoint) for checksum in self._checksums(Direction.INCOMING, endpoint, begin, end)]
        )
        return {field for one in found for field in one.fields}

    def incoming(self, field: EndpointField, begin: dt.datetime, end: dt.datetime) -> set[EndpointField]:
        """Return the fields from which runs made this field."""
        return self._related(Direction.INCOMING, EndpointField(*field), begin, end)

    def outgoing(self, field: EndpointField, begin: dt.datetime, end: dt.datetime) -> set[EndpointField]:
        """Return the fields that runs made from this field."""
        return self._related(Direction.OUTGOING, EndpointField(*field), begin, end)

    def operations(
        self, direction: Direction, endpoint: DatasetRef, begin: dt.datetime, end: dt.datetime
    ) -> list[RunOperations]:
        """Return the operations of the runs that wrote an endpoint (INCOMING) or read it (OUTGOING).

        The operations of the oldest run come first.
        """
        runs = self._checksums(direction, endpoint, begin, end)
        found = {one.checksum: one.operations for one in self._operations.get_many([(one,) for one in runs])}
        return [RunOperations(found[checksum], tuple(runs[checksum])) for checksum in runs]

    def expire(self, before: dt.date, limit: int = 1000) -> int:
        """Delete at most `limit` endpoints of runs that began before a day, and return their number: call it until 0.

        Operations without any remaining run are deleted too. Of two concurrent calls, one conflicts.
        """
        with self._endpoints.scan(where=col("day") < before, order_by="day", limit=limit) as found:
            old = list(found)
        self._endpoints.table.delete_many([(one.direction, *_of(one), one.run) for one in old])
        self._drop_unused({one.checksum for one in old})
        return len(old)

    def _put_operations(self, checksum: str, operations: tuple[FieldOperation, ...]) -> None:
        found = origins(operations)
        written: dict[DatasetRef, list[str]] = defaultdict(list)
        for field in sorted(found.incoming):
            written[DatasetRef(field.namespace, field.endpoint)].append(field.field)
        destinations = [
            LineageDestination(
                checksum=checksum, endpoint_namespace=endpoint.namespace, endpoint=endpoint.dataset, fields=fields
            )
            for endpoint, fields in written.items()
        ]
        summaries = list(_summaries(checksum, found))
        self._context.check(LINEAGE_DESTINATIONS, destinations)
        self._context.check(LINEAGE_SUMMARIES, summaries)
        self._operations.put(LineageOperations(checksum=checksum, operations=operations))
        self._context.records(LINEAGE_DESTINATIONS).put_many(destinations)
        self._context.records(LINEAGE_SUMMARIES).put_many(summaries)

    def _drop_unused(self, checksums: set[str]) -> None:
        """Delete the operations that no endpoint names any more."""
        if not checksums:
            return
        # Otherwise two transactions would each still see the endpoint that the other removes.
        self._context.exclude("checksum/unused")
        for checksum in checksums:
            with self._endpoints.find("checksum", checksum, limit=1) as left:
                used = bool(list(left))
            if not used:
                self._context.exclude(_fence(checksum))
                self._operations.delete(checksum)
                self._context.records(LINEAGE_DESTINATIONS).delete_all(Range.prefix((checksum,)))
                self._context.records(LINEAGE_SUMMARIES).delete_all(Range.prefix((checksum,)))

    def _related(
        self, direction: Direction, field: EndpointField, begin: dt.datetime, end: dt.datetime
    ) -> set[EndpointField]:
        endpoint = DatasetRef(field.namespace, field.endpoint)
        found = self._context.records(LINEAGE_SUMMARIES).get_many(
            [(checksum, direction, *field) for checksum in self._checksums(direction, endpoint, begin, end)]
        )
        return {related for one in found for related in one.fields}

    def _checksums(
        self, direction: Direction, endpoint: DatasetRef, begin: dt.datetime, end: dt.datetime
    ) -> dict[str, list[RunRef]]:
        """Return the runs of an endpoint by checksum, both in the order of runs."""
        prefix = (Direction(direction), *endpoint)
        lower, upper = run_id_bound(self._context.now(begin)), run_id_bound(self._context.now(end))
        runs: dict[str, list[RunRef]] = {}
        with self._endpoints.scan(Range((*prefix, lower), (*prefix, upper))) as found:
            for one in found:
                runs.setdefault(one.checksum, []).append(one.program.run(one.run))
        return runs

    @property
    def _endpoints(self) -> Records[LineageEndpoint]:
        return self._context.records(LINEAGE_ENDPOINTS)

    @property
    def _operations(self) -> Records[LineageOperations]:
        return self._context.records(LINEAGE_OPERATIONS)


def _of(endpoint: LineageEndpoint) -> DatasetRef:
    return DatasetRef(endpoint.endpoint_namespace, endpoint.endpoint)


def _summaries(checksum: str, found: Origins) -> Iterable[LineageSummary]:
    for direction, flow in ((Direction.INCOMING, found.incoming), (Direction.OUTGOING, found.outgoing)):
        for field, related in flow.items():
            yield LineageSummary(
                checksum=checksum,
                direction=direction,
                endpoint_namespace=field.namespace,
                endpoint=field.endpoint,
                field=field.field,
                fields=sorted(related),
            )


def _fence(checksum: str) -> str:
    # One fence for every two leading digits: fences are never removed, so one for each checksum would be too many.
    return f"checksum/{checksum[:2]}"
