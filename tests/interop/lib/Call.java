// SPDX-License-Identifier: Apache-2.0
// Any public method of the stock client by its name: {"on": "fs|client|rpc", "method": NAME, "args": [...]}.
// "fs" is the DistributedFileSystem, "client" its DFSClient, "rpc" the ClientProtocol below it, which sends what it is told.
// JSON becomes what the parameter wants: a path, a mode, an enum by its name, a list. Objects name what has no JSON form:
//   {"flags": ["CREATE"]}            EnumSetWritable<CreateFlag>     {"set": CLASS, "of": [...]}   EnumSet
//   {"block_of": PATH, "gs": +n, "id": +n, "length": +n}             the last block of a file, with something added
//   {"acl": SPEC} {"token": TEXT} {"crypto": true} {"pool": NAME} {"directive": PATH, "pool": NAME} {"bytes": TEXT}
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.crypto.CryptoProtocolVersion;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.CacheDirectiveInfo;
import org.apache.hadoop.hdfs.protocol.CachePoolInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.io.EnumSetWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.token.Token;

class Call {
  static void call(DistributedFileSystem fs, JsonNode q, ObjectNode a) throws Exception {
    String on = q.get("on").asText(), name = q.get("method").asText();
    Object target = on.equals("fs") ? fs : on.equals("client") ? fs.getClient() : fs.getClient().getNamenode();
    JsonNode args = q.get("args");
    List<Method> all = new ArrayList<>();
    for (Method m : target.getClass().getMethods()) {
      if (m.getName().equals(name) && m.getParameterCount() == args.size() && !m.isBridge()) {
        all.add(m);
      }
    }
    all.sort(Comparator.comparing(Method::toGenericString)); // the same one in every run
    for (Method m : all) {
      Object[] values = new Object[args.size()];
      try {
        for (int i = 0; i < values.length; i++) {
          values[i] = value(fs, args.get(i), m.getParameterTypes()[i]);
        }
      } catch (ClassCastException e) {
        continue; // another overload
      }
      m.setAccessible(true);
      try {
        a.put("result", text(m.invoke(target, values)));
      } catch (InvocationTargetException e) {
        throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
      }
      return;
    }
    throw new NoSuchMethodError(on + "." + name + " with " + args);
  }

  /** What can be compared between clusters: plain values; of others only whether there is one. */
  static String text(Object o) {
    if (o == null || o instanceof Boolean || o instanceof Number || o instanceof String || o instanceof Enum) {
      return String.valueOf(o);
    }
    if (o instanceof Object[]) {
      return ((Object[]) o).length + " x " + o.getClass().getComponentType().getSimpleName();
    }
    return o instanceof Map ? "Map of " + ((Map<?, ?>) o).size() : o instanceof List ? "List of " + ((List<?>) o).size() : "an object";
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  static Object value(DistributedFileSystem fs, JsonNode v, Class<?> t) throws Exception {
    if (v.isNull()) {
      need(!t.isPrimitive());
      return null;
    }
    if (v.isObject()) {
      return object(fs, v, t);
    }
    if (v.isArray()) {
      need(t.isArray());
      Object r = Array.newInstance(t.getComponentType(), v.size());
      for (int i = 0; i < v.size(); i++) {
        Array.set(r, i, value(fs, v.get(i), t.getComponentType()));
      }
      return r;
    }
    if (v.isBoolean()) {
      need(t == boolean.class || t == Boolean.class);
      return v.asBoolean();
    }
    if (v.isNumber()) {
      if (t == FsPermission.class) {
        return new FsPermission((short) v.asInt());
      }
      need(t == long.class || t == int.class || t == short.class);
      return t == long.class ? (Object) v.asLong() : t == int.class ? (Object) v.asInt() : (Object) (short) v.asInt();
    }
    if (t.isEnum()) {
      return Enum.valueOf((Class<Enum>) t, v.asText());
    }
    need(t == String.class || t == Path.class);
    return t == Path.class ? new Path(v.asText()) : v.asText();
  }

  static void need(boolean ok) {
    if (!ok) {
      throw new ClassCastException();
    }
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  static Object object(DistributedFileSystem fs, JsonNode v, Class<?> t) throws Exception {
    Object r;
    if (v.has("flags")) {
      EnumSet<CreateFlag> set = EnumSet.noneOf(CreateFlag.class);
      v.get("flags").forEach(x -> set.add(CreateFlag.valueOf(x.asText())));
      r = t == EnumSet.class ? set : new EnumSetWritable<>(set, CreateFlag.class);
    } else if (v.has("set")) {
      Class c = Class.forName("org.apache.hadoop." + v.get("set").asText());
      EnumSet set = EnumSet.noneOf(c);
      v.get("of").forEach(x -> set.add(Enum.valueOf(c, x.asText())));
      r = set;
    } else if (v.has("block_of")) {
      r = block(fs, v);
    } else if (v.has("acl")) {
      r = AclEntry.parseAclSpec(v.get("acl").asText(), true);
    } else if (v.has("token")) {
      r = new Token<>(v.get("token").asText().getBytes(StandardCharsets.UTF_8), new byte[] {1}, new Text("HDFS_DELEGATION_TOKEN"), new Text(""));
    } else if (v.has("crypto")) {
      r = CryptoProtocolVersion.supported();
    } else if (v.has("directive")) {
      r = new CacheDirectiveInfo.Builder().setPath(new Path(v.get("directive").asText())).setPool(v.get("pool").asText()).build();
    } else if (v.has("pool")) {
      r = new CachePoolInfo(v.get("pool").asText());
    } else {
      r = v.get("bytes").asText().getBytes(StandardCharsets.UTF_8);
    }
    need(t.isInstance(r));
    return r;
  }

  static ExtendedBlock block(DistributedFileSystem fs, JsonNode v) throws Exception {
    LocatedBlocks all = fs.getClient().getLocatedBlocks(v.get("block_of").asText(), 0, Long.MAX_VALUE);
    LocatedBlock last = all.getLastLocatedBlock();
    ExtendedBlock b = last.getBlock();
    return new ExtendedBlock(v.path("of_pool").asText(b.getBlockPoolId()), b.getBlockId() + v.path("id").asLong(),
        b.getNumBytes() + v.path("length").asLong(), b.getGenerationStamp() + v.path("gs").asLong());
  }
}
