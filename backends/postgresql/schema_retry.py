"""Arguments are checked by the schema as this process knows it, and another process may have changed it since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from structable.spi import InvalidFieldError

if TYPE_CHECKING:
    from .table import PostgreSQLTable

__all__ = ["on_current_schema"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_PLAIN = (dict, tuple)


def on_current_schema(
    operation: Callable[Concatenate[PostgreSQLTable, Parameters], Result],
) -> Callable[Concatenate[PostgreSQLTable, Parameters], Result]:
    """Make an operation that refuses its arguments look whether the table has changed, and try again if it has."""

    @wraps(operation)
    def run(table: PostgreSQLTable, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if kwargs or len(args) != 1 or args[0].__class__ not in _PLAIN:
            # What can be consumed once only is kept for the second time.
            args = tuple(list(one) if isinstance(one, Iterator) else one for one in args)  # type: ignore[assignment]
            for name, one in kwargs.items():
                if isinstance(one, Iterator):
                    kwargs[name] = list(one)
        try:
            return operation(table, *args, **kwargs)
        except InvalidFieldError:
            if not table.renew():
                raise
        return operation(table, *args, **kwargs)

    return run
