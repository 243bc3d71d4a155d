#!/bin/sh
# HBase 2.6.1's Thrift gateway executes all puts of a batch first and then all deletes, whatever their order is.
#
# A batch that deletes a row, or a column of it, and then puts it anew, so that nothing old remains, loses what it puts.
# The gateway's interface calls a batch "a series of mutations on a single row", and happybase sends them in order.
#
# Expected: as without a batch, the new value; or an error.
# Seen, without an error:
#   delete(row), put(row, new)           the row is gone
#   delete(row, column), put(row, new)   the row is gone
#   the same calls without a batch       new
#
# Exits with 0 as long as this is so; needs Java 17 and Maven, and some 200 MB.
set -eu
for program in java mvn; do
    command -v $program >/dev/null || { echo "$program is missing" >&2; exit 2; }
done
work=$(mktemp -d)
started=
finish() {
    [ -z "$started" ] || kill -9 $started 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check happybase==1.3.0 thriftpy2==0.7.1 || exit 2

mkdir conf
{
    echo "<project><modelVersion>4.0.0</modelVersion>"
    echo "<groupId>f</groupId><artifactId>f</artifactId><version>1</version><packaging>pom</packaging><dependencies>"
    while IFS=: read -r group name version; do
        echo "<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version></dependency>"
    done <<PARTS
org.apache.hbase:hbase-server:2.6.1
org.apache.hbase:hbase-thrift:2.6.1
org.apache.hbase:hbase-zookeeper:2.6.1
org.slf4j:slf4j-reload4j:1.7.36
ch.qos.reload4j:reload4j:1.2.25
PARTS
    echo "</dependencies></project>"
} >pom.xml
mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars -DincludeScope=runtime >maven 2>&1 || { cat maven >&2; exit 2; }

free_port() {
    venv/bin/python -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

gateway=$(free_port)
{
    echo "<configuration>"
    while read -r name value; do echo "<property><name>$name</name><value>$value</value></property>"; done <<SETTINGS
hbase.rootdir file://$work/data
hbase.tmp.dir $work/tmp
hbase.unsafe.stream.capability.enforce false
hbase.wal.provider filesystem
hbase.zookeeper.quorum 127.0.0.1
hbase.zookeeper.property.clientPort $(free_port)
hbase.zookeeper.property.clientPortAddress 127.0.0.1
hbase.zookeeper.property.dataDir $work/zookeeper
hbase.zookeeper.property.admin.enableServer false
hbase.master.hostname localhost
hbase.regionserver.hostname localhost
hbase.master.ipc.address 127.0.0.1
hbase.regionserver.ipc.address 127.0.0.1
hbase.master.port $(free_port)
hbase.regionserver.port $(free_port)
hbase.master.info.port -1
hbase.regionserver.info.port -1
hbase.thrift.info.port -1
hbase.regionserver.thrift.ipaddress 127.0.0.1
SETTINGS
    echo "</configuration>"
} >conf/hbase-site.xml

run() {
    java -Xmx512m -Djava.net.preferIPv4Stack=true -Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true \
        --add-modules=jdk.unsupported --add-opens=java.base/java.io=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED \
        --add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED \
        --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/java.lang.reflect=ALL-UNNAMED \
        --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.util.concurrent=ALL-UNNAMED \
        --add-exports=java.base/jdk.internal.misc=ALL-UNNAMED \
        --add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED \
        -cp "conf:jars/*" "$@" >>log 2>&1 &
    started="$started $!"
}

run org.apache.hadoop.hbase.master.HMaster start
run org.apache.hadoop.hbase.thrift.ThriftServer start -p "$gateway"

cat >batches.py <<'PYTHON'
import sys
import time

import happybase

deadline = time.monotonic() + 300
while True:
    try:
        connection = happybase.Connection("127.0.0.1", int(sys.argv[1]), timeout=60_000)
        if b"t" not in connection.tables():
            connection.create_table("t", {"f": {}})
        table = connection.table("t")
        table.put(b"ready", {b"f:c": b"yes"})
        break
    except Exception as error:  # it is just starting
        if time.monotonic() > deadline:
            print("HBase does not start:", repr(error), file=sys.stderr)
            sys.exit(2)
        time.sleep(0.5)


def fill(writer, row, *columns, pause=0.0):
    writer.delete(row, *columns)
    time.sleep(pause)  # a delete hides a put of its own millisecond
    writer.put(row, {b"f:c": b"new"})


found = {}
for row, columns in ((b"row", []), (b"column", [[b"f:c"]])):
    table.put(row, {b"f:c": b"old"})
    with table.batch() as batch:
        fill(batch, row, *columns)
    found["batch, delete the " + row.decode()] = table.row(row)
    fill(table, row, *columns, pause=0.1)
    found["no batch, delete the " + row.decode()] = table.row(row)
print(f"{sys.argv[2]}, happybase {happybase.__version__}; expected: the new value in all")
for way, cells in found.items():
    print(f"seen: {way}: {cells}")
if list(found.values()) != [{}, {b"f:c": b"new"}] * 2:
    sys.exit("the behaviour has changed")
PYTHON
venv/bin/python batches.py "$gateway" "$(basename jars/hbase-thrift-*.jar .jar)" || { code=$?; [ $code = 1 ] || tail -n 20 log >&2; exit $code; }
