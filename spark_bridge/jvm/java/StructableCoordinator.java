import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.sql.errors.QueryCompilationErrors$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;
import scala.util.Failure;

/**
 * Asks the coordinator in the driver's Python process, where Spark would start another Python
 * process to ask.
 *
 * <p>Both sides prove by HMAC that they know the application's secret, as Python's own connections
 * do: `multiprocessing`.
 */
public final class StructableCoordinator {
  private static final byte[] CHALLENGE = ascii("#CHALLENGE#");
  private static final byte[] WELCOME = ascii("#WELCOME#");
  private static final byte[] SHA256 = ascii("{sha256}"); // since Python 3.12
  private static final int MOST_HANDSHAKE_BYTES = 256;

  private static volatile StructableCoordinator current;

  private String host;
  private int port;
  private byte[] secret;

  /** Makes this the coordinator to ask; called by Python. */
  public void listensAt(String host, int port, byte[] secret) {
    this.host = host;
    this.port = port;
    this.secret = secret;
    current = this;
  }

  /** The schema of a data source with some options; null if Spark must ask a Python process. */
  static StructType schema(Map options) {
    List answer = answer(asked("schema", options), "create", "instance");
    if (answer == null) return null;
    return (StructType)
        DataType.fromJson(new String((byte[]) answer.get(0), StandardCharsets.UTF_8));
  }

  /**
   * The function that reads a partition, and then the partitions, in Python's form; null as for
   * `schema`.
   */
  static List plan(Map options, StructType schema) {
    return answer(
        asked("plan", options).putString("schema", schema.json()), "initialize", "reader");
  }

  private static MetadataBuilder asked(String question, Map options) {
    String[] names = (String[]) options.keySet().toArray(new String[0]);
    String[] values = new String[names.length];
    for (int i = 0; i < names.length; i++) values[i] = (String) options.get(names[i]);
    MetadataBuilder asked = new MetadataBuilder().putString("question", question);
    return asked.putStringArray("names", names).putStringArray("values", values);
  }

  // Fails as Spark does if its Python process fails, which it calls an action on something.
  private static List answer(MetadataBuilder asked, String action, String something) {
    StructableCoordinator coordinator = current;
    SocketChannel channel = coordinator == null ? null : coordinator.channel();
    if (channel == null) return null;
    String error;
    try {
      List messages = exchanged(channel, asked.build().json().getBytes(StandardCharsets.UTF_8));
      error = new String((byte[]) messages.get(0), StandardCharsets.UTF_8);
      if (error.length() == 0) return messages.subList(1, messages.size());
    } catch (IOException lost) {
      throwIfInterrupted(lost);
      // It may have done what was asked: a Python process must not ask again.
      error =
          "StorageUnavailableError: the coordinator in the driver ended before it answered ("
              + lost
              + ")";
    }
    new Failure(QueryCompilationErrors$.MODULE$.pythonDataSourceError(action, something, error))
        .get(); // throws it
    return null;
  }

  // Null if the coordinator cannot be reached, which a Python process reports.
  private SocketChannel channel() {
    try {
      return opened(SocketChannel.open(new InetSocketAddress(host, port)));
    } catch (IOException gone) {
      throwIfInterrupted(gone);
      return null;
    }
  }

  // Spark stops a query by interrupting its threads, and must see that it did: no coordinator was
  // lost.
  private static void throwIfInterrupted(IOException error) {
    if (error instanceof ClosedByInterruptException) new Failure(error).get(); // throws it
  }

  private SocketChannel opened(SocketChannel channel) throws IOException {
    try {
      channel.setOption(StandardSocketOptions.TCP_NODELAY, Boolean.TRUE);
      shakeHands(
          new DataInputStream(Channels.newInputStream(channel)), Channels.newOutputStream(channel));
    } catch (Exception stranger) {
      channel.close();
      if (stranger instanceof ClosedByInterruptException)
        throw (ClosedByInterruptException) stranger;
      throw new IOException(stranger);
    }
    return channel;
  }

  private static List exchanged(SocketChannel channel, byte[] question) throws IOException {
    try {
      DataInputStream in = new DataInputStream(Channels.newInputStream(channel));
      send(Channels.newOutputStream(channel), question);
      int count =
          Integer.parseInt(
              new String(receive(in, MOST_HANDSHAKE_BYTES), StandardCharsets.US_ASCII));
      List messages = new ArrayList();
      while (messages.size() < count) messages.add(receive(in, Integer.MAX_VALUE));
      return messages;
    } finally {
      channel.close();
    }
  }

  private void shakeHands(DataInputStream in, OutputStream out)
      throws IOException, GeneralSecurityException {
    byte[] asked = receive(in, MOST_HANDSHAKE_BYTES);
    require(startsWith(asked, CHALLENGE));
    byte[] message = Arrays.copyOfRange(asked, CHALLENGE.length, asked.length);
    boolean modern = startsWith(message, SHA256);
    send(out, proof(message, modern));
    require(MessageDigest.isEqual(receive(in, MOST_HANDSHAKE_BYTES), WELCOME));
    byte[] random = new byte[modern ? 40 : 20];
    new SecureRandom().nextBytes(random);
    byte[] mine = modern ? joined(SHA256, random) : random;
    send(out, joined(CHALLENGE, mine));
    require(MessageDigest.isEqual(receive(in, MOST_HANDSHAKE_BYTES), proof(mine, modern)));
    send(out, WELCOME);
  }

  private byte[] proof(byte[] message, boolean modern) throws GeneralSecurityException {
    String algorithm = modern ? "HmacSHA256" : "HmacMD5";
    Mac mac = Mac.getInstance(algorithm);
    mac.init(new SecretKeySpec(secret, algorithm));
    byte[] digest = mac.doFinal(message);
    return modern ? joined(SHA256, digest) : digest;
  }

  private static void require(boolean proven) throws IOException {
    if (!proven) throw new IOException("the peer is not the coordinator");
  }

  // A message follows its length.
  private static void send(OutputStream out, byte[] message) throws IOException {
    out.write(joined(ByteBuffer.allocate(4).putInt(message.length).array(), message));
  }

  private static byte[] receive(DataInputStream in, int most) throws IOException {
    int length = in.readInt();
    if (length < 0 || length > most) throw new IOException("a message of " + length + " bytes");
    byte[] message = new byte[length];
    in.readFully(message);
    return message;
  }

  private static boolean startsWith(byte[] message, byte[] with) {
    return message.length >= with.length
        && Arrays.equals(Arrays.copyOf(message, with.length), with);
  }

  private static byte[] joined(byte[] first, byte[] second) {
    byte[] all = Arrays.copyOf(first, first.length + second.length);
    System.arraycopy(second, 0, all, first.length, second.length);
    return all;
  }

  private static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }
}
