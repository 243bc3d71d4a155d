"""The options of a read or a write, as users give them to Spark, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from structable.spi import TableSpecification, WriteMode

from .option_names import READ_OPTIONS, WRITE_OPTIONS
from .store_client import StoreClient

__all__ = ["DEFAULT_GRACE_SECONDS", "DEFAULT_LEASE_SECONDS", "ReadOptions", "WriteOptions"]

DEFAULT_LEASE_SECONDS = 600.0
DEFAULT_GRACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of `spark.read`, checked."""

    store: StoreClient
    table: str
    columns: tuple[str, ...] | None  # all if None
    splits: int | None  # about so many partitions; Spark's default parallelism if None
    lease: float = DEFAULT_LEASE_SECONDS  # seconds without a read, until a snapshot is closed
    grace: float = DEFAULT_GRACE_SECONDS  # seconds after the end of its query and its last read

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Check the options of `spark.read`; ValueError for one that is missing, invalid or of writes."""
        given = _take(options, READ_OPTIONS, WRITE_OPTIONS, "reading")
        columns, splits = given.get("columns"), given.get("splits")
        return cls(
            StoreClient(given["url"], _connection_options(options, READ_OPTIONS)),
            given["table"],
            None if columns is None else _names(columns),
            None if splits is None else _split_count(splits),
            _seconds(given, "leaseseconds", DEFAULT_LEASE_SECONDS),
            _seconds(given, "graceseconds", DEFAULT_GRACE_SECONDS),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of `df.write`, checked. A job with an id from the caller may be submitted again."""

    store: StoreClient
    table: str
    mode: WriteMode
    job_id: str | None
    mode_given: bool = True  # else a table without a key has another

    @classmethod
    def parse(cls, options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
        """Check the options of `df.write`; ValueError for one missing, invalid, of reads or against the mode."""
        given = _take(options, WRITE_OPTIONS, READ_OPTIONS, "writing")
        mode = _write_mode(given["mode"]) if "mode" in given else None
        if overwrite and mode not in (None, WriteMode.OVERWRITE):
            raise ValueError(
                f'the option mode is {mode.value!r} and the save mode is overwrite; use .mode("append") with the option'
            )
        job_id = given.get("jobid")
        if job_id == "":
            raise ValueError("the option jobId is empty; name the job, or leave the option out")
        return cls(
            StoreClient(given["url"], _connection_options(options, WRITE_OPTIONS)),
            given["table"],
            WriteMode.OVERWRITE if overwrite else mode or WriteMode.UPSERT,
            job_id,
            overwrite or mode is not None,
        )

    def for_table(self, spec: TableSpecification) -> WriteOptions:
        """Return the options with the mode in which the table is written."""
        return replace(self, mode=WriteMode.INSERT) if spec.keyless and not self.mode_given else self


def _take(
    options: Mapping[str, str], own: Mapping[str, str], others: Mapping[str, str], purpose: str
) -> dict[str, str]:
    for name in options:
        if name in others and name not in own:
            raise ValueError(f"the option {others[name]} is not for {purpose}, which takes {', '.join(own.values())}")
    if "path" in options:
        raise ValueError("structable tables have no path; give the options url and table instead")
    for name in ("url", "table"):
        if not options.get(name):
            raise ValueError(f"the option {name} is missing; give the store's url and the table's name")
    return {name: options[name] for name in own if name in options}


def _connection_options(options: Mapping[str, str], own: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in options.items() if name not in own))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"the option columns is {text!r}; it must be field names separated by commas")
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ValueError(f"the option columns names {name!r} twice")
    return names


def _split_count(text: str) -> int:
    count = int(text) if text.strip().isascii() and text.strip().isdigit() else 0
    if count < 1:
        raise ValueError(f"the option splits is {text!r}; it must be a whole number, at least 1")
    return count


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    if name not in given:
        return default
    try:
        seconds = float(given[name])
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds < float("inf"):
        raise ValueError(f"the option {READ_OPTIONS[name]} is {given[name]!r}; it must be a number of seconds above 0")
    return seconds


def _write_mode(text: str) -> WriteMode:
    try:
        return WriteMode(text.strip().lower())
    except ValueError:
        raise ValueError(f"the option mode is {text!r}; allowed are {', '.join(WriteMode)}") from None
