"""What the gateway, or the way to it, reports, and how it is told to a caller of structable.

    ServerError                 the gateway answered that it could not
      TableMissingError
      TableExistsError
      TableDisabledError
      AccessDeniedError
      WrongServiceError         it does not know the call: a gateway of another API
    ConnectionLostError         there is no valid answer: what was sent may have been done, or may still be
    RequestTooLargeError        a request does not fit a frame, and was not sent

None of them leaves the store: `unavailable` makes structable's error of each.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence

from structable.spi import StorageUnavailableError, StructableError

__all__ = [
    "AccessDeniedError",
    "ConnectionLostError",
    "MixedUpError",
    "RequestTooLargeError",
    "ServerError",
    "TableDisabledError",
    "TableExistsError",
    "TableMissingError",
    "WrongServiceError",
    "is_refusal",
    "pause",
    "server_error",
    "unavailable",
]

FRAME_SETTING = "hbase.regionserver.thrift.framed.max_frame_size_in_mb"
_LENGTH = 400


class ServerError(StorageUnavailableError):
    """The gateway answered that it could not do what it was asked.

    Parameters
    ----------
    message : str
        What it says: mostly the stack of an exception in Java.
    kind : str
        "IOError", "IllegalArgument", "AlreadyExists" or "TApplicationException".
    transient : bool
        Whether the same may succeed soon: a region moves, a server starts.

    Attributes
    ----------
    results : sequence of object
        Of a flight: what each call gave, where this error, or another, stands in the place of those that failed.
    """

    def __init__(self, message: str, kind: str, transient: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.transient = transient
        self.results: Sequence[object] = ()

    def __str__(self) -> str:
        return str(unavailable(self, "HBase"))

    @property
    def summary(self) -> str:
        """What it says in one line: the outermost exception and, where there is one, the innermost cause."""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        if not lines:
            return self.kind
        causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
        text = lines[0] if not causes or causes[-1] in lines[0] else f"{lines[0]} (caused by {causes[-1]})"
        return text if len(text) <= _LENGTH else text[:_LENGTH] + "…"


class TableMissingError(ServerError):
    """HBase has no such table."""


class TableExistsError(ServerError):
    """HBase has a table of this name."""


class TableDisabledError(ServerError):
    """The table is disabled, or is not where the call needs it to be."""


class AccessDeniedError(ServerError):
    """The gateway's user lacks a right."""


class WrongServiceError(ServerError):
    """The gateway does not know the call."""


class MixedUpError(Exception):
    """A reply is not the one to the request that was waited for."""


class ConnectionLostError(StorageUnavailableError):
    """There is no valid answer, and the connection is closed: what was sent may have been done, or may still be.

    Parameters
    ----------
    address : tuple
        Host and port.
    reason : str
        What happened, and what may be wrong.
    sent : bool
        Whether anything was sent; if not, nothing was done for certain.

    Attributes
    ----------
    results : sequence of object
        The replies of the flight that did arrive, in the order of its calls; a `ServerError` in the place of a call
        that failed.
    """

    def __init__(self, address: tuple[str, int], reason: str, *, sent: bool) -> None:
        super().__init__(f"{place(address)}: {reason}")
        self.address = address
        self.reason = reason
        self.sent = sent
        self.results: Sequence[object] = ()


class RequestTooLargeError(StorageUnavailableError):
    """A request does not fit a frame, and was not sent.

    Parameters
    ----------
    size, limit : int
        Both in bytes.
    """

    lasting = True

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"a request of {size:,} bytes does not fit a frame of {limit:,} bytes (frame_limit): a gateway with framed "
            f"transport takes as much as its {FRAME_SETTING} says"
        )
        self.size = size
        self.limit = limit
        self.results: Sequence[object] = ()


_KINDS: tuple[tuple[type[ServerError], re.Pattern[str]], ...] = (
    (AccessDeniedError, re.compile(r"AccessDeniedException|AccessControlException")),
    # Of several rows at once, HBase tells the exception's message alone, which is the table's name.
    (
        TableMissingError,
        re.compile(
            r"TableNotFoundException|table does not exist|"
            r"Failed \d+ actions?: (?![\w.]*Exception\b)[\w:.-]+: \d+ times?, servers with issues: null"
        ),
    ),
    (TableExistsError, re.compile(r"TableExistsException|table name already in use")),
    (TableDisabledError, re.compile(r"TableNotEnabledException|TableNotDisabledException|table is (not )?disabled")),
)
STARTING = re.compile(r"PleaseHoldException|ServerNotRunningYetException|MasterNotRunningException|[Ss]afe ?mode")
_TRANSIENT = re.compile(
    r"NotServingRegionException|RegionTooBusyException|RegionOpeningException|RegionMovedException|"
    r"RegionInRecoveryException|RegionServerStoppedException|RegionServerAbortedException|RegionOfflineException|"
    r"NoServerForRegionException|RetriesExhausted|CallTimeoutException|CallQueueTooBigException|"
    r"FailedServerException|ConnectionClosed|ConnectionClosingException|SocketTimeoutException|"
    r"java\.net\.ConnectException|NoRouteToHostException|ServerOverloadedException|MultiActionResultTooLarge|"
    r"OutOfOrderScannerNextException|UnknownScannerException|ScannerTimeoutException|LeaseException|"
    r"Connection reset|Broken pipe|" + STARTING.pattern
)


def is_refusal(error: Exception) -> bool:
    """Tell whether HBase has said for good that it does not do what it was asked, so that nothing was done."""
    return isinstance(error, ServerError) and not error.transient


def pause() -> None:
    """Wait a little before something is tried again that failed; not all clients for as long."""
    time.sleep(random.uniform(0.01, 0.1))


def server_error(kind: str, message: str, *, unknown_call: bool = False, final: bool = False) -> ServerError:
    """Return the error of the class that fits.

    Parameters
    ----------
    kind : str
        What the gateway answered with.
    message : str
        What it says.
    unknown_call : bool
        Whether it does not know the call at all.
    final : bool
        Whether HBase says that the same will fail again.
    """
    if unknown_call:
        return WrongServiceError(message, kind)
    if kind == "AlreadyExists":
        return TableExistsError(message, kind)
    for error, pattern in _KINDS:
        if pattern.search(message):
            return error(message, kind)
    return ServerError(message, kind, transient=not final and _TRANSIENT.search(message) is not None)


def place(address: tuple[str, int]) -> str:
    """Return an address as URLs have it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unavailable(error: Exception, what: str) -> StructableError:
    """Return structable's error, for failures after which nothing was changed; `what` says what was being done."""
    if isinstance(error, ConnectionLostError):
        return StorageUnavailableError(f"{what}: the HBase gateway {error}")
    if isinstance(error, RequestTooLargeError):
        too_large = StorageUnavailableError(f"{what}: {error}; raise both")
        too_large.lasting = True
        return too_large
    if isinstance(error, WrongServiceError):
        return StorageUnavailableError(
            f"{what}: the gateway does not know the call ({error.summary}): it serves another API, maybe Thrift2; "
            "structable needs HBase's Thrift1 gateway, which `hbase thrift start` runs"
        )
    if isinstance(error, AccessDeniedError):
        denied = StorageUnavailableError(
            f"{what}: the gateway's user lacks a right in HBase: {error.summary}; it needs read, write and create"
        )
        denied.lasting = True
        return denied
    if isinstance(error, TableDisabledError):
        return StorageUnavailableError(f"{what}: the table is disabled in HBase: {error.summary}; enable it")
    if isinstance(error, ServerError):
        if STARTING.search(error.message):
            return StorageUnavailableError(f"{what}: HBase is starting or in safe mode: {error.summary}; try later")
        return StorageUnavailableError(f"{what}: HBase answered: {error.summary}")
    return error if isinstance(error, StructableError) else StorageUnavailableError(f"{what}: {error!r}")


def closed_reason(transport: str, protocol: str, *, framed_size: int = 0) -> str:
    """Return what may be wrong where a gateway closes a connection in place of its first answer."""
    other = "framed" if transport == "buffered" else "buffered"
    code = "compact" if protocol == "binary" else "binary"
    return (
        f"closed the connection in place of its first answer, asked with transport={transport} and "
        f"protocol={protocol}; if it is a Thrift gateway, try transport={other} or protocol={code}; one that needs "
        "TLS or Kerberos is not supported"
    )


def garbage_reason(first: bytes, transport: str, protocol: str) -> str:
    """Return what may be wrong where a first answer is not what was expected.

    Parameters
    ----------
    first : bytes
        The first bytes that came over the connection.
    transport, protocol : str
        What was spoken.
    """
    if first[:1] in b"\x03\x04" and first and (b"status" in first or b"nvalid" in first or b"SASL" in first):
        return "it asks for SASL: a gateway with Kerberos is not supported"
    if first.startswith(b"HTTP/"):
        return (
            "it speaks HTTP: it is no Thrift gateway, or one over HTTP (hbase.regionserver.thrift.http), not supported"
        )
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it speaks TLS, which is not supported"
    settings = f"with transport={transport} and protocol={protocol}"
    for name, value, looks in _LOOKS:
        if looks(first) and value not in (transport, protocol):
            return f"its answer is not what was expected {settings}: try {name}={value}"
    shown = repr(first[:40])[1:]
    return f"it is no Thrift gateway, or one of another transport or protocol: {settings} it answered {shown}"


def _is_framed(first: bytes) -> bool:
    return first[:1] == b"\0" and (first[4:6] == b"\x80\x01" or first[4:5] == b"\x82")


_LOOKS = (
    ("transport", "framed", _is_framed),
    ("transport", "buffered", lambda first: first[:2] == b"\x80\x01" or first[:1] == b"\x82"),
    ("protocol", "compact", lambda first: first[:1] == b"\x82" or first[4:5] == b"\x82"),
    ("protocol", "binary", lambda first: first[:2] == b"\x80\x01" or first[4:6] == b"\x80\x01"),
)


def silent_reason(transport: str, protocol: str, timeout: float) -> str:
    """Return what may be wrong where a first answer never comes."""
    other = "framed" if transport == "buffered" else "buffered"
    return (
        f"gave no answer within {timeout:g} s, asked with transport={transport} and protocol={protocol}; HBase behind "
        f"it may be away or starting; if it has never answered, it may be no Thrift gateway, or need transport={other}"
    )
