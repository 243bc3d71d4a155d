"""How connections are opened: libpq's parameters from the URL, and what every connection is set to."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from structable.spi import StorageUnavailableError

from .session import Session
from .types import TIMESTAMP_ORIGIN

__all__ = ["Connecting"]

_LONG = struct.Struct(">q")
_TIMESTAMPTZ = 1184
_OLDEST = 140_000
# A role or a database may have it off. What else it is, remote_apply say, is more than this.
_DURABLE = """, set_config('synchronous_commit', coalesce(
    nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)"""


@dataclass(frozen=True, slots=True)
class Connecting:
    """The way to a database.

    Parameters
    ----------
    parameters : mapping of str to str
        libpq's: host, port, dbname, user, password, sslmode and so on.
    settings : mapping of str to str
        What each connection sets, e.g. `statement_timeout`.
    shown : str
        The URL, masked, for messages.
    """

    parameters: Mapping[str, str]
    settings: Mapping[str, str]
    shown: str

    @property
    def conninfo(self) -> str:
        """The parameters as libpq's connection string, for other clients of it; holds the password."""
        return psycopg.conninfo.make_conninfo("", **self.parameters)

    def open(self) -> Session:
        """Open a connection.

        Raises
        ------
        StorageUnavailableError
            With the server's reason.
        """
        try:
            connection = psycopg.connect(**self.parameters, autocommit=True)  # type: ignore[arg-type]
        except psycopg.Error as error:
            reason = " ".join(str(error).split())
            raise StorageUnavailableError(f"cannot connect to {self.shown}: {reason}") from error
        version = connection.info.server_version
        if version < _OLDEST:
            connection.close()
            raise StorageUnavailableError(
                f"cannot use {self.shown}: it is PostgreSQL {version // 10_000}.{version % 10_000}, "
                f"and structable needs {_OLDEST // 10_000} or later"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            connection.close()
            raise StorageUnavailableError(
                f"cannot use {self.shown}: its database has the encoding {encoding}, and structable needs UTF8"
            )
        try:
            connection.adapters.register_loader(_TIMESTAMPTZ, _UtcLoader)
            found = connection.execute(
                "select array(select pid from pg_stat_activity where datid is null and usesysid is null), "
                + ", ".join("set_config(%s, %s, false)" for _ in self.settings)
                + ("" if "synchronous_commit" in self.settings else _DURABLE),
                [part for setting in self.settings.items() for part in setting],
            ).fetchone()
        except psycopg.Error as error:
            connection.close()
            reason = " ".join(str(error).split())
            raise StorageUnavailableError(f"cannot connect to {self.shown}: {reason}") from error
        return Session(connection, frozenset(found[0] if found else ()))


class _UtcLoader(Loader):
    """Loads instants as the contract has them: in UTC, by `datetime.UTC`."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> dt.datetime:
        return TIMESTAMP_ORIGIN + dt.timedelta(microseconds=_LONG.unpack(data)[0])
