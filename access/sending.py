"""`send_to` and `send_update_to`: a stream of messages written to a table, each yielded once it was acknowledged."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, cast

from structable.spi import RecordNotFoundError, UpdateMessage, Value
from structable.spi.authors import shown

from .retrying import caused_by
from .table import AsyncTable

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M")


def send_to(
    table: AsyncTable[K, V],
    messages: AsyncIterable[tuple[K, V | Mapping[str, Value] | None]]
    | Iterable[tuple[K, V | Mapping[str, Value] | None]],
    *,
    mode: Literal["replace", "upsert"] = "replace",
    concurrency: int = 64,
) -> AsyncIterator[tuple[K, V | Mapping[str, Value] | None]]:
    """Write messages to a table, and yield each, in their order, once its write was acknowledged.

    Nothing is written until the result is consumed. Messages of one key are written one after the other. The first
    failure, of a write or of `messages` itself, is raised in place of its message, once all writes in flight have
    ended. Messages in flight are then not yielded; a note on the error says how many of them failed, too.

    Parameters
    ----------
    table : AsyncTable
        The table; with batches, the messages in flight fill them.
    messages : iterable or async iterable of (key, value)
        A value of None deletes the key.
    mode : {"replace", "upsert"}
        `put`, or over a StructuredTable `upsert`.
    concurrency : int
        The maximum number of messages in flight, at least 1.

    Raises
    ------
    ValueError
        If `mode` or `concurrency` has another value.
    UnsupportedOperationError
        If `mode` is "upsert" and the table has no `upsert`.
    TypeError
        If a message is not a pair of a key and a value; `send_update_to` takes an UpdateMessage.
    """
    if mode not in ("replace", "upsert"):
        raise ValueError(f"mode is {shown(mode)}; it must be 'replace' or 'upsert'")
    _check(messages, concurrency)
    if mode == "upsert":
        table._check_upserts()

    def write(message: tuple[K, V | Mapping[str, Value] | None]) -> asyncio.Future[None]:
        key, value = _pair(message)
        if isinstance(value, UpdateMessage):
            raise TypeError(f"the value of key {shown(key)} is an UpdateMessage; send_update_to writes it")
        if value is None or mode == "replace":
            return table.put(key, value)
        return table.upsert(key, value)

    return _acknowledged(messages, write, table._send_batch, concurrency)


def send_update_to(
    table: AsyncTable[K, V],
    messages: AsyncIterable[tuple[K, UpdateMessage]] | Iterable[tuple[K, UpdateMessage]],
    *,
    defaults: bool = True,
    concurrency: int = 64,
) -> AsyncIterator[tuple[K, UpdateMessage]]:
    """Write partial updates to a table, and yield each message, in their order, once its update was acknowledged.

    Each is `table.update`; all else is as `send_to` does it.

    Parameters
    ----------
    table : AsyncTable
        The table.
    messages : iterable or async iterable of (key, UpdateMessage)
        The updates, and their defaults.
    defaults : bool
        Whether a key without a value gets the default of its message; else it fails, with a note if there is one.
    concurrency : int
        The maximum number of messages in flight, at least 1.

    Raises
    ------
    ValueError
        If `concurrency` has another value.
    UnsupportedOperationError
        If the table has compact batches.
    TypeError
        In place of a message that is not such a pair; `send_to` takes other values.
    """
    _check(messages, concurrency)
    table._check_updates()

    def write(message: tuple[K, UpdateMessage]) -> asyncio.Future[None]:
        key, update = _pair(message)
        if not isinstance(update, UpdateMessage):
            raise TypeError(
                f"the value of key {shown(key)} is {shown(update)}, not an UpdateMessage; send_to writes it"
            )
        writing = table.update(key, update.update, update.default if defaults else None)
        if update.has_default and not defaults:
            writing.add_done_callback(_note_default)
        return writing

    return _acknowledged(messages, write, table._send_batch, concurrency)


def _note_default(writing: asyncio.Future[None]) -> None:
    error = None if writing.cancelled() else writing.exception()
    if error is not None and caused_by(error, RecordNotFoundError):
        error.add_note("the message has a default, which send_update_to puts with defaults=True")


async def _acknowledged(
    messages: AsyncIterable[M] | Iterable[M],
    write: Callable[[M], asyncio.Future[None]],
    send_batch: Callable[[], None],
    concurrency: int,
) -> AsyncIterator[M]:
    """Yield messages, each after its write has succeeded; `send_batch` sends a batch that waits for more operations."""
    next_message = _reader(messages)
    taking: asyncio.Future[M] | None = None
    in_flight: deque[tuple[M | None, asyncio.Future[None]]] = deque()
    is_ended = False
    try:
        while True:
            while not is_ended and len(in_flight) < concurrency:
                taking = taking or next_message()
                if not taking.done():
                    if in_flight:
                        break
                    await asyncio.wait([taking])
                taken, taking = taking, None
                message = None
                try:
                    message = taken.result()
                    writing = write(message)
                except StopAsyncIteration:
                    is_ended = True
                    continue
                except Exception as error:  # raised when its turn has come
                    is_ended = True
                    writing = asyncio.get_running_loop().create_future()
                    writing.set_exception(error)
                writing.add_done_callback(_watch)
                in_flight.append((message, writing))
            if not in_flight:
                return
            first, writing = in_flight[0]
            if not writing.done():
                if taking is None:
                    send_batch()
                awaited = [writing] if taking is None else [writing, taking]
                await asyncio.wait(cast("list[asyncio.Future[Any]]", awaited), return_when=asyncio.FIRST_COMPLETED)
                continue
            writing.result()
            in_flight.popleft()
            yield cast("M", first)
    except (Exception, GeneratorExit) as error:
        left = [writing for _, writing in in_flight if not writing.done()]
        if left:
            send_batch()
            await asyncio.wait(left)
        failed = [one for _, one in list(in_flight)[1:] if not one.cancelled() and one.exception() is not None]
        if failed:
            error.add_note(f"{len(failed)} more of the {len(in_flight)} messages in flight failed")
        raise
    finally:
        if taking is not None:
            taking.cancel()
            await asyncio.wait([taking])


def _watch(writing: asyncio.Future[None]) -> None:
    """Do nothing: having this callback marks the error of a write as handled for `flush`."""


def _reader(messages: AsyncIterable[M] | Iterable[M]) -> Callable[[], asyncio.Future[M]]:
    """Return a function that begins to take the next message; the end is StopAsyncIteration."""
    if isinstance(messages, AsyncIterable):
        iterator = aiter(messages)
        return lambda: asyncio.ensure_future(anext(iterator))
    plain = iter(messages)

    def taken() -> asyncio.Future[M]:
        future: asyncio.Future[M] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(next(plain))
        except StopIteration:
            future.set_exception(StopAsyncIteration())
        except Exception as error:
            future.set_exception(error)
        return future

    return taken


def _check(messages: object, concurrency: object) -> None:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError(f"concurrency is {shown(concurrency)}; it must be a whole number of at least 1")
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, AsyncIterable | Iterable):
        raise TypeError(f"messages is {shown(messages)}; it must be an iterable or async iterable of pairs")


def _pair(message: object) -> tuple[Any, Any]:
    if not isinstance(message, tuple | list) or len(message) != 2:
        raise TypeError(f"the message {shown(message)} is not a pair of a key and a value")
    return message[0], message[1]
