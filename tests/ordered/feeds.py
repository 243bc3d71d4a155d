"""Tables with change feeds on stores in memory whose engines misbehave as tests wish."""

from __future__ import annotations

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.spi import Change, Field, TableSpecification

FIELDS = [Field.int("id"), Field.string("text"), Field.int("n")]


def spec(producer: str = "lookup", *, indexes: tuple[str, ...] = (), **options: str) -> TableSpecification:
    """Return a table with a feed, whose other options are named without `changelog`: `time_retained`."""
    given = {name.replace("_", "-"): value for name, value in options.items()}
    for name in ("compaction-interval", "time-retained"):
        if name in given:
            given[f"changelog{'-producer' * (name[0] == 'c')}.{name}"] = given.pop(name)
    return TableSpecification(
        "items", FIELDS, ["id"], indexes=indexes, options={"changelog-producer": producer, **given}
    )


def made(
    table: TableSpecification | None = None,
    engine: type[MemoryEngine] = MemoryEngine,
    stored: VersionedMap | None = None,
) -> OrderedStorage:
    """Return a store with a table."""
    storage = OrderedStorage(engine(stored or VersionedMap()), "memory://")
    storage.admin.create(table or spec())
    return storage


def brief(change: Change) -> tuple[str, int, object]:
    """Return the kind, the key and the number of a change."""
    number = change.row["id"]
    assert isinstance(number, int)
    return str(change.kind), number, change.row["n"]
