"""The options of a read or a write, as users give them to Spark, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from structable.spi import (
    ScanSplit,
    Storage,
    StorageUrl,
    StoreNotFoundError,
    WriteMode,
    connect,
    mask_url,
    read_split,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["DEFAULT_GRACE_SECONDS", "DEFAULT_LEASE_SECONDS", "ReadOptions", "StoreAddress", "WriteOptions"]

DEFAULT_LEASE_SECONDS = 600.0
DEFAULT_GRACE_SECONDS = 15.0

# Spark hands option names over in lower case, whatever the user wrote.
_READ = {
    "url": "url",
    "table": "table",
    "columns": "columns",
    "splits": "splits",
    "leaseseconds": "leaseSeconds",
    "graceseconds": "graceSeconds",
}
_WRITE = {"url": "url", "table": "table", "mode": "mode", "jobid": "jobId"}


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is and how to connect to it; it travels to executors, and shows no password.

    Parameters
    ----------
    url : str
        The store's URL.
    options : tuple of (str, str)
        Connection options that were given as Spark options.
    """

    url: str = field(repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def connect(self) -> Storage:
        """Connect to the store, which must be there unless an option `create` says otherwise.

        Raises
        ------
        ValueError
            For an option that neither the bridge nor the backend knows; the message lists both kinds.
        StructableError
            As `structable.spi.connect` does.
        """
        options: dict[str, object] = dict(self.options)
        try:
            if "create" not in StorageUrl.parse(self.url).parameters:
                options.setdefault("create", False)  # the table must exist, so a store that does not is mistyped
            return connect(self.url, **options)
        except StoreNotFoundError as error:
            reason = str(error).partition("; connect without")[0]
            raise StoreNotFoundError(f"{reason}; Spark makes no store and no table") from None
        except ValueError as error:
            if not self.options:
                raise
            read, write = (", ".join(names.values()) for names in (_READ, _WRITE))
            raise ValueError(f"{error}; the format itself takes {read} to read, and {write} to write") from None

    def read_split(self, split: ScanSplit) -> Iterator[RecordBatch]:
        """Yield the batches of a split whose plan was made on this store; see `structable.spi.read_split`."""
        return read_split(self.url, split, **dict(self.options))

    def __str__(self) -> str:
        return mask_url(self.url)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for.

    Parameters
    ----------
    store : StoreAddress
        Where the table is.
    table : str
        Its name.
    columns : tuple of str or None
        The columns to read, in this order; all if None.
    splits : int or None
        About how many partitions are wanted; Spark's default parallelism if None.
    lease : float
        Seconds for which a snapshot is kept that nobody reads.
    grace : float
        Seconds for which a snapshot is kept, at most, after its query has ended and its last read.
    """

    store: StoreAddress
    table: str
    columns: tuple[str, ...] | None
    splits: int | None
    lease: float = DEFAULT_LEASE_SECONDS
    grace: float = DEFAULT_GRACE_SECONDS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Check the options of `spark.read`.

        Raises
        ------
        ValueError
            For one that is missing, belongs to writes, or has a value that does not fit.
        """
        given = _take(options, _READ, _WRITE, "reading")
        columns, splits = given.get("columns"), given.get("splits")
        return cls(
            StoreAddress(given["url"], _connection_options(options, _READ)),
            given["table"],
            None if columns is None else _names(columns),
            None if splits is None else _split_count(splits),
            _seconds(given, "leaseseconds", DEFAULT_LEASE_SECONDS),
            _seconds(given, "graceseconds", DEFAULT_GRACE_SECONDS),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write was asked for.

    Parameters
    ----------
    store : StoreAddress
        Where the table is.
    table : str
        Its name.
    mode : WriteMode
        What happens to each row.
    job_id : str or None
        The caller's name for the job, by which submitting it again does nothing; a new one if None.
    """

    store: StoreAddress
    table: str
    mode: WriteMode
    job_id: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
        """Check the options of `df.write`.

        Parameters
        ----------
        options : mapping of str to str
            Spark's options, names in lower case.
        overwrite : bool
            Whether Spark's save mode is "overwrite" (else it is "append").

        Raises
        ------
        ValueError
            For one that is missing, belongs to reads, contradicts the save mode, or has a value that does not fit.
        """
        given = _take(options, _WRITE, _READ, "writing")
        mode = _write_mode(given["mode"]) if "mode" in given else None
        if overwrite and mode not in (None, WriteMode.OVERWRITE):
            raise ValueError(
                f'the option mode is {mode.value!r} and the save mode is overwrite; use .mode("append") with the option'
            )
        job_id = given.get("jobid")
        if job_id == "":
            raise ValueError("the option jobId is empty; name the job, or leave the option out")
        return cls(
            StoreAddress(given["url"], _connection_options(options, _WRITE)),
            given["table"],
            WriteMode.OVERWRITE if overwrite else mode or WriteMode.UPSERT,
            job_id,
        )


def _take(
    options: Mapping[str, str], own: Mapping[str, str], others: Mapping[str, str], purpose: str
) -> dict[str, str]:
    for name in options:
        if name in others and name not in own:
            raise ValueError(f"the option {others[name]} is not for {purpose}, which takes {', '.join(own.values())}")
    if "path" in options:
        raise ValueError("a path is no place of a structable table; give the options url and table instead")
    for name in ("url", "table"):
        if not options.get(name):
            raise ValueError(f"the option {name} is missing; give the store's url and the table's name")
    return {name: options[name] for name in own if name in options}


def _connection_options(options: Mapping[str, str], own: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in options.items() if name not in own))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"the option columns is {text!r}; it must be names of fields, separated by commas")
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
        raise ValueError(f"the option {_READ[name]} is {given[name]!r}; it must be a number of seconds above 0")
    return seconds


def _write_mode(text: str) -> WriteMode:
    try:
        return WriteMode(text.strip().lower())
    except ValueError:
        raise ValueError(f"the option mode is {text!r}; allowed are {', '.join(WriteMode)}") from None
