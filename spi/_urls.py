"""Storage URLs: parsing, and display with the password masked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import parse_qsl, quote, unquote, urlencode

_MASK = "***"
_HOSTS = re.compile(r"(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?(,(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?)*\Z")
_SECRET_WORDS = ("password", "passwd", "secret", "token", "passphrase")


@dataclass(frozen=True, slots=True)
class StorageUrl:
    """A storage URL in its parts; `str` and `repr` never show the password.

    Parameters
    ----------
    scheme : str
        Names the backend, in lower case.
    user, password : str or None
        Percent-decoded.
    hosts : str
        The text between `//` (or `@`) and the path, verbatim: `host:port[,host:port]`, or a memory store's name.
    path : str
        Percent-decoded, with its leading slash, or empty.
    parameters : mapping of str to str
        The query, percent-decoded.
    """

    scheme: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    hosts: str = ""
    path: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)

    def addresses(self) -> list[tuple[str, str]]:
        """Return the hosts, without the brackets of IPv6, each with its port as written, or "" if it has none.

        Raises
        ------
        ValueError
            If a port is not a number from 1 to 65535.
        """
        found = []
        for address in self.hosts.split(",") if self.hosts else ():
            host, colon, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
            if not colon:
                host, port = address, ""
            if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise ValueError(f"{self} has the port {port!r}; a port is a number from 1 to 65535")
            found.append((host.removeprefix("[").removesuffix("]"), port))
        return found

    @classmethod
    def parse(cls, url: str) -> StorageUrl:
        """Return the parts of a URL.

        Raises
        ------
        ValueError
            If it is not a URL, has a fragment or credentials that are not percent-encoded, or names a parameter twice.
            The message masks the password.
        """
        scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
        if not separator or not scheme.replace("+", "").replace("-", "").isalnum():
            raise ValueError(
                f"{mask_url(url)!r} is not a storage URL, which looks like scheme://host/path?option=value"
            )
        if "#" in rest:
            raise ValueError(f"{mask_url(url)!r}: a number sign is written %23")
        rest, _, query = rest.partition("?")
        if _hides_password(rest, query):
            raise ValueError(f"{mask_url(url)!r}: a question mark in a user name or password is written %3F")
        # The last @ of the authority: an unescaped one in a password must not become part of the host.
        authority, slash, path = rest.partition("/")
        if "@" in path and "@" not in authority and ":" in authority:
            raise ValueError(f"{mask_url(url)!r}: a slash in a user name or password is written %2F")
        credentials, at, hosts = authority.rpartition("@")
        user, colon, password = credentials.partition(":")
        parameters: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in parameters:
                raise ValueError(f"{mask_url(url)!r} gives the parameter {name!r} twice")
            parameters[name] = value
        return cls(
            scheme.lower(),
            unquote(user) if at else None,
            unquote(password) if colon else None,
            hosts,
            unquote(slash + path),
            MappingProxyType(parameters),
        )

    def __reduce__(self) -> tuple[object, ...]:
        return StorageUrl, (self.scheme, self.user, self.password, self.hosts, self.path, dict(self.parameters))

    def __str__(self) -> str:
        credentials = ""
        if self.user is not None:
            credentials = quote(self.user, safe="") + (f":{_MASK}" if self.password is not None else "") + "@"
        shown = {name: _MASK if is_secret(name) else value for name, value in self.parameters.items()}
        query = f"?{urlencode(shown, safe='*/:,')}" if shown else ""
        return f"{self.scheme}://{credentials}{self.hosts}{quote(self.path)}{query}"


def is_secret(parameter: str) -> bool:
    """Return whether a parameter or connection option of this name is a password or another secret."""
    return any(word in unquote(parameter).lower() for word in _SECRET_WORDS)


def _hides_password(rest: str, query: str) -> bool:
    """Return whether the question mark before `query` belongs to a password, as no list of hosts precedes it."""
    authority = rest.partition("/")[0]
    if ":" not in authority or "@" in rest or "@" not in query:
        return False
    return not _HOSTS.match(authority) or "=" not in query.partition("@")[0]


def without_secrets(url: str) -> str:
    """Return a URL without its password and secret parameters, which the store's driver then looks for elsewhere.

    Raises
    ------
    ValueError
        As `StorageUrl.parse` does.
    """
    parsed = StorageUrl.parse(url)
    parameters = {name: value for name, value in parsed.parameters.items() if not is_secret(name)}
    return str(replace(parsed, password=None, parameters=parameters))


def mask_url(url: object) -> str:
    """Return a URL with everything masked that looks like a password or another secret, even if it is malformed."""
    url = url if isinstance(url, str) else repr(url)
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    rest, question, query = rest.partition("?")
    if _hides_password(rest, query):
        rest, question, query = f"{rest}?{query}", "", ""
    credentials, at, hosts = rest.rpartition("@")
    if at:
        user, colon, _ = credentials.partition(":")
        credentials = user + (f":{_MASK}" if colon else "")
    shown = "&".join(
        f"{part.partition('=')[0]}={_MASK}" if is_secret(part.partition("=")[0]) else part for part in query.split("&")
    )
    return f"{scheme}{separator}{credentials}{at}{hosts}{question}{shown}"
