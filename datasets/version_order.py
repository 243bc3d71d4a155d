"""`version_order`: texts that sort as versions do."""

from __future__ import annotations

import re

from structable.spi.showing import shown

__all__ = ["version_order"]

MAX_VERSION = 128
MAX_DIGITS = 35

_VERSION = re.compile(r"[0-9A-Za-z_+]+(?:\.[0-9A-Za-z_+]+)*(?:-[0-9A-Za-z_+-]+(?:\.[0-9A-Za-z_+-]+)*)?\Z")
_LENGTHS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Behind a part: a suffix comes before the end, and the end before a further part.
_SUFFIX, _END, _PART = "a", "b", "c"


def version_order(version: str) -> str:
    """Return a text that is compared, by code points or by bytes, as the versions are; different ones never collide.

    Parts between dots are compared one after the other: numbers by value, words by their letters, numbers before
    words; where one version ends, the longer one is greater. A suffix behind a hyphen makes a version less than the
    one without: 1.9.0-SNAPSHOT < 1.9.0-rc.2 < 1.9.0-rc.10 < 1.9.0 < 1.10.0.

    Raises
    ------
    ValueError
        If the version is not 1 to 128 characters of letters, digits, `_`, `+`, dots and hyphens, each part nonempty, or
        a number in it has over 35 digits.
    """
    if not isinstance(version, str) or len(version) > MAX_VERSION or not _VERSION.match(version):
        raise ValueError(
            f"version {shown(version)}: parts of letters, digits, _ and + between dots, and a suffix behind a hyphen, "
            f"1 to {MAX_VERSION} characters"
        )
    release, hyphen, suffix = version.partition("-")
    text = _parts(release)
    return text + (_SUFFIX + _parts(suffix) + _END if hyphen else _END)


def _parts(text: str) -> str:
    return _PART.join(map(_part, text.split(".")))


def _part(part: str) -> str:
    if not part.isdigit():
        return f"w{part}!"
    digits = part.lstrip("0") or "0"
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"version number {shown(part)} has over {MAX_DIGITS} digits")
    # Leading zeros tell apart what is equal as a number: 1.09 < 1.9.
    return _LENGTHS[len(digits)] + digits + "!" * (len(part) - len(digits))
