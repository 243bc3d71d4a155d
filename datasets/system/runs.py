"""Runs: their states, changed by messages that may come twice or late, and queries on them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import zlib
from collections.abc import Iterable, Mapping

import msgspec

from structable.datasets.identifiers import ProgramRef, RunRef, check_names, check_run_id, run_id_bound
from structable.datasets.records import Page, RecordIterator, Records
from structable.datasets.tables.applications import APPLICATION_VERSIONS
from structable.datasets.tables.runs import (
    ENDS,
    NEXT_CLUSTER,
    NEXT_STATUS,
    RUN_COUNTS,
    RUNS,
    ClusterStatus,
    Run,
    RunStatus,
)
from structable.spi import Range, col

from .context import Dataset

COUNT_SHARDS = 8


class IgnoredReason(enum.StrEnum):
    """Why a message about a run changed nothing."""

    MISSING = "MISSING"
    EXISTS = "EXISTS"
    STALE = "STALE"
    DUPLICATE = "DUPLICATE"
    ILLEGAL = "ILLEGAL"


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """A message changed a run.

    Parameters
    ----------
    before : Run or None
        The run before; None if the message created it.
    after : Run
        The run after.
    """

    before: Run | None
    after: Run


@dataclasses.dataclass(frozen=True, slots=True)
class Ignored:
    """A message changed nothing.

    Parameters
    ----------
    reason : IgnoredReason
        Why.
    current : Run or None
        The run; None if it is missing.
    """

    reason: IgnoredReason
    current: Run | None


class Runs(Dataset):
    """The datasets `runs` and `run_counts`.

    The methods that change a run are for consumers of messages that come twice or late: they raise nothing for such a
    message, and return `Changed` or `Ignored`. Reasons are checked in this order: the run is absent, MISSING; `source`
    is below the stored one, STALE; the run has the wanted states already, DUPLICATE; they cannot follow the present
    ones, ILLEGAL.
    `source` grows with each message of the sender, as the offset of a message does.
    """

    def provision(
        self,
        ref: ProgramRef,
        run: str,
        *,
        version: str,
        source: int,
        arguments: Mapping[str, object] | None = None,
        system: Mapping[str, object] | None = None,
        profile: str | None = None,
        parent_run: str | None = None,
        principal: str | None = None,
        peer: str | None = None,
        artifact: object = None,
        at: dt.datetime | None = None,
    ) -> Changed | Ignored:
        """Create a run, PENDING, with a cluster, PROVISIONING, and count it.

        The result is EXISTS if the run exists, whatever its source, and MISSING if the application lacks the version.
        The call shares the fences of application and profile, so that neither is deleted at the same time.

        Raises
        ------
        ValueError
            If the run id is not a UUIDv7, or a name is invalid.
        """
        current = self._get(ref, run)
        if current is not None:
            return Ignored(IgnoredReason.EXISTS, current)
        check_names(**ref._asdict(), **({} if profile is None else {"profile": profile}))
        if parent_run is not None:
            check_run_id(parent_run)
        versions = self._context.records(APPLICATION_VERSIONS)
        if versions.get(ref.namespace, ref.application, version) is None:
            return Ignored(IgnoredReason.MISSING, None)
        created = Run(
            **ref._asdict(),
            run=run,
            version=version,
            status=RunStatus.PENDING,
            cluster=ClusterStatus.PROVISIONING,
            active=True,
            cluster_open=True,
            profile=profile,
            parent_run=parent_run,
            source=source,
            principal=principal,
            peer=peer,
            artifact=artifact,
            arguments=dict(arguments or {}),
            system=dict(system or {}),
        )
        self._context.now(at)
        self._runs.insert(created)
        shard = zlib.crc32(run.encode()) % COUNT_SHARDS
        self._context.records(RUN_COUNTS).increment((*ref, version, shard), "runs")
        self._context.share(f"app/{ref.namespace}/{ref.application}")
        if profile is not None:
            self._context.share(f"profile/{ref.namespace}/{profile}")
        return Changed(None, created)

    def reject(
        self, ref: ProgramRef, run: str, *, source: int, reason: object, at: dt.datetime | None = None
    ) -> Changed | Ignored:
        """Reject a pending run, or keep one that was never provisioned as rejected: without version and cluster."""
        current = self._get(ref, run)
        if current is not None:
            return self._end(current, RunStatus.REJECTED, source, at, reason)
        check_names(**ref._asdict())
        now = self._context.now(at)
        created = Run(
            **ref._asdict(),
            run=run,
            status=RunStatus.REJECTED,
            ended_on=now.date(),
            stopped=now,
            source=source,
            failure=reason,
        )
        self._runs.insert(created)
        return Changed(None, created)

    def provisioned(
        self, ref: ProgramRef, run: str, *, nodes: int, source: int, at: dt.datetime | None = None
    ) -> Changed | Ignored:
        """Record that the cluster exists, with this number of nodes: PROVISIONED."""
        return self._cluster(ref, run, ClusterStatus.PROVISIONED, source, at, nodes=nodes)

    def waiting(self, ref: ProgramRef, run: str, *, source: int, at: dt.datetime | None = None) -> Changed | Ignored:
        """Record that the cluster waits for the next step: WAITING."""
        return self._cluster(ref, run, ClusterStatus.WAITING, source, at)

    def deprovisioning(
        self, ref: ProgramRef, run: str, *, source: int, at: dt.datetime | None = None
    ) -> Changed | Ignored:
        """Record that the cluster is being taken down: DEPROVISIONING."""
        return self._cluster(ref, run, ClusterStatus.DEPROVISIONING, source, at)

    def deprovisioned(
        self, ref: ProgramRef, run: str, *, source: int, at: dt.datetime | None = None
    ) -> Changed | Ignored:
        """Record that the cluster is gone: DEPROVISIONED."""
        return self._cluster(ref, run, ClusterStatus.DEPROVISIONED, source, at)

    def orphaned(self, ref: ProgramRef, run: str, *, source: int, at: dt.datetime | None = None) -> Changed | Ignored:
        """Record that the cluster was left behind: ORPHANED."""
        return self._cluster(ref, run, ClusterStatus.ORPHANED, source, at)

    def starting(self, ref: ProgramRef, run: str, *, source: int, at: dt.datetime | None = None) -> Changed | Ignored:
        """Record that the program is being started: STARTING; sets `started`."""
        return self._status(ref, run, RunStatus.STARTING, source, "started", at)

    def running(self, ref: ProgramRef, run: str, *, source: int, at: dt.datetime | None = None) -> Changed | Ignored:
        """Record that the program runs: RUNNING; sets `running`."""
        return self._status(ref, run, RunStatus.RUNNING, source, "running", at)

    def suspend(self, ref: ProgramRef, run: str, *, source: int, at: dt.datetime | None = None) -> Changed | Ignored:
        """Record that the program was suspended: SUSPENDED; sets `suspended`."""
        return self._status(ref, run, RunStatus.SUSPENDED, source, "suspended", at)

    def resume(self, ref: ProgramRef, run: str, *, source: int, at: dt.datetime | None = None) -> Changed | Ignored:
        """Record that the program runs again: RUNNING; sets `resumed`."""
        return self._status(ref, run, RunStatus.RUNNING, source, "resumed", at)

    def stopping(
        self,
        ref: ProgramRef,
        run: str,
        *,
        source: int,
        terminate_by: dt.datetime | None = None,
        at: dt.datetime | None = None,
    ) -> Changed | Ignored:
        """Record that the program is being stopped, by a time at the latest: STOPPING; sets `stopping`."""
        until = None if terminate_by is None else self._context.now(terminate_by)
        return self._status(ref, run, RunStatus.STOPPING, source, "stopping", at, terminate_by=until)

    def stop(
        self,
        ref: ProgramRef,
        run: str,
        *,
        status: RunStatus,
        source: int,
        failure: object = None,
        at: dt.datetime | None = None,
    ) -> Changed | Ignored:
        """Record the end of the program, as `status`: COMPLETED, FAILED or KILLED; sets `stopped`.

        Raises
        ------
        ValueError
            If the status is not a final one, or is REJECTED.
        """
        wanted = RunStatus(status)
        if wanted not in ENDS - {RunStatus.REJECTED}:
            raise ValueError(f"status {wanted.value}: a program ends COMPLETED, FAILED or KILLED")
        current = self._get(ref, run)
        if current is None:
            return Ignored(IgnoredReason.MISSING, None)
        return self._end(current, wanted, source, at, failure)

    def get(self, ref: ProgramRef, run: str) -> Run | None:
        """Return the run, or None."""
        return self._get(ref, run)

    def get_many(self, runs: Iterable[RunRef]) -> list[Run]:
        """Return the runs of these keys that exist, in key order."""
        return self._runs.get_many([tuple(run) for run in runs])

    def history(
        self,
        ref: ProgramRef,
        *,
        status: RunStatus | None = None,
        after: dt.datetime | None = None,
        before: dt.datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Run]:
        """Return a page of a program's runs, of all versions, newest first.

        Parameters
        ----------
        status : RunStatus, optional
            Only runs of this status.
        after, before : datetime, optional
            Only runs with `after <= start < before`; the start is the run id's time, in milliseconds.
        """
        begin = tuple(ref) if after is None else (*ref, run_id_bound(_next_millisecond(self._context.now(after))))
        if before is None:
            within = Range(begin, tuple(ref), end_inclusive=True)
        else:
            within = Range(begin, (*ref, run_id_bound(_next_millisecond(self._context.now(before)))))
        where = None if status is None else col("status") == RunStatus(status)
        return self._runs.page(within, cursor=cursor, limit=limit, reverse=True, where=where)

    def active(self, *prefix: str) -> RecordIterator[Run]:
        """Return the runs that have not ended, within any prefix of a program; found by the index."""
        return self._runs.find("active", True, range=Range.prefix(prefix))

    def count_active(self, *prefix: str, limit: int | None = None) -> int:
        """Return the number of runs that have not ended, within any prefix of a program; at most `limit`."""
        with self._runs.table.scan_index("active", True, range=Range.prefix(prefix), limit=limit) as rows:
            return sum(1 for _ in rows)

    def children(self, run: str) -> list[Run]:
        """Return the runs that a run started."""
        with self._runs.find("parent_run", check_run_id(run)) as found:
            return list(found)

    def count(self, ref: ProgramRef, version: str | None = None) -> int:
        """Return how many runs were ever provisioned, of a version or of all."""
        prefix = tuple(ref) if version is None else (*ref, version)
        with self._context.records(RUN_COUNTS).scan(Range.prefix(prefix)) as shards:
            return sum(shard.runs for shard in shards)

    def overlapping(self, namespace: str, begin: dt.datetime, end: dt.datetime) -> list[Run]:
        """Return the runs that started before `end`, and had not stopped before `begin`, in key order."""
        begin, end = self._context.now(begin), self._context.now(end)
        within, started = Range.prefix((namespace,)), col("started") < end
        with self._runs.find("active", True, range=within, where=started) as found:
            overlapping = list(found)
        # Through the index of `ended_on`, not through all of the namespace's history.
        stopped = (col("ended_on") >= begin.date()) & (col("stopped") >= begin)
        with self._runs.scan(within, where=stopped & started) as found:
            overlapping += found
        return sorted(overlapping, key=lambda run: run.run_ref)

    def open_clusters(self) -> list[Run]:
        """Return the runs whose clusters are not taken down."""
        with self._runs.find("cluster_open", True) as found:
            return list(found)

    def delete_history(self, *prefix: str) -> int:
        """Delete the ended runs within a prefix of a program, and return their number; counts stay."""
        return self._runs.delete_all(Range.prefix(prefix), col("active").is_null())

    def expire(self, before: dt.date, limit: int = 1000) -> int:
        """Delete at most `limit` runs that ended before a day, oldest first; return their number: call it until 0."""
        ended = col("ended_on") < before
        with self._runs.table.scan(where=ended, columns=["run"], order_by="ended_on", limit=limit) as rows:
            keys = [row.key for row in rows]
        self._runs.table.delete_many(keys)
        return len(keys)

    @property
    def _runs(self) -> Records[Run]:
        return self._context.records(RUNS)

    def _get(self, ref: ProgramRef, run: str) -> Run | None:
        return self._runs.get(*ref, check_run_id(run))

    def _status(
        self,
        ref: ProgramRef,
        run: str,
        status: RunStatus,
        source: int,
        time: str,
        at: dt.datetime | None,
        **more: object,
    ) -> Changed | Ignored:
        current = self._get(ref, run)
        if current is None:
            return Ignored(IgnoredReason.MISSING, None)
        ignored = self._ignored(current, source, current.status is status, status in NEXT_STATUS[current.status])
        return ignored or self._change(current, source, {"status": status, time: self._context.now(at), **more})

    def _end(
        self, current: Run, status: RunStatus, source: int, at: dt.datetime | None, failure: object
    ) -> Changed | Ignored:
        ignored = self._ignored(current, source, current.status is status, status in NEXT_STATUS[current.status])
        now = self._context.now(at)
        ended = {"status": status, "active": None, "ended_on": now.date(), "stopped": now, "failure": failure}
        return ignored or self._change(current, source, ended)

    def _cluster(
        self, ref: ProgramRef, run: str, cluster: ClusterStatus, source: int, at: dt.datetime | None, **more: object
    ) -> Changed | Ignored:
        current = self._get(ref, run)
        if current is None:
            return Ignored(IgnoredReason.MISSING, None)
        self._context.now(at)
        legal = current.cluster is not None and cluster in NEXT_CLUSTER[current.cluster]
        ignored = self._ignored(current, source, current.cluster is cluster, legal)
        still_open = True if NEXT_CLUSTER[cluster] else None
        return ignored or self._change(current, source, {"cluster": cluster, "cluster_open": still_open, **more})

    def _ignored(self, current: Run, source: int, as_wanted: bool, legal: bool) -> Ignored | None:
        if source < current.source:
            return Ignored(IgnoredReason.STALE, current)
        if as_wanted:
            return Ignored(IgnoredReason.DUPLICATE, current)
        return None if legal else Ignored(IgnoredReason.ILLEGAL, current)

    def _change(self, before: Run, source: int, changes: dict[str, object]) -> Changed:
        changes["source"] = source
        self._runs.change(tuple(before.run_ref), **changes)
        return Changed(before, msgspec.structs.replace(before, **changes))


def _next_millisecond(at: dt.datetime) -> dt.datetime:
    """Return the time, rounded up to the milliseconds of run ids."""
    rest = at.microsecond % 1_000
    return at if rest == 0 else at + dt.timedelta(microseconds=1_000 - rest)
