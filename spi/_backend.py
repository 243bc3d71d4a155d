"""`Backend`: the entry point of a backend package, with the options that it declares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from ._bulk import ScanSplit
from ._error_texts import shown
from ._storage import Storage
from ._urls import StorageUrl

if TYPE_CHECKING:
    from pyarrow import RecordBatch

OptionValue: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Option:
    """One connection option, given as a URL parameter or as a keyword of `connect`.

    Parameters
    ----------
    name : str
        Its name.
    default : str, int, float or bool
        The value if it is not given. Its type is the option's type.
    description : str
        Its effect, with the unit.
    choices : tuple of str
        The allowed values; empty for any.
    minimum : float or None
        The smallest allowed number.
    maximum : float or None
        The largest allowed number. Options of type float are times in seconds, at most 2,000,000 (23 days), which every
        system's and server's timers can count. Those of type int are at most 2,147,483,647.
    names_store : bool
        Whether another value means another store, as another path of the URL does.
    """

    name: str
    default: OptionValue
    description: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    names_store: bool = False

    def parse(self, value: object) -> OptionValue:
        """Return the value in the option's type; texts are read as URL parameters are, and whole numbers as texts.

        Raises
        ------
        ValueError
            If it is not of that type, not among the choices, below the minimum or above the maximum.
        """
        parsed = self._converted(value)
        if self.choices and parsed not in self.choices:
            raise ValueError(f"option {self.name!r} is {shown(value)}; allowed are {', '.join(self.choices)}")
        if self.minimum is not None and isinstance(parsed, int | float) and not parsed >= self.minimum:
            raise ValueError(f"option {self.name!r} is {shown(value)}; it must be at least {self.minimum:g}")
        if isinstance(parsed, int | float) and not isinstance(parsed, bool):
            most = self.maximum or (_MOST_SECONDS if isinstance(parsed, float) else _MOST)
            if not -most <= parsed <= most:
                raise ValueError(f"option {self.name!r} is {shown(value)}; it must be at most {most:,.15g}")
        return parsed

    def _converted(self, value: object) -> OptionValue:
        kind = type(self.default)
        text = value.lower() if isinstance(value, str) else value
        if kind is bool and (isinstance(value, bool) or text in _TRUTHS):
            return value if isinstance(value, bool) else _TRUTHS[str(text)]
        if kind is str and isinstance(value, str):
            return str.__str__(value)
        if kind is not bool and isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                if kind is str:
                    return str(_whole(value))  # a port, or seconds
                return float(value) if kind is float else _whole(value)
            except (ValueError, OverflowError):
                pass  # the error below names the option
        wanted = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}[kind]
        raise ValueError(f"option {self.name!r} is {shown(value)}; it must be {wanted}")


_MOST_SECONDS = 2_000_000
_MOST = 2_147_483_647
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _whole(value: str | float) -> int:
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError(value)
    return number


COMMON_OPTIONS = (
    Option("pool_timeout", 30.0, "seconds to wait when too many transactions, scans and plans are open", minimum=0),
    Option("ddl_timeout", 30.0, "seconds that an admin call waits for open transactions", minimum=0),
    Option("create", True, "whether to create an absent store; false raises StoreNotFoundError"),
    Option("read_only", False, "whether to write nothing, and refuse every write and change of tables"),
)
"""Options that every backend knows."""


def may_create(options: Mapping[str, OptionValue]) -> bool:
    """Return whether an absent store is created; otherwise the backend raises `StoreNotFoundError`."""
    return bool(options["create"]) and not options["read_only"]


class Backend(ABC):
    """The entry point of a backend, in group `structable.backends`: a class that is built without arguments."""

    scheme: ClassVar[str]
    """The URL scheme, equal to the entry point's name."""
    description: ClassVar[str]
    """One line for people."""
    options: ClassVar[Sequence[Option]]
    """All its options, including `COMMON_OPTIONS`."""

    @abstractmethod
    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        """Return a storage.

        Without `may_create(options)` an absent store is a `StoreNotFoundError`, and nothing is created. With
        `read_only` the storage writes nothing on its own: no lock files, no heartbeats, no clean-up or preparation. It
        need not reject the caller's writes: the wrapper that `connect` returns does.

        Parameters
        ----------
        url : StorageUrl
            The URL; its parameters are in `options`, too.
        options : mapping
            A value for every declared option.

        Raises
        ------
        ValueError
            If the URL lacks a part, or has one that the backend does not use.
        StoreNotFoundError
            If the store does not exist and must not be created.
        StorageUnavailableError
            If the store cannot be reached.
        DataCorruptionError
            If the store's content is not structable's, or was written by a newer version.
        """

    def read_split(
        self, url: StorageUrl, options: Mapping[str, OptionValue], split: ScanSplit
    ) -> Iterator[RecordBatch]:
        """Yield the batches of one split, as `Storage.read_split` does, and release all resources.

        A backend that can read a split without connecting overrides this. The plan was made through a storage of the
        same URL and options, so the store need not be checked again.

        Parameters
        ----------
        url, options : StorageUrl, mapping
            The arguments of `connect`.
        split : ScanSplit
            The split.

        Raises
        ------
        StructableError, ValueError
            As `connect` and `Storage.read_split` do, at the first batch or later.
        """
        with self.connect(url, options) as storage:
            yield from storage.read_split(split)


def parse_options(backend: Backend, url: StorageUrl, keywords: Mapping[str, object]) -> dict[str, OptionValue]:
    """Return a value for every option of a backend, from the URL's parameters, keywords and defaults.

    Raises
    ------
    ValueError
        For an unknown option (listing the known), one given in both places, or a value that does not fit.
    """
    known = {option.name: option for option in backend.options}
    given: dict[str, object] = dict(url.parameters)
    for name, value in keywords.items():
        if name in given:
            raise ValueError(f"option {name!r} is given in the URL and as a keyword; give it once")
        given[name] = value
    for name in given:
        if name not in known:
            raise ValueError(f"backend {backend.scheme!r} has no option {name!r}; it knows {', '.join(sorted(known))}")
    return {name: option.parse(given[name]) if name in given else option.default for name, option in known.items()}
