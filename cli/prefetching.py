"""Work that a thread does ahead: Arrow parses the next part of a file while the one before is converted and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["one_ahead"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def one_ahead(items: Iterable[Item], function: Callable[[Item], Result]) -> Iterator[tuple[Item, Callable[[], Result]]]:
    """Yield each item with a call that waits for its result, while the function already works on the next item."""
    with ThreadPoolExecutor(1, thread_name_prefix="structable-parser") as thread:
        before = None
        for item in items:
            after = item, thread.submit(function, item).result
            if before is not None:
                yield before
            before = after
        if before is not None:
            yield before
