"""A checker of histories: what was published, and what readers of the topic saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from structable.datasets.system.messages import parse_id

from .publishing import Publish

Seen = tuple[str, bytes]
"""The id and the body of a message."""


def problems(published: Sequence[Publish], readers: Mapping[str, Sequence[Seen]]) -> list[str]:
    """Return how a history breaks a rule; the reader "whole" has read everything in the end.

    A later line about a transaction replaces an earlier one.
    """
    by_transaction = {str(one["transaction"]): one for one in published}
    whole = readers["whole"]
    return [
        *_each_once(by_transaction, whole),
        *_in_order(whole),
        *_in_real_time(by_transaction, whole),
        *(f"{name} saw another order" for name, seen in readers.items() if list(seen) != list(whole)[: len(seen)]),
    ]


def _each_once(published: Mapping[str, Publish], whole: Sequence[Seen]) -> list[str]:
    """Check that a message is seen, once, if and only if its transaction committed."""
    seen: dict[str, list[str]] = {}
    for _, body in whole:
        transaction, _, index = body.decode().rpartition("/")
        seen.setdefault(transaction, []).append(index)
    found = [f"{transaction} published nothing" for transaction in seen.keys() - published.keys()]
    for transaction, one in published.items():
        wanted = [str(index) for index in range(int(str(one["messages"])))]
        outcomes: dict[str, list[list[str]]] = {"committed": [wanted], "rolled back": [[]], "unknown": [wanted, []]}
        allowed = outcomes[str(one["outcome"])]
        if seen.get(transaction, []) not in allowed:
            found.append(f"{transaction}, {one['outcome']}: messages {seen.get(transaction)} of {len(wanted)}")
    return found


def _in_order(whole: Sequence[Seen]) -> list[str]:
    """Check that ids grow, that a commit has one version, and its messages the numbers of the calls."""
    ids = [parse_id(id) for id, _ in whole]
    found = [f"{after} follows {before}" for before, after in pairwise(ids) if not before < after]
    versions: dict[int, set[str]] = {}
    for (version, number), (_, body) in zip(ids, whole, strict=True):
        transaction, _, index = body.decode().rpartition("/")
        versions.setdefault(version, set()).add(transaction)
        if int(index) != number:
            found.append(f"{body.decode()} has the number {number}")
    return found + [f"version {version} is of {names}" for version, names in versions.items() if len(names) > 1]


def _in_real_time(published: Mapping[str, Publish], whole: Sequence[Seen]) -> list[str]:
    """Check that a transaction that had committed before another one began comes before it."""
    found, latest, of = [], float("-inf"), ""
    for transaction in dict.fromkeys(body.decode().rpartition("/")[0] for _, body in whole):
        one = published.get(transaction, {})
        if float(str(one.get("ended", "inf"))) < latest:
            found.append(f"{transaction} had ended when {of} began, and comes after it")
        if float(str(one.get("began", "-inf"))) > latest:
            latest, of = float(str(one["began"])), transaction
    return found
