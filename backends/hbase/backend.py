"""The HBase backend: `hbase://host:9090[,host:9090]/prefix`, through HBase's Thrift gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from structable.backends.ordered.feeds.splits import reads_changes
from structable.backends.ordered.scan.splits import read_table_split, reading_upcalls
from structable.backends.ordered.storage import OrderedStorage
from structable.spi import COMMON_OPTIONS, Backend, Option, OptionValue, ScanSplit, Storage, StorageUrl
from structable.spi.authors import may_create

from .engine import HBaseEngine
from .layout import Layout
from .thrift.gateway import Gateway
from .txn.context import ProtocolSettings

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_PORT = 9090
_FRAME_SLACK = 64 << 10


class HBaseBackend(Backend):
    """Tables in HBase 2.4 or later; transactions need nothing but the gateway."""

    scheme: ClassVar[str] = "hbase"
    description: ClassVar[str] = "tables in HBase, through its Thrift gateway"
    options: ClassVar[tuple[Option, ...]] = (
        *COMMON_OPTIONS,
        Option("transport", "buffered", "how the gateway frames messages", choices=("buffered", "framed")),
        Option("protocol", "binary", "how the gateway encodes messages", choices=("binary", "compact")),
        Option("timeout", 30.0, "seconds for connecting, for a reply, and for all attempts at a call", minimum=0.1),
        Option("pool_size", 40, "the largest number of connections; a scan holds one", minimum=2, maximum=10_000),
        Option(
            "frame_limit",
            2_000_000,
            "the largest frame in bytes that the gateways accept, with transport=framed",
            minimum=131_072,
        ),
        Option(
            "lease", 10.0, "seconds without a heartbeat before other processes abort a pending transaction", minimum=0.5
        ),
        Option(
            "session_timeout",
            60.0,
            "seconds without a heartbeat before other processes end a process's snapshots",
            minimum=1,
        ),
        Option(
            "late_writes",
            1200.0,
            "seconds within which a write accepted by a gateway arrives: at least the gateways' "
            "hbase.client.operation.timeout",
            minimum=0,
        ),
        Option("housekeeping", 30.0, "seconds between two rounds of the janitor", minimum=0.1),
        Option(
            "read_back_rows",
            8,
            "rows up to which a commit reads them back; a larger one reads the lists of recent writes",
            minimum=0,
        ),
    )

    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        return OrderedStorage(
            _engine(url, options),
            str(url),
            ddl_timeout=float(options["ddl_timeout"]),
            read_only=bool(options["read_only"]),
        )

    def read_split(
        self, url: StorageUrl, options: Mapping[str, OptionValue], split: ScanSplit
    ) -> Iterator[RecordBatch]:
        if reads_changes(split):
            yield from super().read_split(url, options, split)
            return
        # Not started: the plan's record keeps the snapshot, so that no session, threads or clean-up are needed.
        with closing(_engine(url, options)) as engine:
            engine.upcalls = reading_upcalls()
            yield from read_table_split(engine, split)


def _engine(url: StorageUrl, options: Mapping[str, OptionValue]) -> HBaseEngine:
    if url.user is not None:
        raise ValueError(f"{url} names a user, which HBase's Thrift gateway does not support; remove it")
    prefix = url.path.removeprefix("/") or "structable"
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
    settings = ProtocolSettings(
        lease=float(options["lease"]),
        session_timeout=float(options["session_timeout"]),
        late_writes=float(options["late_writes"]),
        timeout=timeout,
        housekeeping=float(options["housekeeping"]),
        read_back_rows=int(options["read_back_rows"]),
        create=may_create(options),
        read_only=bool(options["read_only"]),
    )
    return HBaseEngine(gateway, layout, settings)


def _addresses(url: StorageUrl) -> list[tuple[str, int]]:
    if not url.hosts:
        raise ValueError(f"{url} names no gateway; write hbase://host:{_PORT}/prefix")
    addresses = url.addresses()
    if not all(host for host, _ in addresses):
        raise ValueError(f"{url} has a gateway without a host; write hbase://host:{_PORT},host:{_PORT}/prefix")
    return [(host, int(port or _PORT)) for host, port in addresses]
