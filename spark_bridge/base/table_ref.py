"""`TableRef`: a table of a store, to write to from Spark."""

from __future__ import annotations

from dataclasses import dataclass

from structable.spi import mask_url

from .store_client import StoreClient


@dataclass(frozen=True, init=False, repr=False, slots=True)
class TableRef:
    """A table of a store; equal by content, and picklable. Its text shows no password.

    Parameters
    ----------
    url : str
        The store.
    name : str
        The table.
    **connection_options : object
        Connection options of the store, of any type that `structable.spi.connect` takes.

    Raises
    ------
    ValueError
        If url or name is not a string or is empty, or an option is not a string, a number or a bool.
    """

    url: str
    name: str
    options: tuple[tuple[str, object], ...]

    def __init__(self, url: str, name: str, **connection_options: object) -> None:
        for argument, text in (("url", url), ("name", name)):
            if not isinstance(text, str) or not text:
                raise ValueError(f"{argument} is {text!r}; it must be a string that is not empty")
        for option, value in connection_options.items():
            if not isinstance(value, str | int | float):
                kind = type(value).__name__  # the value may be a secret
                raise ValueError(f"option {option!r} is of type {kind}; it must be a string, a number or a bool")
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", tuple(sorted(connection_options.items())))

    @property
    def store(self) -> StoreClient:
        """The store of the table."""
        return StoreClient(self.url, self.options)

    def __repr__(self) -> str:
        options = "".join(f", {name}=..." for name, _ in self.options)
        return f"TableRef({mask_url(self.url)!r}, {self.name!r}{options})"


def require_ref(given: object, argument: str) -> None:
    """Raise `TypeError`, with the argument's name, unless the argument is a `TableRef`."""
    if not isinstance(given, TableRef):
        raise TypeError(f"{argument} is {given!r}; it must be a TableRef(url, name)")
