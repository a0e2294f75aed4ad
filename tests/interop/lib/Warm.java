// SPDX-License-Identifier: Apache-2.0
// Loads what a NameNode, a data node and the stock client load, by being all three for a moment. The JVM that runs it
// leaves an archive of these classes behind (lib/interop.py, archive()): the next ones map it and start in half the time.
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.hdfs.tools.DFSAdmin;
import org.apache.hadoop.hdfs.tools.DFSck;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.util.ExitUtil;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

public class Warm {
  static void run(Tool tool, String... args) throws Exception {
    System.err.println(String.join(" ", args) + ": exit " + ToolRunner.run(tool, args));
  }

  /** The arguments are files of configuration, then a local file to put. */
  public static void main(String[] args) {
    try {
      warm(args);
    } catch (Throwable t) {
      t.printStackTrace();
    }
    System.exit(0); // an archive of less is better than none
  }

  static void warm(String[] args) throws Exception {
    Configuration conf = new HdfsConfiguration();
    String file = args[args.length - 1];
    for (int i = 0; i < args.length - 1; i++) {
      conf.addResource(new Path(args[i]));
    }
    DefaultMetricsSystem.setMiniClusterMode(true); // two servers in one process
    ExitUtil.disableSystemExit();
    ExitUtil.disableSystemHalt();
    try {
      NameNode.createNameNode(new String[] {"-format", "-nonInteractive"}, conf);
    } catch (ExitUtil.ExitException e) {
      // formatted: it would have ended here
    }
    NameNode.createNameNode(new String[0], conf);
    DataNode.createDataNode(new String[0], conf);
    DistributedFileSystem fs = (DistributedFileSystem) FileSystem.get(conf);
    for (int i = 0; fs.getDataNodeStats().length == 0 && i < 300; i++) {
      Thread.sleep(100);
    }
    run(new FsShell(conf), "-put", file, "/f");
    run(new FsShell(conf), "-cat", "/f");
    run(new FsShell(conf), "-appendToFile", file, "/f");
    run(new FsShell(conf), "-ls", "-R", "/");
    run(new DFSAdmin(conf), "-report");
    run(new DFSck(conf), "/", "-files", "-blocks");
    new ObjectMapper().readTree("{\"a\": [1]}");
  }
}
