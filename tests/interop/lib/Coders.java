/* SPDX-License-Identifier: Apache-2.0 */
import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.zip.CRC32C;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.erasurecode.CodecUtil;
import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureEncoder;

/**
 * Stripes as Hadoop's coders make them, for tests/interop/ec_coder to compare with.
 *
 *   Coders stripes FILE SEED    random data: per stripe a line "codec k m len", then k + m units
 *   Coders golden               CRC32C of each parity unit of the data that coder_test.c makes too
 */
public final class Coders {
  private static final Object[][] POLICIES = {
      {"rs", 6, 3}, {"rs", 3, 2}, {"rs", 10, 4}, {"xor", 2, 1},
      {"rs", 1, 1}, {"rs", 8, 8}, {"rs", 12, 4}, {"rs", 4, 1}, {"xor", 5, 1}, {"xor", 15, 1}};
  private static final int[] LENGTHS = {1, 2, 15, 16, 31, 32, 33, 63, 64, 65, 127, 1000, 4096, 4097, 65536, 100003};

  private static byte[][] encode(String codec, byte[][] data, int m, boolean direct) throws Exception {
    final int k = data.length;
    final int len = data[0].length;
    final RawErasureEncoder encoder =
        CodecUtil.createRawEncoder(new Configuration(false), codec, new ErasureCoderOptions(k, m));
    final byte[][] parity = new byte[m][len];
    if (direct) {
      final ByteBuffer[] in = new ByteBuffer[k];
      final ByteBuffer[] out = new ByteBuffer[m];
      for (int i = 0; i < k; i++) {
        in[i] = ByteBuffer.allocateDirect(len);
        in[i].put(data[i]).flip();
      }
      for (int i = 0; i < m; i++) {
        out[i] = ByteBuffer.allocateDirect(len);
      }
      encoder.encode(in, out);
      for (int i = 0; i < m; i++) {
        out[i].get(parity[i]);
      }
    } else {
      final byte[][] copy = new byte[k][];
      for (int i = 0; i < k; i++) {
        copy[i] = data[i].clone();
      }
      encoder.encode(copy, parity);
    }
    encoder.release();
    return parity;
  }

  private static void stripes(String file, long seed) throws Exception {
    final Random random = new Random(seed);
    try (OutputStream out = new BufferedOutputStream(new FileOutputStream(file))) {
      for (Object[] p : POLICIES) {
        for (int i = 0; i < LENGTHS.length; i++) {
          final int k = (Integer) p[1];
          final int m = (Integer) p[2];
          final byte[][] data = new byte[k][LENGTHS[i]];
          for (byte[] unit : data) {
            random.nextBytes(unit);
          }
          out.write((p[0] + " " + k + " " + m + " " + LENGTHS[i] + "\n").getBytes(StandardCharsets.US_ASCII));
          for (byte[] unit : data) {
            out.write(unit);
          }
          for (byte[] unit : encode((String) p[0], data, m, i % 2 == 0)) {
            out.write(unit);
          }
        }
      }
    }
  }

  private static void golden() throws Exception {
    for (Object[] p : POLICIES) {
      final int k = (Integer) p[1];
      final int m = (Integer) p[2];
      final byte[][] data = new byte[k][1000];
      for (int u = 0; u < k; u++) {
        int x = u + 1;
        for (int i = 0; i < data[u].length; i++) {
          x = x * 1103515245 + 12345;
          data[u][i] = (byte) (x >>> 16);
        }
      }
      final StringBuilder line = new StringBuilder(p[0] + " " + k + " " + m);
      for (byte[] unit : encode((String) p[0], data, m, false)) {
        final CRC32C crc = new CRC32C();
        crc.update(unit);
        line.append(String.format(" %08x", crc.getValue()));
      }
      System.out.println(line);
    }
  }

  public static void main(String[] args) throws Exception {
    if (args.length == 3 && args[0].equals("stripes")) {
      stripes(args[1], Long.parseLong(args[2]));
    } else if (args.length == 1 && args[0].equals("golden")) {
      golden();
    } else {
      System.err.println("usage: Coders stripes FILE SEED | golden");
      System.exit(2);
    }
  }
}
