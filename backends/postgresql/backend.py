"""The PostgreSQL backend: `postgresql://user:password@host:port/database?schema=NAME`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from structable.spi import COMMON_OPTIONS, Backend, Option, OptionValue, ScanSplit, Storage, StorageUrl
from structable.spi.authors import may_create

from .bulk.split_reading import read_one_split
from .changes.change_splits import read_one_change_split, reads_changes
from .driver.connection_factory import ConnectionFactory
from .schema.catalog import is_name
from .storage import PostgreSQLStorage

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_LIBPQ = {
    "connect_timeout": "seconds to wait for a connection (libpq's connect_timeout)",
    "sslmode": "whether and how TLS is used (libpq's sslmode)",
    "sslrootcert": "the file of trusted certificates (libpq's sslrootcert)",
    "sslcert": "the client's certificate (libpq's sslcert)",
    "sslkey": "the client's key (libpq's sslkey)",
    "sslpassword": "the password of the client's key (libpq's sslpassword)",
    "sslcrl": "revoked certificates (libpq's sslcrl)",
    "sslsni": "whether the host name is sent (libpq's sslsni)",
    "ssl_min_protocol_version": "the lowest version of TLS (libpq's ssl_min_protocol_version)",
    "ssl_max_protocol_version": "the highest version of TLS (libpq's ssl_max_protocol_version)",
    "channel_binding": "whether SCRAM binds to the channel (libpq's channel_binding)",
    "gssencmode": "whether GSSAPI encrypts (libpq's gssencmode)",
    "krbsrvname": "the Kerberos service (libpq's krbsrvname)",
    "service": "the section of the service file (libpq's service)",
    "passfile": "the file of passwords (libpq's passfile)",
    "password": "the password, if the URL's user part has none",
    "host": "host or socket folder, if the URL has none",
    "hostaddr": "the address of the host (libpq's hostaddr)",
    "port": "the port, if the URL has none",
    "user": "the role, if the URL has none",
    "target_session_attrs": "which of several hosts is used (libpq's target_session_attrs)",
    "load_balance_hosts": "in which order hosts are tried (libpq's load_balance_hosts)",
    "keepalives": "whether TCP keep-alives are sent (libpq's keepalives)",
    "keepalives_idle": "seconds without traffic before the first (libpq's keepalives_idle)",
    "keepalives_interval": "seconds between them (libpq's keepalives_interval)",
    "keepalives_count": "how many may be lost (libpq's keepalives_count)",
    "tcp_user_timeout": "milliseconds that sent data may stay unconfirmed (libpq's tcp_user_timeout)",
    "require_auth": "which authentication methods are accepted (libpq's require_auth)",
    "options": "command-line options of the server process (libpq's options)",
}
_ADDRESS = {"host", "hostaddr", "port", "service"}


class PostgreSQLBackend(Backend):
    """Tables in one schema of a PostgreSQL database, version 14 or later."""

    scheme: ClassVar[str] = "postgresql"
    description: ClassVar[str] = "tables in a schema of a PostgreSQL database, 14 or later"
    options: ClassVar[tuple[Option, ...]] = (
        *COMMON_OPTIONS,
        Option("schema", "structable", "the schema that holds the tables; created if it is missing", names_store=True),
        Option(
            "pool_size",
            40,
            "connections at most: one for each open transaction, scan and plan",
            minimum=1,
            maximum=10_000,
        ),
        Option("statement_timeout", 0.0, "seconds that the server lets one statement take; 0 for no limit", minimum=0),
        Option("application_name", "structable", "the name of the connections in the server's views"),
        Option(
            "durability",
            "machine",
            "what a commit survives: a crash of the server and its machine, or of this process alone",
            choices=("machine", "process"),
        ),
        *(Option(name, "", text, names_store=name in _ADDRESS) for name, text in _LIBPQ.items()),
    )

    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        schema = str(options["schema"])
        if not is_name(schema) or not 1 <= len(schema.encode()) <= 63:
            raise ValueError(f"schema is {schema!r}; it must be a name of 1 to 63 bytes")
        if schema.startswith("pg_") or schema == "information_schema":
            raise ValueError(f"schema is {schema!r}, which belongs to PostgreSQL itself")
        return PostgreSQLStorage(
            _factory(url, options),
            schema,
            str(url),
            pool_size=int(options["pool_size"]),
            pool_timeout=float(options["pool_timeout"]),
            ddl_timeout=float(options["ddl_timeout"]),
            create=may_create(options),
            read_only=bool(options["read_only"]),
        )

    def read_split(
        self, url: StorageUrl, options: Mapping[str, OptionValue], split: ScanSplit
    ) -> Iterator[RecordBatch]:
        # The exported snapshot belongs to a database that the planning storage has checked.
        read = read_one_change_split if reads_changes(split) else read_one_split
        return read(_factory(url, options), split)


def _factory(url: StorageUrl, options: Mapping[str, OptionValue]) -> ConnectionFactory:
    settings = {
        "timezone": "UTC",
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "on" if options["read_only"] else "off",
        "statement_timeout": str(round(float(options["statement_timeout"]) * 1_000)),
        "extra_float_digits": "1",
        "client_min_messages": "warning",
        # The role or the database may set these differently.
        "default_transaction_deferrable": "off",
        "standard_conforming_strings": "on",
        "quote_all_identifiers": "off",
    }
    if options["durability"] == "process":
        settings["synchronous_commit"] = "off"
    return ConnectionFactory(_parameters(url, options), settings, str(url))


def _parameters(url: StorageUrl, options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Return libpq's parameters; its environment variables and files supply the others."""
    found = {name: str(options[name]) for name in _LIBPQ if options[name] != ""}
    hosts, ports = _hosts(url)
    database = url.path.removeprefix("/")
    if "/" in database:
        raise ValueError(f"{url} names the database {database!r}; write postgresql://host/database")
    own = {"user": url.user, "password": url.password, "host": hosts, "port": ports, "dbname": database}
    for name, value in own.items():
        if value:
            if name in found:
                raise ValueError(f"{url} gives {name} twice, in its place and as a parameter; give it once")
            found[name] = value
    for name, value in found.items():
        if "\0" in value:
            raise ValueError(f"{name} of {url} contains a NUL character; remove it")
    found["application_name"] = str(options["application_name"])
    found["client_encoding"] = "UTF8"
    return found


def _hosts(url: StorageUrl) -> tuple[str, str]:
    """Return hosts and ports as libpq has them: lists, where there are several."""
    addresses = url.addresses()
    ports = [port for _, port in addresses]
    return ",".join(host for host, _ in addresses), ",".join(ports) if any(ports) else ""
