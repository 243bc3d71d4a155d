"""The examples in each command's help."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "backends": ("structable backends", "structable backends leveldb"),
    "tables": ("structable tables leveldb:///data/app", "STRUCTABLE_URL=leveldb:///data/app structable tables"),
    "describe": (
        "structable describe leveldb:///data/app runs",
        "structable describe leveldb:///data/app runs --format toml > runs.toml",
    ),
    "create": (
        "structable create leveldb:///data/app runs.toml",
        "structable create leveldb:///data/app runs.toml --update --dry-run",
    ),
    "drop": ("structable drop leveldb:///data/app runs", "structable drop leveldb:///data/app runs --yes"),
    "get": (
        "structable get leveldb:///data/app runs etl 10 1",
        "structable get leveldb:///data/app runs etl 10 1 --format json",
        "structable get leveldb:///data/app runs -- etl -3 1",
    ),
    "put": (
        "structable put leveldb:///data/app runs app=etl started=10 attempt=1 status=DONE",
        "structable put leveldb:///data/app runs app=etl started=10 attempt=1 --null status --mode update",
        "structable put leveldb:///data/app runs --json - < row.json",
    ),
    "delete": (
        "structable delete leveldb:///data/app runs etl 10 1",
        "structable delete leveldb:///data/app runs --prefix etl --where \"status == 'FAILED'\" --dry-run",
        "structable delete leveldb:///data/app runs --all --yes",
    ),
    "scan": (
        "structable scan leveldb:///data/app runs --prefix etl --limit 20",
        "structable scan leveldb:///data/app runs --where \"status == 'RUNNING'\" --format json",
    ),
    "count": (
        "structable count leveldb:///data/app runs",
        'structable count leveldb:///data/app runs --where "cost > 1.5 or cost is null"',
    ),
    "explain": ("structable explain leveldb:///data/app runs --where \"status == 'RUNNING'\"",),
    "changes": (
        "structable changes leveldb:///data/app runs",
        "structable changes leveldb:///data/app runs --since latest --follow",
        "structable changes leveldb:///data/app runs --since 5f0c61d29a7e4b38:1207 --net --format json",
    ),
    "import": (
        "structable import leveldb:///data/app runs runs.csv.gz",
        "structable import leveldb:///data/app flights flights.csv --create --primary-key flight,day --null NA",
        "structable import leveldb:///data/app --all backup",
        "structable import leveldb:///data/app runs runs.parquet --mode overwrite --yes --job-id monday",
        "structable import leveldb:///data/app totals corrections.jsonl --mode changes --job-id tuesday",
        "producer | structable import leveldb:///data/app runs - --format arrow --expect-rows 3000",
    ),
    "infer": (
        "structable infer flights.csv --primary-key flight,day --null NA > flights.toml",
        "structable infer orders.tsv.gz",
    ),
    "export": (
        "structable export leveldb:///data/app runs runs.parquet",
        "structable export leveldb:///data/app runs - --format csv --prefix etl | less",
        "structable export leveldb:///data/app --all backup",
    ),
    "copy": (
        "structable copy leveldb:///data/app 'postgresql://app@db/app?schema=runs'",
        "structable copy leveldb:///data/app hbase://gateway/app runs jobs --job-id move --dry-run",
    ),
    "conformance": ("structable conformance 'leveldb:///tmp/stores/{fresh}' -k test_scan -x",),
    "doctor": ("structable doctor leveldb:///data/app", "structable doctor hbase://gateway/app --repair --table runs"),
    "compact": ("structable compact leveldb:///data/app", "structable compact 'leveldb:///data/app?compression=none'"),
}
"""Examples by command."""


def epilog(command: str) -> str:
    """Return the text below the options in a command's help."""
    return "\n\n".join(["Examples:", *EXAMPLES[command]])
