"""The tables of fences, leases and permits."""

from __future__ import annotations

from typing import Annotated

from structable.datasets.records import Int, Json, Record, RecordTable

FENCE_SHARDS = 16


class Fence(Record):
    """A row of a fence; its write causes the conflict, and its values mean nothing."""

    scope: str
    shard: Annotated[int, Int]
    n: Annotated[int, Int] = 0


class LeaseRow(Record):
    """A lease; `owner` is None once it was released, and `token` grows with each owner, `beat` with each renewal."""

    lease: str
    owner: str | None = None
    token: int
    beat: int = 0
    ttl: Annotated[int, Int]
    info: Annotated[object, Json] | None = None


class PermitRow(Record):
    """A slot of a pool of permits; `holder` is None once it was released."""

    pool: str
    slot: Annotated[int, Int]
    holder: str | None = None
    token: int
    beat: int = 0
    ttl: Annotated[int, Int]


FENCES = RecordTable(Fence, "fences", key=("scope", "shard"))
LEASES = RecordTable(LeaseRow, "leases", key=("lease",))
PERMITS = RecordTable(PermitRow, "permits", key=("pool", "slot"))

TABLES = (FENCES, LEASES, PERMITS)
