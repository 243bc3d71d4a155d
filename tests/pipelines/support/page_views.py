"""A pipeline with one of everything that a plan shows."""

from __future__ import annotations

from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import Pipeline
from tests.pipelines.support.declared import STORE, WINDOW, load, write


def _declared(countries: int) -> Pipeline:
    pipeline = Pipeline("pages")
    views = pipeline.source("views", load, key="user", partitions=16, partitioner="structable", order="at")
    updates = pipeline.source("updates", load, key="account", partitions=4, partitioner="structable", order="at")
    names = pipeline.source(
        "countries", load, key="country", partitions=countries, partitioner="structable", order="at"
    )
    profiles = pipeline.table("profiles", TableRef(STORE, "profiles"))
    regions = pipeline.table("regions", TableRef(STORE, "regions"), side_inputs=[names])
    updates.partition_by("user", name="by_user").send_update_to(profiles, name="save", default={"visits": 0})
    known = views.join_table(profiles, "user", how="left", name="known")
    known.sink("log", {"format": "json"})
    placed = known.partition_by("country", name="by_country").join_table(regions, "country", name="placed")
    clicks = pipeline.source("clicks", load, key="country", partitions=8, partitioner="structable")
    placed.join(clicks, ["country"], window=WINDOW, name="clicked").sink("report", write, partitions=2)
    return pipeline


pipeline = _declared(8)
broken = _declared(4)
