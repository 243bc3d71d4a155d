"""What all tests share: the environment they run in, and a header that says which."""

import gc
import os
import platform
import subprocess
import sys
from collections.abc import Generator
from importlib.metadata import PackageNotFoundError, version

import pytest
from hypothesis import HealthCheck, settings

# Several folders test on the stores that are servers, and pytest finds a fixture only in a conftest above.
from tests.costs import Costs
from tests.hbase.support.fixtures import hbase_prefix, hbase_server, hbase_sweeper, hbase_url, start_hbase  # noqa: F401
from tests.postgresql.support.fixtures import (  # noqa: F401
    postgresql_conninfo,
    postgresql_place,
    postgresql_schema,
    postgresql_server,
    postgresql_url,
    session_pooler,
    start_pgbouncer,
    start_postgresql,
)
from tests.quick_java import QUICK_JAVA
from tests.variants import ROTATION, SEED, keep_some_variants

# The suite's assertions explain themselves like those of a test module.
pytest.register_assert_rewrite("structable.testing.conformance")

# Spark's workers use the Python of the tests; this machine's name need not resolve.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK_JAVA))

# A slow example on a busy machine is no failure; a whole test has `timeout`. The seed, not a file, repeats a failure.
settings.register_profile(
    "structable",
    deadline=None,
    derandomize=False,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("structable")
# A number of examples for all properties: `make quick` tries few, and a search for rare errors many.
if examples := os.environ.get("STRUCTABLE_TEST_EXAMPLES"):
    settings.register_profile("counted", settings(max_examples=int(examples)))
    settings.load_profile("counted")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis the seed of the run, before its own plugin looks for one, and measure the tests."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED
    config.pluginmanager.register(Costs())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out variants, and add the group of a test to its id, from which `--dist=loadgroup` learns it.

    pytest-xdist 3.8 sets an attribute for that purpose which pytest 9.2 does not read; without the id, each process
    would start Spark.
    """
    keep_some_variants(config, items)
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            item._id = type(item.id).parse(f"{item.nodeid}@{group.args[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the collection of tests the collections of garbage, a quarter of its time: it makes no garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Spare the garbage collections of tests, of which some make hundreds, the half a million objects of all tests."""
    gc.collect()
    gc.freeze()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def pytest_report_header() -> list[str]:
    """Name the versions that a failure may depend on."""
    names = (
        "happybase",
        "hypothesis",
        "numpy",
        "plyvel",
        "psycopg",
        "pyarrow",
        "pyspark",
        "sqlalchemy",
    )
    try:
        java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        java = "no java"
    return [
        "drivers: " + ", ".join(f"{name} {_version(name)}" for name in names),
        f"machine: {platform.system()} {platform.release()}, {os.cpu_count()} cores, {java}",
        f"chosen by: STRUCTABLE_TEST_ROTATION={ROTATION} STRUCTABLE_TEST_SEED={SEED}",
    ]
