"""Advice on how to connect, when the first bytes of a gateway, or their absence, show that the settings do not fit."""

from __future__ import annotations

__all__ = ["closed_reason", "garbage_reason", "silent_reason"]


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
            return f"its answer cannot be read {settings}: try {name}={value}"
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
