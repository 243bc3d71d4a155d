"""References to programs, runs and datasets, checked names, run ids, and texts that sort as versions do."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Iterable
from typing import NamedTuple

from structable.spi.authors import is_aware, own_class, plain_datetime, shown

MAX_NAME_BYTES = 255
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_EPOCH = own_class(dt.datetime)(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
_LOWER = (1 << 62) - 1

MAX_VERSION = 128
MAX_DIGITS = 35

_VERSION = re.compile(r"[0-9A-Za-z_+]+(?:\.[0-9A-Za-z_+]+)*(?:-[0-9A-Za-z_+-]+(?:\.[0-9A-Za-z_+-]+)*)?\Z")
_LENGTHS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# The marks after a part sort a suffix before the end, and the end before a further part.
_SUFFIX, _END, _PART = "a", "b", "c"


class ProgramRef(NamedTuple):
    """A program of an application; a tuple in key order."""

    namespace: str
    application: str
    program_type: str
    program: str

    def run(self, run: str) -> RunRef:
        """Return the reference to a run of the program."""
        return RunRef(*self, run)


class RunRef(NamedTuple):
    """A run of a program; a tuple in key order."""

    namespace: str
    application: str
    program_type: str
    program: str
    run: str

    @property
    def ref(self) -> ProgramRef:
        """The program."""
        return ProgramRef(*self[:4])


class DatasetRef(NamedTuple):
    """A dataset of a namespace; a tuple in key order."""

    namespace: str
    dataset: str


def check_name(name: str, what: str = "name") -> str:
    """Return the name, which has 1 to 255 bytes of UTF-8.

    Raises
    ------
    ValueError
        If it has another length, or holds NUL characters or lone surrogates.
    """
    if not isinstance(name, str):
        raise ValueError(f"{what} is {shown(name)}; it must be a str")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {shown(name)} holds a lone surrogate, which UTF-8 cannot encode") from None
    if not 1 <= size <= MAX_NAME_BYTES or "\0" in name:
        raise ValueError(f"{what} {shown(name)} has {size} bytes; it must have 1 to {MAX_NAME_BYTES}, and no NUL")
    return name


def check_names(**names: str) -> None:
    """Check names by `check_name`; the keywords name them in errors."""
    for what, name in names.items():
        check_name(name, what)


def check_texts(texts: Iterable[str], what: str) -> list[str]:
    """Return the texts as a list.

    Raises
    ------
    ValueError
        If they are not a list of texts. A single text is not one: its characters would be taken.
    """
    if not isinstance(texts, str) and isinstance(texts, Iterable):
        found = list(texts)
        if all(isinstance(one, str) for one in found):
            return found
    raise ValueError(f"the {what} are {shown(texts)}; they must be a list of texts")


def joined(*names: str) -> str:
    """Return names as one text with slashes between them.

    A slash in a name becomes `%2F`, a percent sign `%25`, so that the texts of different names differ.
    """
    return "/".join([name.replace("%", "%25").replace("/", "%2F") for name in names])


def check_namespace_name(name: str) -> str:
    """Return the name of a namespace, `[a-z0-9][a-z0-9_-]{0,62}`.

    Raises
    ------
    ValueError
        If it is another text.
    """
    if not isinstance(name, str) or not _NAMESPACE.match(name):
        raise ValueError(f"namespace {shown(name)}: allowed are 1 to 63 of a-z, 0-9, _, -, not - or _ first")
    return name


def new_run_id(at: dt.datetime | None = None) -> str:
    """Return a new UUIDv7 as text; texts are ordered by their times, to the millisecond.

    Parameters
    ----------
    at : aware datetime, optional
        The time; now, if not given.

    Raises
    ------
    ValueError
        If the time is naive, or before 1970.
    """
    millis = _millis(dt.datetime.now(dt.UTC) if at is None else at)
    chance = secrets.randbits(74)  # one system call for both random parts
    return _text((millis << 80) | (0x7 << 76) | (chance >> 62 << 64) | (0b10 << 62) | (chance & _LOWER))


def run_id_bound(at: dt.datetime) -> str:
    """Return the text before every run id of this millisecond or later, and behind every earlier one."""
    return _text(_millis(at) << 80)


def run_time(run: str) -> dt.datetime:
    """Return the time of a run id, in UTC and milliseconds."""
    return _EPOCH + int(check_run_id(run).replace("-", "")[:12], 16) * _MILLISECOND


def check_run_id(run: str) -> str:
    """Return the run id, a UUIDv7 in lower case with hyphens.

    Raises
    ------
    ValueError
        If it is another text.
    """
    if not isinstance(run, str) or not _RUN_ID.match(run):
        raise ValueError(f"run {shown(run)} is not a UUIDv7 in lower case; new_run_id() makes one")
    return run


def check_run_ref(namespace: str, application: str, program_type: str, program: str, run: str) -> RunRef:
    """Return the reference to a run of checked names.

    Raises
    ------
    ValueError
        If the run id is not a UUIDv7, or another name has not 1 to 255 bytes.
    """
    check_names(namespace=namespace, application=application, program_type=program_type, program=program)
    return RunRef(namespace, application, program_type, program, check_run_id(run))


def _millis(at: dt.datetime) -> int:
    if not is_aware(at):
        raise ValueError(f"the time is {shown(at)}; it must be an aware datetime")
    millis = (plain_datetime(at) - _EPOCH) // _MILLISECOND
    if not 0 <= millis < 1 << 48:
        raise ValueError(f"the time is {at}; it must be in or after 1970")
    return millis


def _text(number: int) -> str:
    text = f"{number:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


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
    # Leading zeros order versions that are equal as numbers: 1.09 < 1.9.
    return _LENGTHS[len(digits)] + digits + "!" * (len(part) - len(digits))
