"""The command line of the gateway."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from structable.access import Batching, Cache

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Options:
    """The gateway's settings, as `--help` explains them."""

    url: str
    specification: Path | None
    table: str | None
    host: str
    port: int
    batching: Batching | None
    cache: Cache | None
    threads: int
    max_body: int
    timeout: float
    probe_timeout: float
    grace: float


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Return the settings of a command line, by default that of the process; exit with a message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="gateway", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--url", default="memory://", help="the store")
    table = parser.add_mutually_exclusive_group(required=True)
    table.add_argument("--table", help="a table that exists")
    table.add_argument(
        "--specification", type=Path, metavar="FILE", help="a table's JSON document; made, or changed to it"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=_at_least(int, 0), default=8080, help="0: a free one, which is printed")
    batches = parser.add_argument_group("batching")
    batches.add_argument(
        "--batching", choices=["complete", "compact", "none"], default="complete", help="compact takes no PATCH"
    )
    batches.add_argument(
        "--batch-size", type=_at_least(int, 1), default=100, help="a batch is sent with this many calls"
    )
    batches.add_argument(
        "--batch-delay", type=_at_least(float, 0), default=0.002, help="or this many seconds after its first call"
    )
    batches.add_argument("--batches", type=_at_least(int, 1), default=4, help="batches under way at once")
    rows = parser.add_argument_group("cache")
    rows.add_argument("--cache-rows", type=_at_least(int, 0), default=10_000, help="0: no cache")
    rows.add_argument("--cache-ttl", type=_at_least(float, 0), default=1.0, help="seconds that a row may be kept")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--threads", type=_at_least(int, 1), default=16, help="threads that call the store")
    limits.add_argument("--max-body", type=_at_least(int, 1), default=16 << 20, help="bytes of a request's body")
    limits.add_argument("--timeout", type=_at_least(float, 0.001), default=10.0, help="seconds of a call of the store")
    limits.add_argument(
        "--probe-timeout", type=_at_least(float, 0.001), default=2.0, help="seconds of a readiness check"
    )
    limits.add_argument("--grace", type=_at_least(float, 0), default=30.0, help="seconds to finish requests at the end")
    given = parser.parse_args(arguments)
    kind = given.batching
    try:
        batching = Batching(
            kind="complete" if kind == "none" else kind,
            max_size=given.batch_size,
            max_delay=given.batch_delay,
            max_in_flight=given.batches,
        )
        cache = Cache(max_rows=given.cache_rows, ttl=given.cache_ttl) if given.cache_rows else None
    except ValueError as error:
        parser.error(str(error))
    return Options(
        url=given.url,
        specification=given.specification,
        table=given.table,
        host=given.host,
        port=given.port,
        batching=None if kind == "none" else batching,
        cache=cache,
        threads=given.threads,
        max_body=given.max_body,
        timeout=given.timeout,
        probe_timeout=given.probe_timeout,
        grace=given.grace,
    )


def _at_least(kind: Callable[[str], Number], least: Number) -> Callable[[str], Number]:
    def parse(text: str) -> Number:
        number = kind(text)
        if not number >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return number

    parse.__name__ = kind.__name__  # argparse names it in its message
    return parse
