"""Opens connections, with libpq's parameters of the URL and the settings that each connection needs."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import psycopg
from psycopg import pq, sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from structable.spi import StorageUnavailableError
from structable.spi.authors import EXACT, own_class

from .connection import ServerConnection
from .errors import sessions_not_pooled
from .planning import BY_INDEX, CURRENT, plan_freely
from .session_claim import SessionClaim
from .statement import NUMERIC, TIMESTAMPTZ

_LONG = struct.Struct(">q")
_NUMERIC = struct.Struct(">HhHH")
_NUMERIC_1, _NUMERIC_2, _NUMERIC_3 = (struct.Struct(f">HhHH{count}H") for count in (1, 2, 3))
_SCALEB = EXACT.scaleb
_NEGATIVE = 0x4000
_ORIGIN = own_class(dt.datetime)(2000, 1, 1, tzinfo=dt.UTC)
_OLDEST = 140_000
# The first statement of every connection. Before it, role, database, PGOPTIONS and the URL's `options` decide where
# names are looked up, and functions and operators found there run with the privileges of this role. SET looks nothing
# up. In the start-up packet the setting would come no earlier than libpq's first query, and poolers reject it there.
_SAFE = "set search_path = pg_catalog"
# A pooler may report an invented process id to libpq.
_PROCESS = "pg_backend_pid()"
_STARTED = "(select extract(epoch from backend_start)::text from pg_stat_get_activity(pg_backend_pid()))"
# A role or a database may turn it off. Other values, such as remote_apply, promise more than `on`.
_DURABLE = """, set_config('synchronous_commit', coalesce(
    nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)"""


@dataclass(frozen=True, slots=True)
class ConnectionFactory:
    """Opens connections by libpq's `parameters` and sets `settings` on each; `shown` is the masked URL for messages."""

    parameters: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, str]
    shown: str

    def open(self) -> ServerConnection:
        """Open a connection; raises `StorageUnavailableError` with the server's reason."""
        try:
            connection = psycopg.connect(**self.parameters, autocommit=True)  # type: ignore[arg-type]
            try:
                return self._set_up(connection)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            what, reason = f"cannot connect to {self.shown}", " ".join(str(error).split())
            if isinstance(error, psycopg.errors.DuplicatePreparedStatement):
                raise sessions_not_pooled(what, reason) from error
            raise StorageUnavailableError(f"{what}: {reason}") from error

    def _set_up(self, connection: psycopg.Connection) -> ServerConnection:
        version = connection.info.server_version
        if version < _OLDEST:
            raise StorageUnavailableError(
                f"cannot use {self.shown}: it is PostgreSQL {version // 10_000}.{version % 10_000}, "
                f"and structable needs {_OLDEST // 10_000} or later"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StorageUnavailableError(
                f"cannot use {self.shown}: its database has the encoding {encoding}, and structable needs UTF8"
            )
        connection.adapters.register_loader(TIMESTAMPTZ, _UtcLoader)
        connection.adapters.register_loader(NUMERIC, _DecimalLoader)
        claim = SessionClaim(self.settings)
        answers = connection.execute(self._first(claim).encode())
        answers.nextset()
        answers.nextset()
        found = answers.fetchone()
        assert found is not None
        return ServerConnection(connection, claim, frozenset(found[0]), plan_freely(found[1]), *found[2:4])

    def _first(self, claim: SessionClaim) -> str:
        """Return the first statements of a connection, in one message, so that they take one round trip.

        If the session has been claimed, none of them has an effect.
        """
        settings = (
            f"set_config({sql.quote(name)}, {sql.quote(value)}, false)" for name, value in self.settings.items()
        )
        asked = "select array(select pid from pg_stat_activity where datid is null and usesysid is null)"
        durable = "" if "synchronous_commit" in self.settings else _DURABLE
        made = f"{', '.join([asked, CURRENT, _PROCESS, _STARTED, *settings])}{durable}"
        return f"{_SAFE}; {claim.prepare}; {made}; {BY_INDEX}, {claim.mark}"


class _UtcLoader(Loader):
    """Loads instants in the contract's form: in UTC, by `datetime.UTC`."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> dt.datetime:
        return _ORIGIN + dt.timedelta(microseconds=_LONG.unpack(data)[0])


class _DecimalLoader(Loader):
    """Loads decimals exactly; psycopg's own loader computes in `decimal.DefaultContext`."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> Decimal:
        # Without a loop over the digits, of base 10,000, most decimals take half as long.
        match len(data):
            case 10:
                count, weight, sign, scale, number = _NUMERIC_1.unpack(data)
            case 12:
                count, weight, sign, scale, first, second = _NUMERIC_2.unpack(data)
                number = first * 10_000 + second
            case 14:
                count, weight, sign, scale, first, second, third = _NUMERIC_3.unpack(data)
                number = (first * 10_000 + second) * 10_000 + third
            case _:
                count, weight, sign, scale = _NUMERIC.unpack_from(data)
                number = 0
                for digits in struct.unpack_from(f">{count}H", data, _NUMERIC.size):
                    number = number * 10_000 + digits
        # The last digits may have zeros beyond the scale, or lack some up to it.
        shift = scale + 4 * (weight - count + 1)
        if shift > 0:
            number *= 10**shift
        elif shift:
            number //= 10**-shift
        if sign:
            if sign != _NEGATIVE:
                raise ValueError("a numeric that is NaN or infinite")
            number = -number
        return _SCALEB(Decimal(number), -scale)
