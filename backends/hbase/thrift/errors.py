"""Errors of the gateway and of the connection to it.

    ServerError                 the gateway answered with an error
      TableMissingError
      TableExistsError
      TableDisabledError
      AccessDeniedError
      WrongServiceError         the gateway does not know the call: it serves another API
    ConnectionLostError         no valid reply: the request may have been executed, or still be
    RequestTooLargeError        a request exceeds the frame limit and was not sent

All are `StorageUnavailableError`; `unavailable` gives the message that callers of structable see. If settings do not
fit a gateway, `closed_reason`, `garbage_reason` and `silent_reason` infer from its answer which ones to try.
"""

from __future__ import annotations

import re

from structable.spi import StorageUnavailableError, StructableError

FRAME_SETTING = "hbase.regionserver.thrift.framed.max_frame_size_in_mb"
_LENGTH = 400


class ServerError(StorageUnavailableError):
    """The gateway answered with an error.

    The message is usually a Java stack trace, `kind` "IOError", "IllegalArgument", "AlreadyExists" or
    "TApplicationException". The same call may succeed soon after a `transient` error: a region is moving, a server is
    starting.
    """

    def __init__(self, message: str, kind: str, transient: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.transient = transient

    def __str__(self) -> str:
        return str(unavailable(self, "HBase"))

    @property
    def summary(self) -> str:
        """The message in one line: the outermost exception and its innermost cause, if any."""
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
    """The table is disabled, or enabled where the call requires it disabled."""


class AccessDeniedError(ServerError):
    """The gateway's user lacks a permission."""


class WrongServiceError(ServerError):
    """The gateway does not know the call."""


class MixedUpError(Exception):
    """A reply does not belong to the request."""


class ConnectionLostError(StorageUnavailableError):
    """No valid reply, and the connection is closed: the request may have been executed, or still be.

    Nothing was executed if nothing was `sent`.
    """

    def __init__(self, address: tuple[str, int], reason: str, *, sent: bool) -> None:
        super().__init__(f"{format_address(address)}: {reason}")
        self.address = address
        self.reason = reason
        self.sent = sent


class RequestTooLargeError(StorageUnavailableError):
    """A request exceeds the frame limit, and was not sent; both sizes are in bytes."""

    lasting = True

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"a request of {size:,} bytes exceeds the frame limit of {limit:,} bytes (frame_limit); with framed "
            f"transport the gateway's own limit is {FRAME_SETTING}"
        )


_KINDS: tuple[tuple[type[ServerError], re.Pattern[str]], ...] = (
    (AccessDeniedError, re.compile(r"AccessDeniedException|AccessControlException")),
    # For a batch of rows, HBase reports only the exception's message, which is the table's name.
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
    """Return whether HBase refused the call for good, so that nothing was executed."""
    return isinstance(error, ServerError) and not error.transient


def server_error(kind: str, message: str, *, unknown_call: bool = False, final: bool = False) -> ServerError:
    """Return the error of the class that fits the message; `kind` is the Thrift exception.

    With `final`, HBase has reported that a retry cannot succeed.
    """
    if unknown_call:
        return WrongServiceError(message, kind)
    if kind == "AlreadyExists":
        return TableExistsError(message, kind)
    for error, pattern in _KINDS:
        if pattern.search(message):
            return error(message, kind)
    return ServerError(message, kind, transient=not final and _TRANSIENT.search(message) is not None)


def format_address(address: tuple[str, int]) -> str:
    """Return an address in its URL form."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unavailable(error: Exception, what: str) -> StructableError:
    """Return the error that callers see; `what` names the operation that failed."""
    if isinstance(error, ConnectionLostError):
        return StorageUnavailableError(f"{what}: the HBase gateway {error}")
    if isinstance(error, RequestTooLargeError):
        too_large = StorageUnavailableError(f"{what}: {error}; raise both settings")
        too_large.lasting = True
        return too_large
    if isinstance(error, WrongServiceError):
        return StorageUnavailableError(
            f"{what}: the gateway does not know the call ({error.summary}): it serves another API, perhaps Thrift2; "
            "start HBase's Thrift1 gateway with `hbase thrift start`"
        )
    if isinstance(error, AccessDeniedError):
        denied = StorageUnavailableError(
            f"{what}: the gateway's user lacks a permission in HBase: {error.summary}; grant it read, write and "
            "create (RWC)"
        )
        denied.lasting = True
        return denied
    if isinstance(error, TableDisabledError):
        return StorageUnavailableError(f"{what}: the table is disabled in HBase: {error.summary}; enable it")
    if isinstance(error, ServerError):
        if STARTING.search(error.message):
            return StorageUnavailableError(f"{what}: HBase is starting or in safe mode: {error.summary}; retry later")
        return StorageUnavailableError(f"{what}: HBase answered: {error.summary}")
    return error if isinstance(error, StructableError) else StorageUnavailableError(f"{what}: {error!r}")


def closed_reason(transport: str, protocol: str) -> str:
    """Return the likely reasons why a gateway closed a connection instead of answering."""
    other = "framed" if transport == "buffered" else "buffered"
    code = "compact" if protocol == "binary" else "binary"
    return (
        f"closed the connection instead of answering (transport={transport}, protocol={protocol}); if it is a Thrift "
        f"gateway, try transport={other} or protocol={code}; TLS and Kerberos are not supported"
    )


def garbage_reason(first: bytes, transport: str, protocol: str) -> str:
    """Return the likely reason why the first bytes of an answer are not a reply."""
    if first[:1] in (b"\x03", b"\x04") and (b"status" in first or b"nvalid" in first or b"SASL" in first):
        return "it requires SASL; Kerberos is not supported"
    if first.startswith(b"HTTP/"):
        return "it speaks HTTP: not a Thrift gateway, or one over HTTP (hbase.regionserver.thrift.http), not supported"
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it speaks TLS, which is not supported"
    settings = f"with transport={transport} and protocol={protocol}"
    for name, value, looks in _LOOKS:
        if looks(first) and value not in (transport, protocol):
            return f"its answer cannot be read {settings}; try {name}={value}"
    shown = repr(first[:40])[1:]
    return f"it is not a Thrift gateway, or uses another transport or protocol: {settings} it answered {shown}"


def _is_framed(first: bytes) -> bool:
    return first[:1] == b"\0" and (first[4:6] == b"\x80\x01" or first[4:5] == b"\x82")


_LOOKS = (
    ("transport", "framed", _is_framed),
    ("transport", "buffered", lambda first: first[:2] == b"\x80\x01" or first[:1] == b"\x82"),
    ("protocol", "compact", lambda first: first[:1] == b"\x82" or first[4:5] == b"\x82"),
    ("protocol", "binary", lambda first: first[:2] == b"\x80\x01" or first[4:6] == b"\x80\x01"),
)


def silent_reason(transport: str, protocol: str, timeout: float) -> str:
    """Return the likely reasons why a gateway never answered."""
    other = "framed" if transport == "buffered" else "buffered"
    return (
        f"gave no answer within {timeout:g} s (transport={transport}, protocol={protocol}); HBase may be down or "
        f"starting; if it never answered before, it may not be a Thrift gateway, or need transport={other}"
    )
