"""The tables in which a store keeps its revisions, their progress, the programs that use it, and its one runner."""

from __future__ import annotations

from structable.spi import Field, TableSpecification

__all__ = ["CLIENTS", "DEFAULT_PREFIX", "LEASE", "REVISIONS", "STATE_TABLES", "TASKS"]

DEFAULT_PREFIX = "structable_"

REVISIONS = TableSpecification(
    "structable_revisions",
    [
        Field.int("revision"),
        Field.string("name"),
        Field.string("digest"),
        Field.string("operations"),
        Field.string("state"),
        Field.string("resumes"),
        Field.string("runner"),
        Field.string("error"),
        Field.timestamp("started"),
        Field.timestamp("finished"),
    ],
    primary_key=["revision"],
)
"""A row for each revision that has begun; `resumes` is the state in which a paused one goes on."""

TASKS = TableSpecification(
    "structable_tasks",
    [
        Field.int("revision"),
        Field.int("operation"),
        Field.int("part"),
        Field.string("begin"),
        Field.string("end"),
        Field.string("cursor"),
        Field.long("seen"),
        Field.long("changed"),
        Field.long("failed"),
        Field.long("conflicts"),
        Field.boolean("done"),
        Field.timestamp("updated"),
    ],
    primary_key=["revision", "operation", "part"],
)
"""A row for each part of a table that an operation fills: keys from `begin` to before `end`, filled up to `cursor`."""

CLIENTS = TableSpecification(
    "structable_clients",
    [
        Field.string("application"),
        Field.string("instance"),
        Field.int("revision"),
        Field.long("beat"),
        Field.string("host"),
    ],
    primary_key=["application", "instance"],
)
"""A row for each running program; the row of the application "" has the oldest revision that may still run."""

LEASE = TableSpecification(
    "structable_lease",
    [
        Field.string("lease"),
        Field.string("owner"),
        Field.long("epoch"),
        Field.long("beat"),
        Field.int("ttl"),
        Field.timestamp("since"),
    ],
    primary_key=["lease"],
)
"""Two rows: `runner` says who runs, `beat` that it lives: beats disturb no transaction that checks the first."""

STATE_TABLES = (REVISIONS, TASKS, CLIENTS, LEASE)
