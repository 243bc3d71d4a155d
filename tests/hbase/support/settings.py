"""How HBase runs for tests: small, quick to make and to drop tables, quiet when idle, and durable against a kill."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

from tests.quick_java import QUICK_JAVA
from tests.servers.processes import HOST

_OPENED = "java.io java.nio sun.nio.ch java.lang jdk.internal.ref java.lang.reflect java.util java.util.concurrent"

JAVA = (
    *QUICK_JAVA,
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "--add-modules=jdk.unsupported",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
"""Flags of every JVM, with those that HBase needs on Java 17."""

HBASE = {
    "hbase.cluster.distributed": "false",
    "hbase.unsafe.stream.capability.enforce": "false",
    "hbase.wal.provider": "filesystem",
    # All on the loopback, without web pages.
    "hbase.zookeeper.quorum": HOST,
    "hbase.zookeeper.property.clientPortAddress": HOST,
    "hbase.zookeeper.property.admin.enableServer": "false",
    # A machine that is busy for a minute or two must not end sessions, for that ends the master; the tick is in
    # milliseconds, too, and a session has at most twenty.
    "hbase.zookeeper.property.tickTime": "30000",
    "zookeeper.session.timeout": "600000",
    "zookeeper.session.timeout.localHBaseCluster": "600000",
    "hbase.master.hostname": "localhost",
    "hbase.regionserver.hostname": "localhost",
    "hbase.master.ipc.address": HOST,
    "hbase.regionserver.ipc.address": HOST,
    "hbase.master.info.port": "-1",
    "hbase.regionserver.info.port": "-1",
    "hbase.thrift.info.port": "-1",
    "hbase.regionserver.thrift.ipaddress": HOST,
    "hbase.thrift.ipaddress": HOST,
    # One region server, and it is here.
    "hbase.master.wait.on.regionservers.mintostart": "1",
    "hbase.master.wait.on.regionservers.maxtostart": "1",
    "hbase.master.wait.on.regionservers.interval": "100",
    "hbase.master.wait.on.regionservers.timeout": "1000",
    "hbase.regionserver.handler.count": "10",
    "hbase.hregion.majorcompaction": "0",
    # Errors are reported at once, without retries.
    "hbase.procedure.remote.dispatcher.delay.msec": "1",
    "hbase.assignment.dispatch.wait.msec": "1",
    # One region server: the pool's default is for hundreds.
    "hbase.procedure.remote.dispatcher.threadpool.size": "4",
    # Small regions, and many of them.
    "hbase.hregion.memstore.mslab.enabled": "false",
    "hbase.hregion.compacting.memstore.type": "NONE",
    "hbase.regionserver.enable.table.latencies": "false",
    # Clients: about as long as the defaults of the recipe, in smaller steps.
    "hbase.client.retries.number": "9",
    "hbase.client.pause": "5",
    "hbase.rpc.timeout": "10000",
    "hbase.client.operation.timeout": "30000",
    # A region is split again as soon as it was compacted.
    "hbase.hfile.compaction.discharger.interval": "500",
}
"""Of HBase and its gateways alike."""

GATEWAY = {
    "hbase.thrift.server.socket.read.timeout": "600000",
}

LOGGING = """\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
"""


def site(settings: Mapping[str, str]) -> str:
    """Return the settings as hbase-site.xml has them."""
    properties = (
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    return f"<configuration>\n{''.join(properties)}</configuration>\n"
