// SPDX-License-Identifier: Apache-2.0
// A warm JVM with the stock Hadoop client: takes requests as lines of JSON on standard input, answers each with one line.
// lib/interop.py is the other end and tells what the requests mean. Command lines run one after another (they own
// System.out); operations on handles run each in a thread of its own, so that a slow one keeps nobody waiting.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.PrivilegedExceptionAction;
import java.util.Base64;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.protocol.DatanodeInfoWithStorage;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.ExitUtil;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

public class Stock {
  static final ObjectMapper JSON = new ObjectMapper();
  static final PrintStream ANSWERS = System.out;
  static final InputStream NOTHING = new ByteArrayInputStream(new byte[0]);
  static final Map<String, FileSystem> SYSTEMS = new ConcurrentHashMap<>();
  static final Map<String, FSDataOutputStream> WRITERS = new ConcurrentHashMap<>();
  static final Map<String, FSDataInputStream> READERS = new ConcurrentHashMap<>();

  /** What System.exit() becomes while a command line runs. */
  static class Exit extends SecurityException {
    final int status;

    Exit(int status) {
      super("exit " + status);
      this.status = status;
    }
  }

  @SuppressWarnings("removal")
  static class NoExit extends SecurityManager {
    @Override
    public void checkExit(int status) {
      throw new Exit(status);
    }

    @Override
    public void checkPermission(java.security.Permission p) {}
  }

  @SuppressWarnings("removal")
  public static void main(String[] args) throws Exception {
    ExecutorService line = Executors.newSingleThreadExecutor(), handles = Executors.newCachedThreadPool();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.setSecurityManager(new NoExit());
    for (String text; (text = in.readLine()) != null;) {
      JsonNode q = JSON.readTree(text);
      (q.get("op").asText().equals("run") ? line : handles).execute(() -> answer(q));
    }
    Runtime.getRuntime().halt(0); // without the hooks that would close the files still open
  }

  static void answer(JsonNode q) {
    ObjectNode a = JSON.createObjectNode();
    a.set("id", q.get("id"));
    try {
      as(q, () -> {
        if (q.get("op").asText().equals("run")) {
          run(q, a);
        } else {
          op(q, a);
        }
        return null;
      });
    } catch (Throwable t) {
      while ((t instanceof InvocationTargetException || t instanceof java.lang.reflect.UndeclaredThrowableException)
          && t.getCause() != null) {
        t = t.getCause();
      }
      a.put("error", t instanceof RemoteException ? ((RemoteException) t).getClassName() : t.getClass().getName());
      a.put("message", t.getMessage() == null ? "" : t.getMessage());
    }
    synchronized (ANSWERS) {
      ANSWERS.println(a);
      ANSWERS.flush();
    }
  }

  static void as(JsonNode q, PrivilegedExceptionAction<Void> action) throws Throwable {
    if (q.has("user")) {
      UserGroupInformation.createRemoteUser(q.get("user").asText()).doAs(action);
    } else {
      action.run();
    }
  }

  static Configuration base;
  static long baseTime;

  /** A copy of the configuration, which is read again only when its files have changed: to parse all of Hadoop's defaults takes
   * more time than most command lines. */
  static synchronized Configuration copy() {
    long time = 1;
    for (String name : new String[] {"core-site.xml", "hdfs-site.xml"}) {
      URL file = Stock.class.getClassLoader().getResource(name);
      time = 31 * time + (file == null ? 0 : new File(URI.create(file.toString())).lastModified());
    }
    if (base == null || time != baseTime) {
      HdfsConfiguration.init(); // Hadoop's defaults for HDFS are among them
      base = new Configuration();
      base.size(); // it is read here, and not by each copy
      baseTime = time;
    }
    return new Configuration(base);
  }

  static Configuration conf(JsonNode q) {
    Configuration c = copy();
    if (q.has("conf")) {
      for (Iterator<Map.Entry<String, JsonNode>> i = q.get("conf").fields(); i.hasNext();) {
        Map.Entry<String, JsonNode> e = i.next();
        c.set(e.getKey(), e.getValue().asText());
      }
    }
    return c;
  }

  // ---- command lines ----
  static void run(JsonNode q, ObjectNode a) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
    PrintStream oldErr = System.err;
    String[] args = JSON.convertValue(q.get("args"), String[].class);
    int status;
    if (q.has("stdin")) {
      System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(q.get("stdin").asText())));
    } else {
      System.setIn(NOTHING);
    }
    System.setOut(new PrintStream(out, true));
    System.setErr(new PrintStream(err, true));
    try {
      Class<?> c = Class.forName(q.get("class").asText());
      if (Tool.class.isAssignableFrom(c)) {
        Tool tool = tool(c, conf(q));
        try {
          status = ToolRunner.run(conf(q), tool, args);
        } finally {
          if (tool instanceof java.io.Closeable) {
            ((java.io.Closeable) tool).close();
          }
        }
      } else {
        c.getMethod("main", String[].class).invoke(null, (Object) args);
        status = 0;
      }
    } catch (Throwable t) {
      Throwable cause = t instanceof InvocationTargetException ? t.getCause() : t;
      if (cause instanceof Exit) {
        status = ((Exit) cause).status;
      } else if (cause instanceof ExitUtil.ExitException) {
        status = ((ExitUtil.ExitException) cause).status;
      } else {
        cause.printStackTrace(); // as the JVM would, with its status 1
        status = 1;
      }
    } finally {
      System.out.flush();
      System.err.flush();
      System.setOut(oldErr);
      System.setErr(oldErr);
    }
    a.put("rc", status);
    a.put("out", Base64.getEncoder().encodeToString(out.toByteArray()));
    a.put("err", Base64.getEncoder().encodeToString(err.toByteArray()));
  }

  static Tool tool(Class<?> c, Configuration conf) throws Exception {
    java.lang.reflect.Constructor<?> k;
    try {
      k = c.getDeclaredConstructor(Configuration.class);
      k.setAccessible(true);
      return (Tool) k.newInstance(conf);
    } catch (NoSuchMethodException e) {
      k = c.getDeclaredConstructor();
      k.setAccessible(true);
      return (Tool) k.newInstance();
    }
  }

  // ---- operations and handles ----
  static DistributedFileSystem fs(JsonNode q) throws IOException {
    String key = q.path("user").asText("") + "\n" + q.path("conf") + "\n" + q.path("client").asText("");
    synchronized (SYSTEMS) {
      FileSystem f = SYSTEMS.get(key);
      if (f == null) {
        Configuration c = conf(q);
        f = FileSystem.newInstance(FileSystem.getDefaultUri(c), c);
        SYSTEMS.put(key, f);
      }
      return (DistributedFileSystem) f;
    }
  }

  static Path path(JsonNode q) {
    return new Path(q.get("path").asText());
  }

  static byte[] data(JsonNode q) {
    return Base64.getDecoder().decode(q.get("data").asText());
  }

  static void put(ObjectNode a, byte[] b, int n) {
    a.put("data", Base64.getEncoder().encodeToString(n == b.length ? b : java.util.Arrays.copyOf(b, Math.max(n, 0))));
  }

  static <T> T handle(Map<String, T> all, JsonNode q) throws IOException {
    T h = all.get(q.get("h").asText());
    if (h == null) {
      throw new IOException("no handle " + q.get("h").asText());
    }
    return h;
  }

  static void op(JsonNode q, ObjectNode a) throws Exception {
    switch (q.get("op").asText()) {
      case "create": WRITERS.put(q.get("h").asText(), create(q)); break;
      case "append": WRITERS.put(q.get("h").asText(), fs(q).append(path(q),
          q.path("new_block").asBoolean() ? EnumSet.of(CreateFlag.APPEND, CreateFlag.NEW_BLOCK) : EnumSet.of(CreateFlag.APPEND),
          q.path("buffer").asInt(4096), null)); break;
      case "write": write(handle(WRITERS, q), q); break;
      case "hflush": handle(WRITERS, q).hflush(); break;
      case "hsync": hsync(handle(WRITERS, q), q); break;
      case "close": close(q); break;
      case "drop_behind": dropBehind(q); break;
      case "pipeline": nodes(a.putArray("result"),
          ((org.apache.hadoop.hdfs.DFSOutputStream) handle(WRITERS, q).getWrappedStream()).getPipeline()); break;
      case "open": READERS.put(q.get("h").asText(), fs(q).open(path(q))); break;
      case "read": read(handle(READERS, q), q, a); break;
      case "visible": a.put("result", ((HdfsDataInputStream) handle(READERS, q)).getVisibleLength()); break;
      case "cat": cat(q, a); break;
      case "status": status(fs(q).getFileStatus(path(q)), a.putObject("result")); break;
      case "list": list(q, a.putArray("result")); break;
      case "exists": a.put("result", fs(q).exists(path(q))); break;
      case "mkdirs": a.put("result", fs(q).mkdirs(path(q))); break;
      case "mkdir": a.put("result", fs(q).mkdir(path(q), new FsPermission((short) q.path("mode").asInt(0755)))); break;
      case "delete": a.put("result", fs(q).delete(path(q), q.path("recursive").asBoolean(true))); break;
      case "rename": rename(q, a); break;
      case "truncate": a.put("result", fs(q).truncate(path(q), q.get("length").asLong())); break;
      case "concat": concat(q); break;
      case "recover_lease": a.put("result", fs(q).recoverLease(path(q))); break;
      case "is_closed": a.put("result", fs(q).isFileClosed(path(q))); break;
      case "setrep": a.put("result", fs(q).setReplication(path(q), (short) q.get("replication").asInt())); break;
      case "chmod": fs(q).setPermission(path(q), new FsPermission((short) q.get("mode").asInt())); break;
      case "chown": fs(q).setOwner(path(q), q.path("owner").asText(null), q.path("group").asText(null)); break;
      case "utimes": fs(q).setTimes(path(q), q.path("mtime").asLong(-1), q.path("atime").asLong(-1)); break;
      case "checksum": checksum(q, a); break;
      case "blocks": blocks(q, a.putArray("result")); break;
      case "forget": forget(q); break;
      case "call": Call.call(fs(q), q, a); break;
      default: throw new IOException("no operation " + q.get("op").asText());
    }
  }

  static FSDataOutputStream create(JsonNode q) throws IOException {
    DistributedFileSystem fs = fs(q);
    FsPermission mode = new FsPermission((short) q.path("mode").asInt(0644));
    boolean overwrite = q.path("overwrite").asBoolean(true);
    short replication = (short) q.path("replication").asInt(fs.getDefaultReplication(path(q)));
    long blocksize = q.path("blocksize").asLong(fs.getDefaultBlockSize(path(q)));
    if (!q.has("favored")) {
      return fs.create(path(q), mode, overwrite, 4096, replication, blocksize, null);
    }
    ArrayNode names = (ArrayNode) q.get("favored");
    InetSocketAddress[] favored = new InetSocketAddress[names.size()];
    for (int i = 0; i < favored.length; i++) {
      String[] hp = names.get(i).asText().split(":");
      // Its name is what the text says: the client pins what is called like a data node's host.
      InetAddress host = InetAddress.getByAddress(hp[0], InetAddress.getByName(hp[0]).getAddress());
      favored[i] = new InetSocketAddress(host, Integer.parseInt(hp[1]));
    }
    return fs.create(path(q), mode, overwrite, 4096, replication, blocksize, null, favored);
  }

  static void write(FSDataOutputStream out, JsonNode q) throws IOException {
    if (!q.has("file")) {
      out.write(data(q));
      return;
    }
    byte[] buf = new byte[1 << 20];
    try (FileInputStream in = new FileInputStream(q.get("file").asText())) {
      in.getChannel().position(q.path("offset").asLong(0));
      long left = q.path("length").asLong(Long.MAX_VALUE);
      for (int n; left > 0 && (n = in.read(buf, 0, (int) Math.min(left, buf.length))) > 0; left -= n) {
        out.write(buf, 0, n);
      }
    }
  }

  static void hsync(FSDataOutputStream out, JsonNode q) throws IOException {
    if (q.path("update_length").asBoolean()) {
      ((HdfsDataOutputStream) out).hsync(EnumSet.of(HdfsDataOutputStream.SyncFlag.UPDATE_LENGTH));
    } else {
      out.hsync();
    }
  }

  static void close(JsonNode q) throws IOException {
    String h = q.get("h").asText();
    FSDataOutputStream out = WRITERS.remove(h);
    FSDataInputStream in = READERS.remove(h);
    if (out != null) {
      out.close();
    }
    if (in != null) {
      in.close();
    }
  }

  static void dropBehind(JsonNode q) throws IOException {
    FSDataOutputStream out = WRITERS.get(q.get("h").asText());
    if (out != null) {
      out.setDropBehind(true);
      return;
    }
    FSDataInputStream in = handle(READERS, q);
    in.setDropBehind(true);
    in.setReadahead(q.path("readahead").asLong(4 << 20));
  }

  /** Up to `length` bytes at `position` (a positional read), or from where the last one ended. */
  static void read(FSDataInputStream in, JsonNode q, ObjectNode a) throws IOException {
    byte[] buf = new byte[q.get("length").asInt()];
    int n = 0;
    for (int got; n < buf.length; n += got) {
      got = q.has("position") ? in.read(q.get("position").asLong() + n, buf, n, buf.length - n) : in.read(buf, n, buf.length - n);
      if (got <= 0) {
        break;
      }
    }
    put(a, buf, n);
  }

  /** The whole file: its length and SHA-256, with `data` also the bytes. */
  static void cat(JsonNode q, ObjectNode a) throws Exception {
    MessageDigest sha = MessageDigest.getInstance("SHA-256");
    ByteArrayOutputStream all = q.path("data").asBoolean() ? new ByteArrayOutputStream() : null;
    byte[] buf = new byte[1 << 20];
    long length = 0;
    try (FSDataInputStream in = fs(q).open(path(q))) {
      for (int n; (n = in.read(buf)) > 0; length += n) {
        sha.update(buf, 0, n);
        if (all != null) {
          all.write(buf, 0, n);
        }
      }
    }
    ObjectNode r = a.putObject("result");
    r.put("length", length);
    r.put("sha256", new java.math.BigInteger(1, sha.digest()).toString(16));
    if (all != null) {
      put(a, all.toByteArray(), all.size());
    }
  }

  static void status(FileStatus s, ObjectNode r) {
    r.put("path", s.getPath().toUri().getPath());
    r.put("dir", s.isDirectory());
    r.put("length", s.getLen());
    r.put("replication", s.getReplication());
    r.put("blocksize", s.getBlockSize());
    r.put("mtime", s.getModificationTime());
    r.put("atime", s.getAccessTime());
    r.put("mode", (int) s.getPermission().toShort());
    r.put("owner", s.getOwner());
    r.put("group", s.getGroup());
  }

  static void list(JsonNode q, ArrayNode r) throws IOException {
    for (FileStatus s : fs(q).listStatus(path(q))) {
      status(s, r.addObject());
    }
  }

  @SuppressWarnings("deprecation")
  static void rename(JsonNode q, ObjectNode a) throws IOException {
    Path to = new Path(q.get("to").asText());
    if (q.has("overwrite")) {
      fs(q).rename(path(q), to, q.get("overwrite").asBoolean() ? Options.Rename.OVERWRITE : Options.Rename.NONE);
      a.put("result", true);
    } else {
      a.put("result", fs(q).rename(path(q), to));
    }
  }

  static void concat(JsonNode q) throws IOException {
    ArrayNode names = (ArrayNode) q.get("sources");
    Path[] sources = new Path[names.size()];
    for (int i = 0; i < sources.length; i++) {
      sources[i] = new Path(names.get(i).asText());
    }
    fs(q).concat(path(q), sources);
  }

  static void checksum(JsonNode q, ObjectNode a) throws IOException {
    FileChecksum c = q.has("length") ? fs(q).getFileChecksum(path(q), q.get("length").asLong()) : fs(q).getFileChecksum(path(q));
    a.put("result", c == null ? null : c.toString());
  }

  static void nodes(ArrayNode r, org.apache.hadoop.hdfs.protocol.DatanodeInfo[] nodes) {
    if (nodes != null) {
      for (org.apache.hadoop.hdfs.protocol.DatanodeInfo n : nodes) {
        r.add(n.getXferAddr());
      }
    }
  }

  static void blocks(JsonNode q, ArrayNode r) throws IOException {
    LocatedBlocks all = fs(q).getClient().getLocatedBlocks(path(q).toUri().getPath(), 0);
    for (LocatedBlock b : all.getLocatedBlocks()) {
      ObjectNode o = r.addObject();
      o.put("id", b.getBlock().getBlockId());
      o.put("gs", b.getBlock().getGenerationStamp());
      o.put("length", b.getBlockSize());
      o.put("offset", b.getStartOffset());
      o.put("corrupt", b.isCorrupt());
      nodes(o.putArray("nodes"), b.getLocations());
      ArrayNode types = o.putArray("types");
      for (DatanodeInfoWithStorage n : b.getLocations()) {
        types.add(String.valueOf(n.getStorageType()));
      }
    }
  }

  /** Close the client of (user, conf, client), and with it the files that it has open. */
  static void forget(JsonNode q) throws IOException {
    String key = q.path("user").asText("") + "\n" + q.path("conf") + "\n" + q.path("client").asText("");
    synchronized (SYSTEMS) {
      FileSystem f = SYSTEMS.remove(key);
      if (f != null) {
        f.close();
      }
    }
  }
}
