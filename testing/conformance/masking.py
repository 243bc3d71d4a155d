"""`Masking`: keeps the secrets of a URL out of pytest's output, wherever a failing test or a driver repeats them."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

import pytest

from structable.spi import StorageUrl, mask_url

_MASK = "***"
_DISTINCT = 5  # characters: shorter secrets occur in too many words
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")


def secrets_of(url: str) -> tuple[str, ...]:
    """Return the secrets that `mask_url` hides: as written, decoded, and in the `repr` of either; longest first.

    A secret that is short, a word or a part of the masked URL is omitted: masking every `a` or `postgres` would garble
    the text and reveal the secret. In the URL itself `mask_url` still hides it.
    """
    credentials = url.partition("://")[2].rpartition("@")[0]
    found = {credentials.partition(":")[2], StorageUrl.parse(url).password or ""}
    for part in url.partition("?")[2].split("&"):
        if mask_url(f"x://?{part}") != f"x://?{part}":
            found |= {part.partition("=")[2], *(value for _, value in parse_qsl(part))}
    found |= {unquote(secret) for secret in found}
    found |= {repr(secret)[1:-1] for secret in found}
    shown = mask_url(url)
    distinct = {s for s in found if len(s) >= _DISTINCT and not s.isalpha() and s not in shown}
    return tuple(sorted(distinct, key=len, reverse=True))


class Masking:
    """A pytest plugin that masks secrets, longest first, in reports before any other plugin sees them."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return _URL.sub(lambda url: mask_url(url[0]), text)

    def _mask(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        report.sections = [(self._masked(name), self._masked(content)) for name, content in report.sections]
        shown = report.longrepr
        if isinstance(shown, tuple):  # of a skipped test: path, line and reason
            path, line, reason = shown
            report.longrepr = (self._masked(path), line, self._masked(reason))
        elif shown is not None and (text := str(shown)) != (masked := self._masked(text)):
            report.longrepr = masked

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Mask the report of a test, of this process or of a worker."""
        self._mask(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Mask errors before the tests."""
        self._mask(report)
