"""The HBase backend: `hbase://host:9090[,host:9090]/prefix`, through HBase's Thrift gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from structable.backends.ordered.storage import OrderedStorage
from structable.spi.backend import COMMON_OPTIONS, Backend, Option, OptionValue, may_create
from structable.spi.storage import Storage
from structable.spi.urls import StorageUrl

from .engine import HBaseEngine
from .layout import Layout
from .settings import Settings
from .thrift.gateway import Gateway

__all__ = ["HBaseBackend"]

_PORT = 9090
_PREFIX = "structable"
_FRAME_SLACK = 64 << 10


class HBaseBackend(Backend):
    """Tables in HBase 2.4 or later; transactions need nothing but the gateway."""

    scheme: ClassVar[str] = "hbase"
    description: ClassVar[str] = "tables in HBase, through its Thrift gateway"
    options: ClassVar[tuple[Option, ...]] = (
        *COMMON_OPTIONS,
        Option("transport", "buffered", "how the gateway frames messages", choices=("buffered", "framed")),
        Option("protocol", "binary", "how the gateway encodes messages", choices=("binary", "compact")),
        Option("timeout", 30.0, "seconds to wait for a gateway, for a reply and in all", minimum=0.1),
        Option("pool_size", 40, "connections to gateways at most; a scan holds one", minimum=2, maximum=10_000),
        Option(
            "frame_limit", 2_000_000, "bytes of a frame that the gateway takes, if transport=framed", minimum=131_072
        ),
        Option("lease", 10.0, "seconds without a sign of life before others abort a pending transaction", minimum=0.5),
        Option(
            "session_timeout", 60.0, "seconds without a sign of life before a process's snapshots are let go", minimum=1
        ),
        Option(
            "late_writes",
            1200.0,
            "seconds that a write which a gateway has accepted may take to arrive: at least the gateways' "
            "hbase.client.operation.timeout",
            minimum=0,
        ),
        Option("housekeeping", 30.0, "seconds between two rounds of cleaning up", minimum=0.1),
        Option("finalisation_delay", 0.0, "seconds that committed values wait as intents at least", minimum=0),
        Option(
            "read_back_rows",
            8,
            "rows of a commit that looks for others in the rows, and not in the lists of recent writes",
            minimum=0,
        ),
    )

    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        if url.user is not None:
            raise ValueError(f"{url} names a user; HBase's Thrift gateway knows none")
        prefix = url.path.removeprefix("/") or _PREFIX
        try:
            layout = Layout(prefix)
        except ValueError as error:
            raise ValueError(f"{url}: {error}") from None
        timeout = float(options["timeout"])
        gateway = Gateway(
            _addresses(url),
            transport=str(options["transport"]),
            protocol=str(options["protocol"]),
            timeout=timeout,
            pool_size=int(options["pool_size"]),
            pool_timeout=float(options["pool_timeout"]),
            frame_limit=int(options["frame_limit"]) - _FRAME_SLACK,
        )
        settings = Settings(
            lease=float(options["lease"]),
            session_timeout=float(options["session_timeout"]),
            late_writes=float(options["late_writes"]),
            patience=timeout,
            housekeeping=float(options["housekeeping"]),
            finalisation_delay=float(options["finalisation_delay"]),
            read_back_rows=int(options["read_back_rows"]),
            create=may_create(options),
            read_only=bool(options["read_only"]),
        )
        return OrderedStorage(
            HBaseEngine(gateway, layout, settings),
            str(url),
            ddl_timeout=float(options["ddl_timeout"]),
            read_only=settings.read_only,
        )


def _addresses(url: StorageUrl) -> list[tuple[str, int]]:
    if not url.hosts:
        raise ValueError(f"{url} names no gateway; write hbase://host:{_PORT}/prefix")
    addresses = url.addresses()
    if not all(host for host, _ in addresses):
        raise ValueError(f"{url} has a gateway without a host; write hbase://host:{_PORT},host:{_PORT}/prefix")
    return [(host, int(port or _PORT)) for host, port in addresses]
