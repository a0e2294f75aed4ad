# SPDX-License-Identifier: Apache-2.0
"""A cluster of one data node, ours or a Java DataNode that takes over its directory; the NameNode and the clients are ours."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from side import APACHE

SHORT, SHORT_FILES, SHORT_SIZE = '/short', 4, '256m'  # files that are read in short pieces
PATIENCE_S = 60
DATANODE = 'org.apache.hadoop.hdfs.server.datanode.DataNode'


def fail(text):
    sys.exit(pathlib.Path(sys.argv[0]).name + ': ' + text)


def until(what, ready):
    end = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > end:
            fail(f'{what}: not within {PATIENCE_S} s')
        time.sleep(0.1)


def end(children):
    for p in children:
        if p.poll() is None:
            p.terminate()
    for p in children:
        p.wait()


class OneNode:
    """A cluster of one data node; the kind may change."""

    def __init__(self, kind, args, stack):
        self.args, self.dir, self.stack = args, pathlib.Path(args.dir) / f'one-node-{kind}', stack
        shutil.rmtree(self.dir, ignore_errors=True)
        self.env = dict(os.environ, HADOOP_CONF_DIR=str(self.dir / 'conf'))
        stack.callback(shutil.rmtree, self.dir, True)
        self.start([self.tool('dfs-mini'), '-n', '1', '--dir', str(self.dir)], stdout=subprocess.DEVNULL)
        until('dfs-mini', (self.dir / 'datanode1.ready').exists)

    def tool(self, name):
        return str(pathlib.Path(self.args.bin) / name)

    def start(self, cmd, **more):
        """It is ended with the run."""
        p = subprocess.Popen(cmd, env=self.env, **more)
        self.stack.callback(end, [p])
        return p

    def bench(self, op, path, files, size, *more):
        cmd = [self.tool('dfs-bench'), 'io', '--op', op, '--path', path, '--files', str(files), '--size', size, '--json']
        done = subprocess.run(cmd + list(more), env=self.env, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    def write_short(self):
        self.bench('write', SHORT, SHORT_FILES, SHORT_SIZE)

    def short(self, seconds, threads, *more):
        """4 KiB at random places of the short files."""
        return self.bench('pread', SHORT, SHORT_FILES, SHORT_SIZE, '--threads', str(threads), '--seconds', f'{seconds}', *more)

    def hand_over(self):
        """To a Java DataNode, which listens where ours did."""
        line = (self.dir / 'start/datanode1').read_text()
        conf = [x for pair in re.findall(r"-D '?(dfs[^' ]+)", line) for x in ('-D', pair)]
        pid = int((self.dir / 'datanode1.pid').read_text())
        os.kill(pid, signal.SIGTERM)
        until('the end of our node', lambda: not pathlib.Path(f'/proc/{pid}/exe').exists())
        home = subprocess.run([str(APACHE), '--fetch'], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        with open(self.dir / 'log/java.log', 'wb') as log:
            self.start(['java', '-Xmx1g', f'-Dhadoop.home.dir={home}', '-cp', f'{self.dir}/conf:{home}/web:{home}/lib/*',
                        DATANODE] + conf, stdout=log, stderr=log)
        probe = [self.tool('dfs-bench'), 'io', '--op', 'pread', '--path', SHORT, '--files', '1', '--seconds', '1']
        until('the Java DataNode', lambda: not subprocess.run(probe, env=self.env, stdout=subprocess.DEVNULL,
                                                              stderr=subprocess.DEVNULL).returncode)
