"""`connect`: finds the backend of a URL by its entry point and loads it at first use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from ._backend import Backend, OptionValue, parse_options
from ._bulk import ScanSplit
from ._errors import BackendNotFoundError
from ._imports import remedy
from ._metering import recording_meter
from ._read_only import ReadOnlyStorage
from ._signalling import SignallingStorage
from ._signals import Signalling
from ._storage import Storage
from ._urls import StorageUrl

if TYPE_CHECKING:
    from pyarrow import RecordBatch

ENTRY_POINT_GROUP = "structable.backends"


def connect(url: str, **options: object) -> Storage:
    """Connect to a store.

    Parameters
    ----------
    url : str
        `memory://[name]`, `leveldb:///folder`, or the URL of any installed backend. Its parameters are options.
    **options
        The same options as keywords.

    Returns
    -------
    Storage
        A context manager; close it when done. It is safe to share between threads. If the program has set up an
        OpenTelemetry SDK by then, its calls are counted and timed.

    Raises
    ------
    BackendNotFoundError
        If no backend, or more than one, offers the URL's scheme, or its driver is not installed.
    ValueError
        For a malformed URL, or an option that is unknown or does not fit; it lists the known ones.
    StoreNotFoundError
        If the store does not exist, and `create=False` or `read_only=True` was given.
    StorageUnavailableError, DataCorruptionError
        From the backend.
    """
    parsed = StorageUrl.parse(url)
    backend = load_backend(parsed.scheme)
    values = parse_options(backend, parsed, options)
    try:
        storage = backend.connect(parsed, values)
    except ImportError as missing:
        raise _not_loadable(_entry_point(parsed.scheme), missing) from missing
    if type(storage).listen is Signalling.listen:
        storage = SignallingStorage(storage)
    read_only = bool(values.get("read_only"))
    if read_only:
        storage = ReadOnlyStorage(storage)
    meter = recording_meter()
    if meter is None:
        return storage
    from ._measuring import MeasuringStorage
    from ._store_metrics import metrics_of

    return MeasuringStorage(storage, metrics_of(meter), _store_name(backend, parsed, values), read_only=read_only)


def _store_name(backend: Backend, url: StorageUrl, values: Mapping[str, OptionValue]) -> str:
    """Return the parts of a URL that identify its store, the same for all users of the store, without credentials."""
    chosen = {
        option.name: str(values[option.name])
        for option in backend.options
        if option.names_store and values[option.name] != option.default
    }
    return str(StorageUrl(url.scheme, hosts=url.hosts, path=url.path, parameters=chosen))


def read_split(url: str, split: ScanSplit, **options: object) -> Iterator[RecordBatch]:
    """Yield the batches of one split, for a process that does nothing else with the store.

    The batches are the same as from `Storage.read_split` of a new connection, which some backends do not need.

    Parameters
    ----------
    url : str
        The URL of the storage that made the plan.
    split : ScanSplit
        A split of the plan, from any process.
    **options
        The options of that storage.

    Raises
    ------
    StructableError, ValueError
        As `connect` and `Storage.read_split` do, at the first batch or later.
    """
    parsed = StorageUrl.parse(url)
    backend = load_backend(parsed.scheme)
    values = parse_options(backend, parsed, options)
    try:
        yield from backend.read_split(parsed, values, split)
    except ImportError as missing:
        raise _not_loadable(_entry_point(parsed.scheme), missing) from missing


def load_backend(scheme: str) -> Backend:
    """Return the backend of a URL scheme, or raise `BackendNotFoundError` as `connect` does."""
    entry = _entry_point(scheme)
    try:
        loaded = entry.load()
    except Exception as problem:  # what a driver raises when it is imported
        raise _not_loadable(entry, problem) from problem
    try:
        backend = loaded()
    except TypeError as error:  # it is not a class, or one that lacks methods
        raise BackendNotFoundError(
            f"the entry point {entry.value!r} of {_provider(entry)} is not a structable Backend: {error}"
        ) from error
    if not isinstance(backend, Backend):
        raise BackendNotFoundError(f"the entry point {entry.value!r} of {_provider(entry)} is not a structable Backend")
    return backend


@dataclass(frozen=True, slots=True)
class InstalledBackend:
    """A backend of an installed distribution.

    Parameters
    ----------
    scheme : str
        Its URL scheme.
    provider : str
        Name and version of the distribution.
    backend : Backend or None
        The backend, if it can be loaded.
    problem : str
        Why it cannot be loaded, and the remedy; empty if it can.
    """

    scheme: str
    provider: str
    backend: Backend | None
    problem: str = ""


def installed_backends(scheme: str | None = None) -> list[InstalledBackend]:
    """Return the installed backends, all or those of a scheme, including those that cannot be loaded; by scheme."""
    found: list[InstalledBackend] = []
    entries = {entry for entry in entry_points(group=ENTRY_POINT_GROUP) if scheme in (None, entry.name)}
    for entry in sorted(entries, key=lambda entry: (entry.name, entry.value)):
        try:
            found.append(InstalledBackend(entry.name, _provider(entry), load_backend(entry.name)))
        except BackendNotFoundError as error:
            found.append(InstalledBackend(entry.name, _provider(entry), None, str(error)))
    return found


@lru_cache(maxsize=1)
def _known_entries(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the backends' entry points on a module search path; a search reads a file of each distribution."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _entry_point(scheme: str) -> EntryPoint:
    entries = {entry for entry in _known_entries(tuple(sys.path)) if entry.name == scheme}
    if not entries:
        # It may have been installed since.
        entries = set(entry_points(group=ENTRY_POINT_GROUP, name=scheme))
    if not entries:
        installed = ", ".join(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})) or "none"
        raise BackendNotFoundError(f"no backend for {scheme}:// is installed; installed are: {installed}")
    if len({entry.value for entry in entries}) > 1:
        rivals = " and ".join(sorted(f"{_provider(entry)} ({entry.value})" for entry in entries))
        raise BackendNotFoundError(f"the backend {scheme!r} is provided by {rivals}; uninstall all but one")
    return entries.pop()


def _provider(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _not_loadable(entry: EntryPoint, missing: Exception) -> BackendNotFoundError:
    if not isinstance(missing, ImportError | AttributeError):
        return BackendNotFoundError(f"the backend {entry.name!r} cannot be loaded: {type(missing).__name__}: {missing}")
    dist = entry.dist
    if isinstance(missing, ModuleNotFoundError):
        problem = f"needs the module {missing.name!r}, which is not installed"
        wanted = str(missing.name)
    else:  # e.g. a driver without the C library that it wraps
        problem = f"cannot be loaded ({missing})"
        wanted = entry.value if dist is None else dist.name
    if dist is not None and entry.name in (dist.metadata.get_all("Provides-Extra") or ()):
        command = remedy(entry.name, f"{dist.name}[{entry.name}]", distribution=dist.name)
        return BackendNotFoundError(f"the backend {entry.name!r} {problem}; {command}")
    return BackendNotFoundError(f"the backend {entry.name!r} {problem}: pip install {wanted}")
