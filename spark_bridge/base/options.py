"""The options of a read or a write, as users give them to Spark, checked."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from structable.spi import TableSpecification, WriteMode
from structable.spi.authors import shown

from .feed_options import FeedOptions
from .store_client import (
    BATCH_READ_OPTIONS,
    READ_OPTIONS,
    STREAM_READ_OPTIONS,
    STREAM_WRITE_OPTIONS,
    WRITE_OPTIONS,
    StoreClient,
)

DEFAULT_LEASE_SECONDS = 600.0
DEFAULT_GRACE_SECONDS = 2.0
_MOST = (1 << 63) - 1

_MODES = {str(mode): mode for mode in WriteMode if mode is not WriteMode.PATCH}


class Pushdown(enum.StrEnum):
    """The work that a read does in place of Spark."""

    ALL = "all"
    FILTERS = "filters"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of `spark.read` or `spark.readStream`, checked."""

    store: StoreClient
    table: str
    columns: tuple[str, ...] | None  # all if None
    splits: int | None  # the approximate number of partitions; Spark's default parallelism if None
    lease: float = DEFAULT_LEASE_SECONDS  # seconds without a read, until a snapshot is closed
    grace: float = DEFAULT_GRACE_SECONDS  # seconds after the end of its query and its last read
    feed: FeedOptions | None = None  # the range of the change feed to read, if not the table
    max_rows: int | None = None  # the changes that a micro-batch has at most, unless one commit has more
    pushdown: Pushdown = Pushdown.ALL
    statistics: bool = True  # whether the store is asked for the size of the table
    reported_rows: int | None = None  # reported in place of the store's statistics

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
        """Check the options of a read; ValueError if one is missing, invalid, or an option of writes.

        If `streaming` is given, also if `spark.readStream` (true) or `spark.read` (false) does not take an option.
        """
        given = _take(options, READ_OPTIONS, WRITE_OPTIONS, "reading")
        if streaming is not None:
            refused, other = (BATCH_READ_OPTIONS, "read") if streaming else (STREAM_READ_OPTIONS, "readStream")
            for name in refused:
                if name in given:
                    used = "readStream" if streaming else "read"
                    raise ValueError(f"the option {READ_OPTIONS[name]} is for spark.{other}, and this is spark.{used}")
        columns, splits = given.get("columns"), given.get("splits")
        statistics, reported = _statistics(given.get("statistics", "true"))
        return cls(
            StoreClient(given["url"], _connection_options(options, READ_OPTIONS)),
            given["table"],
            None if columns is None else _names(columns),
            None if splits is None else _count(splits, "splits"),
            _seconds(given, "leaseseconds", DEFAULT_LEASE_SECONDS),
            _seconds(given, "graceseconds", DEFAULT_GRACE_SECONDS),
            FeedOptions.parse(given),
            _count(given["maxrowspertrigger"], "maxrowspertrigger") if "maxrowspertrigger" in given else None,
            _pushdown(given.get("pushdown", "all")),
            statistics,
            reported,
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of `df.write`, checked. A job with an id from the caller may be submitted again."""

    store: StoreClient
    table: str
    mode: WriteMode
    job_id: str | None
    mode_given: bool = True  # if false, the default of a table without a key differs

    @classmethod
    def parse(cls, options: Mapping[str, str], *, overwrite: bool, streaming: bool = False) -> WriteOptions:
        """Check the options of `df.write`; ValueError if one is missing, invalid, for reads, or does not fit the mode.

        With `streaming`, the options are of `df.writeStream`, where `overwrite` is output mode complete.
        """
        own = STREAM_WRITE_OPTIONS if streaming else WRITE_OPTIONS
        others = READ_OPTIONS | WRITE_OPTIONS | STREAM_WRITE_OPTIONS
        given = _take(options, own, others, "writing streams" if streaming else "writing")
        mode = write_mode(given["mode"], "the option mode") if "mode" in given else None
        if overwrite and mode not in (None, WriteMode.OVERWRITE):
            if streaming:
                raise ValueError(
                    f"the option mode is {mode.value!r} and the output mode is complete, which replaces all rows; "
                    "leave the option out"
                )
            raise ValueError(
                f'the option mode is {mode.value!r} and the save mode is overwrite; use .mode("append") with the option'
            )
        job_id = given.get("jobid")
        if job_id == "":
            raise ValueError("the option jobId is empty; name the job, or leave the option out")
        return cls(
            StoreClient(given["url"], _connection_options(options, own)),
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


def _count(text: str, name: str, others: str = "") -> int:
    digits = text.strip()
    # Python reads no number of thousands of digits.
    count = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= len(str(_MOST)) else 0
    if not 1 <= count <= _MOST:
        raise ValueError(
            f"the option {READ_OPTIONS[name]} is {shown(text)}; "
            f"it must be {others}a whole number, at least 1 and below 2**63"
        )
    return count


def _statistics(text: str) -> tuple[bool, int | None]:
    known = text.strip().lower()
    if known in ("true", "false"):
        return known == "true", None
    return False, _count(text, "statistics", "true, false or ")


def _pushdown(text: str) -> Pushdown:
    try:
        return Pushdown(text.strip().lower())
    except ValueError:
        raise ValueError(f"the option pushdown is {shown(text)}; allowed are {', '.join(Pushdown)}") from None


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


def write_mode(text: str, what: str) -> WriteMode:
    """Return the mode that a text names; ValueError for none that rows of a DataFrame can be written in."""
    try:
        return _MODES[text.strip().lower()]
    except (KeyError, AttributeError):
        raise ValueError(f"{what} is {text!r}; allowed are {', '.join(_MODES)}") from None
