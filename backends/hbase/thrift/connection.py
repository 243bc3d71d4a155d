"""`GatewayConnection`: requests to one gateway, answered in order; used by one thread at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from structable.backends.base.pool import PooledConnection
from structable.backends.base.traffic import Tally

from .errors import (
    ConnectionLostError,
    MixedUpError,
    RequestTooLargeError,
    ServerError,
    closed_reason,
    garbage_reason,
    silent_reason,
)
from .messages import Replies, encode
from .requests import ThriftCall
from .transport import Wire

_OUTSTANDING = 100
_SENT_TOGETHER = 1 << 16  # bytes
IDLE_LIMIT = 25.0
"""Seconds: a gateway drops a connection after 60 s without a request (hbase.thrift.server.socket.read.timeout)."""

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Wiring:
    """The settings for connections to gateways."""

    transport: str  # "buffered" or "framed"
    protocol: str  # "binary" or "compact"
    timeout: float  # seconds for one reply
    frame_limit: int  # bytes of a framed request


class GatewayConnection(PooledConnection):
    """A connection to a gateway, open from the start.

    Every method that sends or receives raises `ConnectionLostError` if there is no valid answer, or
    `RequestTooLargeError`; the connection is unusable then, as after any other exception in an exchange: an unread
    reply would be taken for the next one.
    """

    def __init__(self, address: tuple[str, int], wiring: Wiring, connect_timeout: float) -> None:
        self.address = address
        self.tally = Tally()
        self._wiring = wiring
        self._outstanding: deque[tuple[ThriftCall[object], int]] = deque()
        self.answered = False  # whether the gateway ever gave a valid reply
        self._broken = False
        self._sent = False
        try:
            self._wire = Wire(
                address,
                self.tally,
                framed=wiring.transport == "framed",
                connect_timeout=connect_timeout,
                timeout=wiring.timeout,
            )
        except TimeoutError:
            reason = f"cannot be reached: no connection within {connect_timeout:g} s"
            raise ConnectionLostError(address, reason, sent=False) from None
        except (OSError, UnicodeError) as error:
            reason = f"cannot be reached: {getattr(error, 'strerror', None) or error}"
            raise ConnectionLostError(address, reason, sent=False) from error
        self._replies = Replies(wiring.protocol, self._wire)
        self._used = time.monotonic()

    @property
    def usable(self) -> bool:
        """Whether the connection can take requests, with none outstanding."""
        return not self._broken and not self._outstanding

    @property
    def sound(self) -> bool:
        """Whether the connection can take requests, behind the outstanding ones."""
        return not self._broken

    @property
    def stale(self) -> bool:
        """Whether the gateway may no longer answer: the connection was idle for too long, or has ended."""
        return time.monotonic() - self._used > IDLE_LIMIT or self._wire.readable

    def post(self, calls: Iterable[ThriftCall[object]]) -> None:
        """Send requests without waiting for replies."""
        try:
            self._post(calls)
        except RequestTooLargeError:
            self._broken = True
            raise
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:
            self._broken = True
            raise

    def _post(self, calls: Iterable[ThriftCall[object]]) -> None:
        gathered: list[bytes] = []
        size = 0
        for call in calls:
            number = next(_numbers) & 0x7FFFFFFF
            request = encode(self._wiring.protocol, call.api, call.arguments, number)
            limit = self._wiring.frame_limit + call.reserve
            if self._wiring.transport == "framed" and len(request) > limit:
                raise RequestTooLargeError(len(request), limit)
            self._outstanding.append((call, number))
            gathered.append(request)
            size += len(request)
            if size >= _SENT_TOGETHER:
                self._send(gathered)
                gathered, size = [], 0
        if gathered:
            self._send(gathered)

    def _send(self, requests: list[bytes]) -> None:
        self._sent = True
        self._wire.send(requests)

    def take(self) -> object:
        """Return the result of the oldest outstanding request; a `ServerError` if it failed."""
        call, number = self._outstanding[0]
        self._wire.deadline = time.monotonic() + self._wiring.timeout
        try:
            reply = self._replies.receive(call.api, number)
        except Exception as error:
            raise self._lost(error) from error
        except BaseException:
            self._broken = True
            raise
        self._outstanding.popleft()
        self.answered = True
        self._used = time.monotonic()
        return reply if isinstance(reply, ServerError) else call.decode(reply)

    def wait(self) -> object:
        """`take`, counted as a round trip."""
        self.tally.round_trips += 1
        return self.take()

    def take_all(self) -> Iterator[object]:
        """Yield the results of all outstanding requests, in order."""
        if self._outstanding:
            self.tally.round_trips += 1
        while self._outstanding:
            yield self.take()

    def exchange(self, calls: Sequence[ThriftCall[object]]) -> list[object]:
        """Send requests, never more than about a hundred ahead of their replies.

        Returns a result for each; a `ServerError` for a failed one.
        """
        results: list[object] = []
        sent = 0
        while len(results) < len(calls):
            ahead = len(results) + _OUTSTANDING
            if sent < min(ahead, len(calls)):
                self.post(calls[sent:ahead])
                sent = min(ahead, len(calls))
            self.tally.round_trips += 1
            # Half of the requests stay outstanding while more are sent, so that the gateway always has work.
            left = 0 if sent == len(calls) else _OUTSTANDING // 2
            while len(self._outstanding) > left:
                results.append(self.take())
        return results

    def _lost(self, error: Exception) -> ConnectionLostError:
        self._broken = True
        wiring = self._wiring
        first = not self.answered
        if isinstance(error, TimeoutError):
            reason = (
                silent_reason(wiring.transport, wiring.protocol, wiring.timeout)
                if first
                else f"gave no answer within {wiring.timeout:g} s (timeout)"
            )
        elif isinstance(error, OSError):
            if not first:
                reason = f"the connection was lost: {error.strerror or error}"
            elif self._wire.first:
                reason = garbage_reason(self._wire.first, wiring.transport, wiring.protocol)
            else:
                reason = closed_reason(wiring.transport, wiring.protocol)
        elif first and self._wire.first:
            reason = garbage_reason(self._wire.first, wiring.transport, wiring.protocol)
        elif isinstance(error, MixedUpError):
            reason = f"the connection was closed: {error}"
        else:
            reason = f"the connection was closed: a reply could not be read: {error!r}"
        return ConnectionLostError(self.address, reason, sent=self._sent)

    def shut(self) -> None:
        """End the connection, even while another thread uses it; that thread then closes it."""
        self._wire.shut()

    def close(self) -> None:
        self._broken = True
        self._wire.close()
