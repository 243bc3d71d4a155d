import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.metrics2.impl.JmxCacheBuster;

/**
 * Runs a main class of HBase, the first argument, without three activities that take minutes in a
 * run of all tests, which makes and drops thousands of tables: collecting the metrics of all
 * tables, dropped ones too, for JMX every few seconds, starting a process for each new file or
 * folder to set its permissions, and parsing all defaults of Hadoop for each file that a table's
 * last rows are flushed to.
 */
public class Quick {
  private static final String[] CLASSES_WITH_DEFAULTS = {
    "org.apache.hadoop.hdfs.HdfsConfiguration",
    "org.apache.hadoop.mapred.JobConf",
    "org.apache.hadoop.yarn.conf.YarnConfiguration",
  };

  public static void main(String[] arguments) throws Exception {
    JmxCacheBuster.clearJmxCache(); // what is stopped next must have been started
    JmxCacheBuster.stop();
    setPermissionsInProcess();
    forgetDefaultsOfHadoop();
    String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
    Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
  }

  /** Classes of this file have no name by which the setting `fs.file.impl` could find them. */
  @SuppressWarnings("unchecked")
  private static void setPermissionsInProcess() throws Exception {
    FileSystem.getFileSystemClass("file", new Configuration()); // fills the map
    Field classes = FileSystem.class.getDeclaredField("SERVICE_FILE_SYSTEMS");
    classes.setAccessible(true);
    ((Map<String, Class<? extends FileSystem>>) classes.get(null)).put("file", Local.class);
  }

  /**
   * The defaults of Hadoop's files are those of its code. HBase's own defaults and hbase-site.xml
   * are read nonetheless, since `HBaseConfiguration` names them.
   */
  @SuppressWarnings("unchecked")
  private static void forgetDefaultsOfHadoop() throws Exception {
    for (String name : CLASSES_WITH_DEFAULTS) {
      Class.forName(name); // else it would add them later
    }
    Field defaults = Configuration.class.getDeclaredField("defaultResources");
    defaults.setAccessible(true);
    ((List<String>) defaults.get(null)).clear();
  }

  public static class Local extends LocalFileSystem {
    public Local() {
      super(new Raw());
    }
  }

  private static class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission wanted) throws IOException {
      String symbols =
          wanted.getUserAction().SYMBOL
              + wanted.getGroupAction().SYMBOL
              + wanted.getOtherAction().SYMBOL;
      Files.setPosixFilePermissions(
          pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
    }
  }
}
