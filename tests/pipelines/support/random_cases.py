"""Random pipelines, in the lines of `declared`."""

from __future__ import annotations

import random

__all__ = ["random_case"]


def random_case(chance: random.Random) -> list[list[str]]:
    """Return a case of at most 12 streams, tables apart."""
    case: list[list[str]] = []
    streams: list[str] = []
    tables: list[str] = []
    for place in range(chance.randint(2, 4)):
        count = [str(chance.choice((4, 8)))] if chance.random() < 0.9 else []
        case.append([f"S{place}", "source", *count])
        streams.append(f"S{place}")
    for place in range(chance.randint(0, 2)):
        side = [chance.choice(streams)] if chance.random() < 0.3 else []
        case.append([f"T{place}", chance.choice(("table", "table", "apart", "broadcast")), *side])
        tables.append(f"T{place}")
    for place in range(len(streams), 12):
        verb = chance.choice(("by", "by", "join", "merge", *(("send", "update", "lookup", "lookup") if tables else ())))
        words = [chance.choice(streams)]
        if verb in ("join", "merge"):
            words.append(chance.choice(streams))
        elif verb in ("send", "update", "lookup"):
            words.append(chance.choice(tables))
        elif chance.random() < 0.15:
            words.append(str(chance.choice((4, 8))))
        case.append([f"N{place}", verb, *words])
        streams.append(f"N{place}")
    return case + [[f"O{name}", "sink", name] for name in streams]
