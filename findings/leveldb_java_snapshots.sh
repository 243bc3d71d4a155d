#!/bin/sh
# org.iq80.leveldb 0.12 (LevelDB in Java): a snapshot loses entries when their keys are written again.
#
# A compaction drops the older of two entries of one key. LevelDB keeps it as long as an open snapshot is older than the newer one; the
# port does not, so what a snapshot shows shrinks as soon as enough was written after it to compact tables. An iterator or a `get` at the
# snapshot then finds no entry where it found one before, and the reader of a backup or of a long scan cannot tell it from a deleted key.
#
# Expected: a snapshot shows the same entries until it is closed.
# Seen, without an error: of 100 entries, each overwritten 50 times after the snapshot with a write buffer of 4 KiB, about 68 are left in
#   it, by `get` and by an iterator; all 100 are there as long as nothing is compacted.
#
# Exits with 0 as long as this is so.
set -eu
for program in java mvn; do
    command -v $program >/dev/null || { echo "$program is missing" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/pom.xml" <<'XML'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.iq80.leveldb</groupId><artifactId>leveldb</artifactId><version>0.12</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/jars" >"$work/maven" 2>&1 ||
    { cat "$work/maven" >&2; exit 2; }
cat >"$work/Snapshots.java" <<'JAVA'
import static org.iq80.leveldb.impl.Iq80DBFactory.bytes;
import static org.iq80.leveldb.impl.Iq80DBFactory.factory;

import java.io.File;
import org.iq80.leveldb.DB;
import org.iq80.leveldb.DBIterator;
import org.iq80.leveldb.Options;
import org.iq80.leveldb.ReadOptions;
import org.iq80.leveldb.Snapshot;

class Snapshots {
    static final int KEYS = 100;

    static byte[] key(int number) {
        return bytes(String.format("%03d", number));
    }

    static void write(DB database, String value) {
        for (int number = 0; number < KEYS; number++) {
            database.put(key(number), bytes(value.repeat(10)));
        }
    }

    static int[] count(DB database, ReadOptions at) throws Exception {
        int got = 0;
        for (int number = 0; number < KEYS; number++) {
            got += database.get(key(number), at) == null ? 0 : 1;
        }
        int iterated = 0;
        try (DBIterator entries = database.iterator(at)) {
            for (entries.seekToFirst(); entries.hasNext(); entries.next()) {
                iterated++;
            }
        }
        return new int[] {got, iterated};
    }

    public static void main(String[] arguments) throws Exception {
        Options options = new Options().createIfMissing(true).writeBufferSize(4096);
        try (DB database = factory.open(new File(arguments[0]), options)) {
            write(database, "first");
            try (Snapshot snapshot = database.getSnapshot()) {
                ReadOptions at = new ReadOptions().snapshot(snapshot);
                int[] before = count(database, at);
                for (int round = 0; round < 50; round++) {
                    write(database, "later");
                }
                int[] after = count(database, at);
                System.out.printf("  at the snapshot, before: %d by get, %d by iterator%n", before[0], before[1]);
                System.out.printf("  after later writes:      %d by get, %d by iterator%n", after[0], after[1]);
                boolean lost = after[0] < KEYS && after[1] < KEYS;
                System.exit(before[0] == KEYS && before[1] == KEYS && lost ? 0 : 1);
            }
        }
    }
}
JAVA
java -version 2>&1 | head -n 1
ls "$work/jars" | grep leveldb
java -cp "$work/jars/*" "$work/Snapshots.java" "$work/database" || { echo "the behaviour has changed" >&2; exit 1; }
