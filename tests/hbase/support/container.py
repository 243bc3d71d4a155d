"""HBase in a container of Maven's image, which holds Java as well: the same jars, settings and processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .connections import connect, wait_until_served
from .settings import GATEWAY, HBASE, JAVA, LOGGING, site

_IMAGE = "maven:3-eclipse-temurin-17"
_PORT = 9090


@contextmanager
def running_container() -> Iterator[str]:
    """Run a container for this process alone: testcontainers ends it with the process that started it."""
    from testcontainers.core.container import DockerContainer

    own = {
        "hbase.rootdir": "file:///hbase/data",
        "hbase.tmp.dir": "/hbase/tmp",
        "hbase.zookeeper.property.dataDir": "/hbase/zookeeper",
        "hbase.regionserver.thrift.ipaddress": "0.0.0.0",
        "hbase.thrift.ipaddress": "0.0.0.0",
    }
    java = f"java {' '.join(JAVA)} -cp '/conf:/jars/*' org.apache.hadoop.hbase"
    script = (
        "mkdir -p /conf /jars; "
        'printf %s "$SITE" >/conf/hbase-site.xml; printf %s "$LOGGING" >/conf/log4j.properties; '
        'printf %s "$POM" >/pom.xml; '
        "mvn -q -B -f /pom.xml dependency:copy-dependencies -DoutputDirectory=/jars -DincludeScope=runtime; "
        f"{java}.master.HMaster start & exec {java}.thrift.ThriftServer start -p {_PORT}"
    )
    container = (
        DockerContainer(_IMAGE)
        .with_env("SITE", site(HBASE | GATEWAY | own))
        .with_env("LOGGING", LOGGING)
        .with_env("POM", Path(__file__).with_name("pom.xml").read_text())
        .with_command(["sh", "-c", script])
        .with_exposed_ports(_PORT)
    )
    with container:
        host, port = container.get_container_host_ip(), int(container.get_exposed_port(_PORT))
        wait_until_served(lambda: connect(host, port))
        yield f"hbase://{host}:{port}"
