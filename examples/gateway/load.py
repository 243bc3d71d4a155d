"""A load generator: concurrent clients of the gateway, over connections that stay open, and what they see.

`python -m examples.gateway.load http://127.0.0.1:8080` works on the table of profiles.json.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import quantiles
from time import perf_counter

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_HEAD = "clients requests/s  p50 ms  p95 ms  p99 ms  batch   hits failed"


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients do.

    Parameters
    ----------
    url : str
        The gateway.
    seconds : float
        How long.
    rows : int
        The number of rows that they use; the row of rank n is n ** skew times as rare as the first.
    reads : float
        The part of the requests that read a row; the others write one.
    verb : str
        How they write: PUT, POST (upsert) or PATCH (update, with a default).
    skew : float
        0: all rows are used alike.
    """

    url: str
    seconds: float = 3.0
    rows: int = 1_000
    reads: float = 0.8
    verb: str = "PUT"
    skew: float = 1.0


@dataclass(slots=True)
class Round:
    """What a number of clients saw.

    Attributes
    ----------
    seconds : float
        From the first request to the end of the last one.
    latencies : list of float
        Seconds of each request that was answered.
    statuses : Counter of int
        The answers by their status; 0 counts requests without one.
    batch : float
        The mean number of calls in the batches that the gateway sent to the store during the round.
    hits : float
        The part of the reads that the gateway's cache answered.
    """

    clients: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    batch: float = float("nan")
    hits: float = float("nan")

    @property
    def failed(self) -> int:
        """The number of requests that the gateway did not carry out; an absent row is an answer."""
        return sum(count for status, count in self.statuses.items() if status not in (200, 204, 404))

    def line(self) -> str:
        """Return the round as a line of the report."""
        parts = quantiles(self.latencies, n=100) if len(self.latencies) > 1 else [float("nan")] * 99
        p50, p95, p99 = (f"{1000 * parts[rank - 1]:7.2f}" for rank in (50, 95, 99))
        throughput = len(self.latencies) / self.seconds
        return (
            f"{self.clients:7} {throughput:10.0f} {p50} {p95} {p99} {self.batch:6.1f} {self.hits:6.1%} {self.failed:6}"
        )


async def measure(load: Load, clients: int) -> Round:
    """Run the given number of clients at once and return what they saw."""
    result = Round(clients)
    ranks = range(load.rows)
    weights = list(accumulate((rank + 1) ** -load.skew for rank in ranks))
    connector = aiohttp.TCPConnector(limit=clients)
    async with aiohttp.ClientSession(load.url, connector=connector) as session:
        before = await _metrics(session)
        begun = perf_counter()

        async def client(number: int) -> None:
            choose = random.Random(number)
            while perf_counter() < begun + load.seconds:
                (rank,) = choose.choices(ranks, cum_weights=weights)
                sent = perf_counter()
                try:
                    status = await _request(session, load, choose, f"user-{rank}")
                except aiohttp.ClientError:
                    result.statuses[0] += 1
                    continue
                result.latencies.append(perf_counter() - sent)
                result.statuses[status] += 1

        await asyncio.gather(*(client(number) for number in range(clients)))
        result.seconds = perf_counter() - begun
        counted = await _metrics(session)
        counted.subtract(before)
    if batches := counted["structable_table_batch_size_count"]:
        result.batch = counted["structable_table_batch_size_sum"] / batches
    hits, misses = counted["structable_table_cache_hits_total"], counted["structable_table_cache_misses_total"]
    if hits + misses:
        result.hits = hits / (hits + misses)
    return result


async def _request(session: aiohttp.ClientSession, load: Load, choose: random.Random, key: str) -> int:
    if choose.random() < load.reads:
        async with session.get(f"/rows/{key}") as answer:
            await answer.read()
            return answer.status
    row = {"name": f"name of {key}", "visits": choose.randrange(1_000)}
    parameters = {"default": "{}"} if load.verb == "PATCH" else {}
    async with session.request(load.verb, f"/rows/{key}", json=row, params=parameters) as answer:
        return answer.status


async def _metrics(session: aiohttp.ClientSession) -> Counter[str]:
    """Return the samples of the gateway's metrics, summed over their labels."""
    async with session.get("/metrics") as answer:
        answer.raise_for_status()
        text = await answer.text()
    sums: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] += sample.value  # type: ignore[assignment]  # a Counter of floats
    return sums


async def _run(load: Load, concurrencies: Sequence[int]) -> int:
    print(_HEAD)
    failed = 0
    for clients in concurrencies:
        result = await measure(load, clients)
        print(result.line(), flush=True)
        failed += result.failed
    return failed


def main() -> None:
    """Run the rounds of the command line; exit with 1 if a request failed."""
    parser = argparse.ArgumentParser(prog="load", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("url", help="the gateway, whose table is that of profiles.json")
    parser.add_argument("--clients", default="1,4,16,64,256", help="the numbers of concurrent clients")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--rows", type=int, default=1_000, help="rows that are used")
    parser.add_argument("--reads", type=float, default=0.8, help="part of the requests that read")
    parser.add_argument("--verb", choices=["PUT", "POST", "PATCH"], default="PUT", help="how rows are written")
    parser.add_argument("--skew", type=float, default=1.0, help="0: all rows are used alike")
    given = parser.parse_args()
    load = Load(given.url, given.seconds, given.rows, given.reads, given.verb, given.skew)
    try:
        failed = asyncio.run(_run(load, [int(number) for number in given.clients.split(",")]))
    except aiohttp.ClientError as error:
        sys.exit(f"load: {given.url}: {error}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
