"""`GatewayPool`: open connections to the first gateway that answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from structable.backends.base.pool import ConnectionPool

from .connection import GatewayConnection
from .errors import ConnectionLostError, format_address

_FIRST_AVOIDANCE = 1.0
_LONGEST_AVOIDANCE = 30.0
_PROBE = 5.0
"""Seconds for connecting, if there is another gateway to try."""

Address = tuple[str, int]

_log = logging.getLogger("structable.hbase")


class GatewayPool(ConnectionPool[GatewayConnection]):
    """A limited number of connections to the first of the gateways that works.

    `connect` opens a connection within the given seconds, or raises `ConnectionLostError`.
    """

    holders = "scans"

    def __init__(
        self,
        addresses: Sequence[Address],
        connect: Callable[[Address, float], GatewayConnection],
        *,
        size: int,
        pool_timeout: float,
        timeout: float,
    ) -> None:
        super().__init__(size, pool_timeout)
        self._addresses = tuple(addresses)
        self._connect = connect
        self.timeout = timeout  # seconds for connecting, for one reply, and for all attempts at a repeatable call
        self.reached = False  # whether a gateway ever gave a valid answer
        self._avoided: dict[Address, tuple[float, float]] = {}  # until when, and for how long

    @contextmanager
    def connection(self) -> Iterator[GatewayConnection]:
        """Lend a connection for the `with` block; if it is lost there, its gateway is avoided for a while."""
        connection = self.acquire()
        try:
            yield connection
        except ConnectionLostError as error:
            self.avoid(connection.address, error)
            raise
        else:
            if self._avoided.pop(connection.address, None) is not None:
                _log.info("gateway %s answers again", format_address(connection.address))
        finally:
            self.reached |= connection.answered
            self.release(connection)

    def _serves(self, connection: GatewayConnection) -> bool:
        return connection.address == self._best()[0] and not connection.stale

    def _best(self) -> list[Address]:
        """Return the gateways in the order to try them: as listed, avoided ones last."""
        if not self._avoided:
            return list(self._addresses)
        now = time.monotonic()
        until = {address: self._avoided.get(address, (0.0, 0.0))[0] for address in self._addresses}
        return sorted(self._addresses, key=lambda address: max(until[address], now))

    def _open(self) -> GatewayConnection:
        lost: list[ConnectionLostError] = []
        several = len(self._addresses) > 1
        for address in self._best():
            known = address in self._avoided
            if known:
                self.avoid(address)  # saves other threads the attempt
            try:
                return self._connect(address, min(self.timeout, _PROBE) if several else self.timeout)
            except ConnectionLostError as error:
                if not known:
                    self.avoid(address, error)
                lost.append(error)
        if len(lost) == 1:
            raise lost[0]
        others = "; ".join(str(error) for error in lost[1:])
        raise ConnectionLostError(lost[0].address, f"{lost[0].reason}; {others}", sent=False) from lost[0]

    @property
    def untried(self) -> bool:
        """Whether any gateway is not avoided."""
        return any(address not in self._avoided for address in self._addresses)

    def avoid(self, address: Address, error: ConnectionLostError | None = None) -> None:
        """Prefer the other gateways for some seconds, longer after each failure in a row."""
        duration = min(self._avoided.get(address, (0.0, _FIRST_AVOIDANCE / 2))[1] * 2, _LONGEST_AVOIDANCE)
        self._avoided[address] = (time.monotonic() + duration, duration)
        if error is not None:
            _log.warning("gateway %s; it is avoided for %g s", error, duration)
