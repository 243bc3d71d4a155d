"""Random pipelines, in the lines of `declared`."""

from __future__ import annotations

import random


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


def agreeing_case(chance: random.Random) -> list[list[str]]:
    """Return a case of streams of 4 and of 8 partitions, which meet in tables and merges only."""
    case: list[list[str]] = []
    counts: dict[str, int] = {}
    for place in range(4):
        counts[f"S{place}"] = 4 + 4 * (place % 2)
        case.append([f"S{place}", "source", str(counts[f"S{place}"])])
    tables = [f"T{place}" for place in range(chance.randint(1, 3))]
    case += [[table, "apart"] for table in tables]
    for place in range(4, chance.randint(8, 14)):
        name, stream = f"N{place}", chance.choice(list(counts))
        verb = chance.choice(("join", "join", "join", "merge", "by", "send", "update", "lookup", "lookup"))
        counts[name] = counts[stream]
        if verb == "join":
            case.append(
                [name, verb, stream, chance.choice([one for one in counts if counts[one] == counts[stream]][:-1])]
            )
        elif verb == "merge":
            others = [one for one in counts if one != name and counts[one] == counts[stream]]
            case.append([name, verb, stream, chance.choice(others)])
        elif verb == "by":
            counts[name] = chance.choice((4, 8))
            case.append([name, verb, stream, str(counts[name])])
        else:
            case.append([name, verb, stream, chance.choice(tables)])
    ends = [name for name in counts if not any(name in line[2:] for line in case)]
    case += [[f"O{name}", "sink", name] for name in ends]
    used = {word for line in case for word in line[2:]}
    return [line for line in case if line[1] != "apart" or line[0] in used]
