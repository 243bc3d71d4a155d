import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.security.access.Permission;
import org.apache.hadoop.hbase.security.access.UserPermission;

/** Does what the Thrift gateway cannot: one command a line, "done" or the error as the answer. */
public class Administration {
  public static void main(String[] arguments) throws Exception {
    try (BufferedReader commands = new BufferedReader(new InputStreamReader(System.in))) {
      for (String line; (line = commands.readLine()) != null; ) {
        String answer = "done";
        // A connection for each command: HBase may have been killed and started between two.
        try (Connection connection =
                ConnectionFactory.createConnection(HBaseConfiguration.create());
            Admin admin = connection.getAdmin()) {
          String[] words = line.split(" ");
          TableName table = TableName.valueOf(words[1]);
          switch (words[0]) {
            case "flush" -> admin.flush(table);
            case "compact" -> compact(admin, table);
            case "split" ->
                split(admin, table, words.length > 2 ? Base64.getDecoder().decode(words[2]) : null);
            case "snapshot" -> admin.snapshot(words[2], table);
            case "restore" -> restore(admin, table, words[2]);
            case "forget" -> admin.deleteSnapshot(words[2]);
            case "grant" -> grant(admin, Permission.newBuilder(table), words[2], words[3]);
            case "grant_all" -> grant(admin, Permission.newBuilder(words[1]), words[2], words[3]);
            default -> throw new IllegalArgumentException(line);
          }
        } catch (Exception error) {
          answer = error.toString().replaceAll("\\s+", " ");
        }
        System.out.println(answer);
      }
    }
  }

  private static void compact(Admin admin, TableName table) throws Exception {
    admin.flush(table);
    admin.majorCompact(table);
    // The request returns before it begins.
    for (int waited = 0;
        waited < 100 && admin.getCompactionState(table) == CompactionState.NONE;
        waited++) {
      Thread.sleep(2);
    }
    while (admin.getCompactionState(table) != CompactionState.NONE) {
      Thread.sleep(2);
    }
  }

  /** Sets a user's rights: letters of RWXCA, "-" for none. */
  private static void grant(Admin admin, Permission.Builder where, String user, String letters)
      throws Exception {
    Permission.Action[] actions =
        Stream.of(Permission.Action.values())
            .filter(action -> letters.indexOf(action.code()) >= 0)
            .toArray(Permission.Action[]::new);
    UserPermission permission = new UserPermission(user, where.withActions(actions).build());
    if (actions.length == 0) {
      admin.revoke(permission);
    } else {
      admin.grant(permission, false);
    }
  }

  /** Restores a dropped table, too. */
  private static void restore(Admin admin, TableName table, String snapshot) throws Exception {
    if (!admin.tableExists(table)) {
      admin.cloneSnapshot(snapshot, table);
      return;
    }
    admin.disableTable(table);
    admin.restoreSnapshot(snapshot);
    admin.enableTable(table);
  }

  private static void split(Admin admin, TableName table, byte[] key) throws Exception {
    int before = admin.getRegions(table).size();
    // A region made by a split can be split again once it no longer refers to its parent's files.
    compact(admin, table);
    byte[] at = key == null ? middle(admin.getConnection(), table) : key;
    for (RegionInfo region : admin.getRegions(table)) {
      if (region.containsRow(at)) {
        split(admin, region.getRegionName(), at);
        break;
      }
    }
    while (admin.getRegions(table).size() <= before || !admin.isTableAvailable(table)) {
      Thread.sleep(2);
    }
  }

  /** HBase itself finds the middle only of regions of several blocks. */
  private static byte[] middle(Connection connection, TableName name) throws Exception {
    List<byte[]> rows = new ArrayList<>();
    try (Table table = connection.getTable(name);
        ResultScanner scanner =
            table.getScanner(new Scan().setFilter(new FirstKeyOnlyFilter()).setCaching(10_000))) {
      for (Result result : scanner) {
        rows.add(result.getRow());
      }
    }
    if (rows.size() < 2) {
      throw new IllegalArgumentException("a table of fewer than two rows has no middle");
    }
    return rows.get(rows.size() / 2);
  }

  private static void split(Admin admin, byte[] region, byte[] key) throws Exception {
    for (int attempt = 0; ; attempt++) {
      try {
        admin.splitRegionAsync(region, key).get();
        return;
      } catch (Exception error) {
        if (attempt == 600 || !error.toString().contains("NOT splittable")) {
          throw error;
        }
        Thread.sleep(50);
      }
    }
  }
}
