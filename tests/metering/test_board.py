"""The Grafana board asks for what Prometheus gets, and the documentation has every instrument."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import opentelemetry.metrics
import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import REGISTRY

from structable.access.metrics import Instruments
from structable.spark_bridge.joins.metrics import JoinInstruments
from structable.spark_bridge.joins.progress import JoinProgress
from structable.spark_bridge.pipelines.running.stages import record
from structable.spark_bridge.write.jobs import measure_missing
from structable.spi import connect

from .conftest import ITEMS
from .sdk import Metrics

DOCS = Path(__file__).parent.parent.parent / "docs"
BOARD = json.loads((DOCS / "grafana-board.json").read_text(encoding="utf-8"))
QUERIES = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
QUERIES += [variable["query"] for variable in BOARD["templating"]["list"][1:]]
METRIC = re.compile(r"\bstructable_\w+")


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, set[str]], Metrics]]:
    """Return the labels of each metric that Prometheus gets where everything is used, and the SDK's own metrics."""
    memory = InMemoryMetricReader()
    provider = MeterProvider([PrometheusMetricReader(), memory], shutdown_on_exit=False)
    monkeypatch.setattr(opentelemetry.metrics, "get_meter_provider", lambda: provider)
    with connect("memory://") as storage:
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1, "n": 1})
        storage.table("items").read((1,))
    instruments = Instruments("items")
    instruments.called("get", 0.1, "ok")
    instruments.throttled("get", 0.1)
    instruments.retried("get", 0.1, 1, exhausted=True)
    instruments.batch("get", 3)
    instruments.hit()
    instruments.miss()
    instruments.default("put")
    gauge = instruments.cache_gauge()
    measure_missing("items", 1)
    record("pages", "views", "write", 0.1, 3)
    joins = JoinInstruments("priced")
    with joins.step() as done:
        done.append(JoinProgress(3, 1, 1, 0, None, None))
    labels: dict[str, set[str]] = {}
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name.startswith("structable_"):
                labels.setdefault(sample.name, set()).update(sample.labels)
    yield labels, Metrics(memory)
    provider.shutdown()
    assert (gauge.rows, joins.lag) == (0, 0)


def test_board_asks_for_exported_names(exported: tuple[dict[str, set[str]], Metrics]) -> None:
    labels, _ = exported
    assert {name for query in QUERIES for name in METRIC.findall(query)} - labels.keys() == set()
    for query in QUERIES:
        known = {"le"}.union(*(labels[name] for name in METRIC.findall(query)))
        asked = set(re.findall(r"(\w+)=", query))
        asked |= {name for names in re.findall(r"\bby \(([^)]*)\)", query) for name in names.split(", ")}
        asked |= set(re.findall(r"label_values\(\w+, (\w+)\)", query))
        assert asked - known == set(), query


def test_board_shows_every_metric(exported: tuple[dict[str, set[str]], Metrics]) -> None:
    def base(name: str) -> str:
        return re.sub(r"_(bucket|count|sum)$", "", name)

    labels, _ = exported
    shown = {base(name) for query in QUERIES for name in METRIC.findall(query)}
    assert {base(name) for name in labels} - shown == set()


def test_documentation_has_every_instrument(exported: tuple[dict[str, set[str]], Metrics]) -> None:
    _, _, text = (DOCS / "operations.md").read_text(encoding="utf-8").partition("\n## Metrics\n")
    _, metrics = exported
    documented = set(re.findall(r"`(structable\.[a-z_.]+)`", text)) - {"structable.access"}
    assert set(metrics.points()) == documented
