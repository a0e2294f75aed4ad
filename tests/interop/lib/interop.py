# SPDX-License-Identifier: Apache-2.0
"""Clusters of Apache's processes and ours, in any mixture, with the stock client at hand.

Builds on tests/integration/lib/itest.py: @test, check, until, run, Skip, main. A suite is an executable
file in tests/interop with @test functions and main() at its end.

    with Interop(namenode='apache', nodes=['ours', 'java', 'java']) as c:
        c.sh('-put', local, '/f', rc=0)          # a line of the stock FsShell, in a warm JVM
        c.java('create', h='w', path='/g')       # operations and handles of the stock client; see Stock.java
        c.kill('datanode1'); c.start_node('datanode1', 'java')
        c.healthy()

Kinds of nodes: 'ours', 'java' (3.4.2), 'java-3.3.6'. Kinds of namenode: 'ours', 'apache', 'apache-3.3.6'.
A node's directories and configuration stay the same whichever kind runs on them, so that a swap is
stop_node() and start_node(node, kind). With ha=True (Apache only) there are 'nn1' and 'nn2' with
shared edits in place of 'namenode'.

Java 17 with javac, Maven and the jars are needed once (tests/interop/apache-hdfs --fetch); else Skip.
DFS_TEST_LONG=1 asks for the long forms (LONG).
"""
import base64
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
import uuid
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'integration', 'lib'))
from itest import *  # noqa: E402,F401,F403
from hrpc import RemoteError, Rpc  # noqa: E402
from itest import BUILD, PATIENCE, SANITIZER, SOURCE, TOOLS, Fail, Result, Running, Skip, alive, at_end, check, path, run, scratch, test, until  # noqa: E402

LONG = os.environ.get('DFS_TEST_LONG') == '1'


def long_test(fn):
    """A test of the long form; a SKIP in the short one."""
    def skip():
        raise Skip('long form: DFS_TEST_LONG=1')
    skip.__name__ = fn.__name__
    return test(fn if LONG else skip)


LIB = os.path.dirname(os.path.abspath(__file__))
APACHE = SOURCE + '/tests/interop/apache-hdfs'
HADOOP = 'org.apache.hadoop.'
SHELL = HADOOP + 'fs.FsShell'
ADMIN = HADOOP + 'hdfs.tools.DFSAdmin'
FSCK = HADOOP + 'hdfs.tools.DFSck'
HAADMIN = HADOOP + 'hdfs.tools.DFSHAAdmin'
NAMENODE = HADOOP + 'hdfs.server.namenode.NameNode'
DATANODE = HADOOP + 'hdfs.server.datanode.DataNode'
BALANCER = HADOOP + 'hdfs.server.balancer.Balancer'
MOVER = HADOOP + 'hdfs.server.mover.Mover'

LOG4J = '''log4j.rootLogger=INFO,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c{1}: %m%n
'''
CLIENT_LOG4J = LOG4J.replace('INFO', 'WARN')  # what the stock client's own default prints


# ---- Hadoop's jars ----
WARM = LIB + '/Warm.java'
# Without -Xlog:disable a JVM says on its standard output that an archive does not fit.
JVM = ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Xshare:auto', '-Xlog:disable']
_homes, _archives = {}, {}


def hadoop_home(version='3.4.2'):
    """Directory with lib/*.jar of a release; Skip with the reason when it cannot be had."""
    if version not in _homes:
        r = subprocess.run([APACHE, '--fetch'], env=dict(os.environ, HADOOP_VERSION=version), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
        if r.returncode == 77:
            raise Skip(r.stderr.strip())
        check(r.returncode == 0, 'apache-hdfs --fetch: %s', r.stderr)
        _homes[version] = r.stdout.strip()
    return _homes[version]


def version_of(kind):
    return kind.split('-', 1)[1] if '-' in kind else '3.4.2'


def jars(version):
    """In a fixed order: an archive of classes is good for class paths that begin with its own."""
    return ':'.join(sorted(str(x) for x in pathlib.Path(hadoop_home(version), 'lib').glob('*.jar')))


def archive(version):
    """[option that maps Hadoop's classes ready for use (CDS)], class path. A JVM starts in half the CPU time so; without the
    archive, when it cannot be made, it starts all the same. Kept beside the jars, for all suites to come."""
    if version not in _archives:
        home = hadoop_home(version)
        java = subprocess.run(['java', '-version'], stderr=subprocess.PIPE).stderr
        key = hashlib.sha256(java + jars(version).encode() + pathlib.Path(WARM).read_bytes()).hexdigest()[:12]
        jar, jsa = '%s/warm-%s.jar' % (home, key), '%s/warm-%s.jsa' % (home, key)
        with open(home + '/warm.lock', 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several suites may want the first one
            if not os.path.exists(jsa):
                _make_archive(version, jar, jsa)
        _archives[version] = ['-XX:SharedArchiveFile=' + jsa] if os.path.getsize(jsa) else [], jars(version) + ':' + jar
    return _archives[version]


def _make_archive(version, jar, jsa):
    with tempfile.TemporaryDirectory(dir=os.path.dirname(jsa)) as d:
        run('javac', '-nowarn', '-Xlint:-options', '-cp', jars(version), '-d', d, WARM, rc=0)
        with zipfile.ZipFile(jar, 'w') as z:  # the archive knows no folders
            z.write(d + '/Warm.class', 'Warm.class')
        ports = iter([free_port() for _ in range(5)])
        write_site(d + '/site.xml', {'fs.defaultFS': 'hdfs://127.0.0.1:%d' % next(ports), 'hadoop.tmp.dir': d + '/tmp', 'dfs.replication': 1,
                                     **{k + 'address': '127.0.0.1:%d' % next(ports) for k in
                                        ('dfs.namenode.http-', 'dfs.datanode.', 'dfs.datanode.ipc.', 'dfs.datanode.http.')}})
        r = subprocess.run(['java', '-Xmx512m', *JVM, '-XX:ArchiveClassesAtExit=' + d + '/jsa', '-Dhadoop.home.dir=' + d,
                            '-cp', jars(version) + ':' + jar, 'Warm', d + '/site.xml', WARM], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not os.path.exists(d + '/jsa'):
            print('no archive of classes: %s' % r.stdout[-2000:].decode(errors='replace'))
            open(d + '/jsa', 'w').close()
        os.replace(d + '/jsa', jsa)


def formatted(version):
    """Name directory of a NameNode that was just formatted, kept beside the jars: one start of a JVM less for each cluster."""
    home = hadoop_home(version)
    kept = home + '/formatted'
    with open(home + '/formatted.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(kept):
            with tempfile.TemporaryDirectory(dir=home) as d:
                os.mkdir(d + '/conf')
                write_site(d + '/conf/hdfs-site.xml', {'fs.defaultFS': 'hdfs://127.0.0.1:1', 'dfs.namenode.name.dir': d + '/name'})
                run(*java_args(version, d + '/conf'), NAMENODE, '-format', '-nonInteractive', rc=0)
                os.rename(d + '/name', kept)
    return kept


def copy_formatted(version, to):
    """The same as a cluster and a block pool of its own."""
    shutil.copytree(formatted(version), to)
    with open(to + '/current/VERSION') as f:
        text = f.read()
    text = re.sub('(?m)^clusterID=.*', 'clusterID=CID-%s' % uuid.uuid4(), text)
    text = re.sub('(?m)^blockpoolID=.*', 'blockpoolID=BP-%d-127.0.0.1-%d' % (random.randrange(1 << 31), time.time() * 1000), text)
    with open(to + '/current/VERSION', 'w') as f:
        f.write(text)


def java_args(version, conf_dir, heap='256m', classes=None):
    """The command of a Hadoop class, up to the class. One garbage collector thread: many JVMs share few cores."""
    mapped, path = archive(version)
    tmp = scratch('java')
    os.makedirs(tmp, exist_ok=True)
    return ['java', '-Xmx' + heap, *JVM, *mapped, '-Djava.io.tmpdir=' + tmp, '-Dhadoop.home.dir=' + hadoop_home(version),
            '-Dlog4j.configuration=file:%s/log4j.properties' % conf_dir, '-cp', ':'.join(x for x in (path, classes, conf_dir) if x)]


_claimed, _ports = [], []


def port_range():
    """A hundred ports for this process alone, above those of dfs-mini and below those that the kernel gives to clients."""
    folder = '/tmp/dfs-interop-ports-%d' % os.getuid()  # one for all suites, whatever their TMPDIR
    os.makedirs(folder, exist_ok=True)
    for first in random.SystemRandom().sample(range(22000, 32000, 100), 100):
        lock = open('%s/%d' % (folder, first), 'w')
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        _claimed.append(lock)  # held to the end of the process
        return iter(range(first, first + 100))
    raise Fail('no free range of TCP ports from 22000 to 32000')


def free_port():
    """A TCP port that nobody has and that was not given out before."""
    while True:
        for port in _ports[-1] if _ports else ():
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    s.bind(('127.0.0.1', port))
                    return port
                except OSError:
                    continue
        _ports.append(port_range())


def write_site(file, values):
    def xml(text):
        return str(text).replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')
    with open(file, 'w') as f:
        f.write('<configuration>\n')
        for k, v in values.items():
            f.write('<property><name>%s</name><value>%s</value></property>\n' % (k, xml(v)))
        f.write('</configuration>\n')


# ---- the stock client ----
class JavaError(Exception):
    """An exception of the stock client: .cls is its class (a RemoteException's: the one it carries), .msg its text."""

    def __init__(self, op, cls, msg):
        super().__init__('%s: %s: %s' % (op, cls, msg))
        self.cls, self.msg = cls, msg


class Stock:
    """A warm JVM with the stock client of one release (Stock.java), on the configuration in @conf_dir."""

    def __init__(self, version, conf_dir, log):
        home = hadoop_home(version)
        classes = self._compiled(version, home)
        args = java_args(version, conf_dir, '512m', classes)
        args[1:1] = ['-Djava.security.manager=allow', '-Dfile.encoding=UTF-8', '-Dsun.jnu.encoding=UTF-8']
        self.log = open(log, 'ab')
        self.p = subprocess.Popen(args + ['Stock'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                  env=dict(os.environ, LC_ALL='C.UTF-8'))
        self.ids = itertools.count(1)
        self.waiting = {}
        self.lock = threading.Lock()
        threading.Thread(target=self._answers, daemon=True).start()
        at_end(self.kill)

    @staticmethod
    def _compiled(version, home):
        out = '%s/interop/stock-%s' % (BUILD, version)
        sources = [LIB + '/Stock.java', LIB + '/Call.java']
        if not os.path.exists(out + '/Stock.class') or os.path.getmtime(out + '/Stock.class') < max(map(os.path.getmtime, sources)):
            os.makedirs(out, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=out) as fresh:  # another suite may read the classes now
                run('javac', '-nowarn', '-Xlint:-options', '-cp', home + '/lib/*', '-d', fresh, *sources, rc=0)
                for name in sorted(os.listdir(fresh), key='Stock.class'.__eq__):  # the one that is looked for comes last
                    os.replace(fresh + '/' + name, out + '/' + name)
        return out

    def _answers(self):
        for line in self.p.stdout:
            a = json.loads(line)
            with self.lock:
                event, slot = self.waiting.pop(a['id'])
            slot.append(a)
            event.set()
        with self.lock:
            left, self.waiting = self.waiting, {}
        for event, _ in left.values():
            event.set()

    def start(self, op, **args):
        """Send a request; returns a function that waits for its answer."""
        id, event, slot = next(self.ids), threading.Event(), []
        with self.lock:
            self.waiting[id] = (event, slot)
            self.p.stdin.write(json.dumps(dict({k: v for k, v in args.items() if v is not None}, id=id, op=op)).encode() + b'\n')
            self.p.stdin.flush()

        def finish(timeout=180):
            if not event.wait(timeout):
                raise Fail('the stock client does not answer %s %s' % (op, {k: v for k, v in args.items() if k != 'data'}))
            if not slot:
                raise Fail('the stock client has ended in %s' % op)
            a = slot[0]
            if 'error' in a:
                raise JavaError(op, a['error'], a['message'])
            return a
        return finish

    def kill(self):
        """kill -9: what a client that crashed leaves behind."""
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        self.log.close()

    def op(self, op, timeout=180, **args):
        """An operation of Stock.java; bytes as data=; returns its result or its bytes."""
        return self.op_start(op, **args)(timeout)

    def op_start(self, op, **args):
        if isinstance(args.get('data'), bytes):
            args['data'] = base64.b64encode(args['data']).decode()
        finish = self.start(op, **args)

        def value(timeout=180):
            a = finish(timeout)
            if 'data' in a and 'result' not in a:
                return base64.b64decode(a['data'])
            if 'data' in a:
                a['result']['data'] = base64.b64decode(a['data'])
            return a.get('result')
        return value

    def run(self, cls, *args, user=None, stdin=None, conf=None, timeout=180):
        a = self.start('run', **{'class': cls, 'args': [str(x) for x in args], 'user': user, 'conf': conf,
                                 'stdin': base64.b64encode(stdin).decode() if stdin is not None else None})(timeout)
        return Result([cls.rsplit('.', 1)[1]] + [str(x) for x in args], a['rc'], base64.b64decode(a['out']), base64.b64decode(a['err']))


# ---- clusters ----
class Interop:
    """See the module's text. @conf: keys of everybody; @node_conf: {1: keys of data node 1}; @dirs: directories of each
    data node, a number or {1: ['[SSD]a', 'b']}; relative ones are below the cluster's directory."""

    def __init__(self, namenode='apache', nodes=(), conf=None, node_conf=None, dirs=1, ha=False, name='cluster', racks=None):
        self.dir = path(name)
        self.kinds = {'datanode%d' % (i + 1): k for i, k in enumerate(nodes)}
        self.names = ['nn1', 'nn2'] if ha else ['namenode']
        self.kinds.update({n: namenode for n in self.names})
        self.ha = ha
        self.running = {}
        self.stocks, self.stocks_lock = {}, threading.Lock()
        self._ports = {n: {'rpc': free_port(), 'http': free_port()} for n in self.names}
        self._ports.update({n: {'data': free_port(), 'ipc': free_port(), 'http': free_port()} for n in self.nodes()})
        self.conf = {'dfs.blocksize': 1 << 20, 'dfs.namenode.fs-limits.min-block-size': 4096,
                     'dfs.replication': min(3, max(1, len(nodes))), 'dfs.heartbeat.interval': 1,
                     'dfs.namenode.heartbeat.recheck-interval': 1000,  # a node is dead after 12 s
                     'dfs.namenode.redundancy.interval.seconds': 1, 'dfs.blockreport.initialDelay': 0,
                     'dfs.namenode.safemode.extension': 0, 'dfs.namenode.decommission.interval': 1,
                     'dfs.client.datanode-restart.timeout': 10, 'dfs.namenode.stale.datanode.interval': 6000,
                     'ipc.client.connect.max.retries': 3, **(conf or {})}
        self.node_conf = node_conf or {}
        self._dirs = {}
        for i, n in enumerate(self.nodes(), 1):
            want = dirs.get(i, 1) if isinstance(dirs, dict) else dirs
            want = ['%s-%d' % (n, j) if want > 1 else n for j in range(1, want + 1)] if isinstance(want, int) else want
            self._dirs[n] = [re.sub(r'^(\[\w+\])?(.*)$', lambda m: (m[1] or '') + os.path.join(self.dir, m[2]), d, count=1) for d in want]
        self.env = {'HADOOP_CONF_DIR': self.dir + '/conf'}
        self.rpc = 'interop' if ha else '127.0.0.1:%d' % self._ports['namenode']['rpc']

    # ---- configuration ----
    def nodes(self):
        return [n for n in self.kinds if n.startswith('datanode')]

    def ports(self, node):
        return self._ports[node]

    def address(self, node):
        """Of a data node's data port, as located blocks have it."""
        return '127.0.0.1:%d' % self._ports[node]['data']

    def node_at(self, address):
        return next(n for n in self.nodes() if self.address(n) == address)

    def data_dirs(self, node):
        return [re.sub(r'^\[\w+\]', '', d) for d in self._dirs[node]]

    def conf_dir(self, node=None):
        return '%s/conf%s' % (self.dir, '-' + node if node else '')

    def site(self):
        # An Apache NameNode would leave a node out of a pipeline for being busier than the others, and three are few.
        s = {'dfs.namenode.redundancy.considerLoad': 'false', **self.conf}
        if self.ha:
            s.update({'dfs.nameservices': 'interop', 'dfs.ha.namenodes.interop': 'nn1,nn2',
                      'dfs.client.failover.proxy.provider.interop':
                          HADOOP + 'hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider',
                      'dfs.namenode.shared.edits.dir': 'file://%s/edits' % self.dir,
                      'dfs.ha.fencing.methods': 'shell(/bin/true)', 'dfs.ha.tail-edits.period': '1s',
                      'dfs.client.failover.sleep.base.millis': 200, 'dfs.client.failover.sleep.max.millis': 1000})
            for n in self.names:
                s['dfs.namenode.rpc-address.interop.' + n] = '127.0.0.1:%d' % self._ports[n]['rpc']
                s['dfs.namenode.http-address.interop.' + n] = '127.0.0.1:%d' % self._ports[n]['http']
        else:
            s['dfs.namenode.http-address'] = '127.0.0.1:%d' % self._ports['namenode']['http']
        return s

    def write_conf(self):
        """Again after a change of self.conf or self.node_conf; nodes read it when they start."""
        core = {'fs.defaultFS': 'hdfs://' + self.rpc, 'hadoop.tmp.dir': self.dir + '/tmp'}
        core.update({k: v for k, v in self.conf.items() if re.match(r'(fs|hadoop|io|net|ipc)\.', k)})
        for node in [None] + list(self.kinds):
            d = self.conf_dir(node)
            os.makedirs(d, exist_ok=True)
            site = self.site()
            if node and node.startswith('datanode'):
                p = self._ports[node]
                site.update({'dfs.datanode.data.dir': ','.join(re.sub(r'^(\[\w+\])?', lambda m: m[0] + 'file://', x, count=1)
                                                              for x in self._dirs[node]),
                             'dfs.datanode.address': '127.0.0.1:%d' % p['data'],
                             'dfs.datanode.ipc.address': '127.0.0.1:%d' % p['ipc'],
                             'dfs.datanode.http.address': '127.0.0.1:%d' % p['http'],
                             'dfs.datanode.hostname': '127.0.0.1'})
                site.update(self.node_conf.get(int(node[len('datanode'):]), {}))
            elif node:
                site['dfs.namenode.name.dir'] = 'file://%s/%s' % (self.dir, node)
                if self.ha:
                    site['dfs.ha.namenode.id'] = node
            write_site(d + '/core-site.xml', core)
            write_site(d + '/hdfs-site.xml', site)
            with open(d + '/log4j.properties', 'w') as f:
                f.write(LOG4J if node else CLIENT_LOG4J)

    # ---- start and end ----
    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind:
            try:
                self.stop()
            except Fail as e:
                print('also: %s' % e)
        else:
            self.stop()

    def start(self):
        os.makedirs(self.dir + '/log', exist_ok=True)
        for n in self.kinds:
            if self.kinds[n] != 'ours':
                hadoop_home(version_of(self.kinds[n]))
        at_end(self._end)
        self.write_conf()
        self.format()
        for n in self.kinds:
            self.launch(n)
        if self.ha:
            self.transition('nn1')
        self.wait_ready(*self.kinds)
        until(lambda: self.live() == len(self.nodes()) and not self.safe_mode(), 'all data nodes are live, no safe mode')
        return self

    def format(self):
        first = self.names[0]
        if os.path.isdir('%s/%s' % (self.dir, first)):
            return
        if self.kinds[first] == 'ours':
            run(TOOLS + '/dfs-namenode', '--format', '--conf', self.conf_dir(first), rc=0)
            return
        if not self.ha:
            copy_formatted(version_of(self.kinds[first]), '%s/%s' % (self.dir, first))
            return
        run(*java_args(version_of(self.kinds[first]), self.conf_dir(first)), NAMENODE, '-format', '-nonInteractive', rc=0)
        for other in self.names[1:]:
            run('cp', '-r', '%s/%s' % (self.dir, first), '%s/%s' % (self.dir, other), rc=0)

    def transition(self, to):
        """Make one NameNode of the pair active; the other one, if it lives, standby first."""
        def moved():
            for n in self.names:
                if n != to and n in self.running:
                    self.stock(HAADMIN, '-transitionToStandby', n)
            last[0] = self.stock(HAADMIN, '-transitionToActive', '--forceactive', to, stdin=b'Y\n')
            return last[0].rc == 0
        last = ['']
        until(moved, lambda: '%s is active: %s' % (to, last[0]), step=1)

    def active(self):
        """The NameNode that would answer a client."""
        if not self.ha:
            return 'namenode'
        for n in self.names:
            if n in self.running and self.beans(n, 'NameNode', 'NameNodeStatus').get('State') == 'active':
                return n
        return None

    def _end(self):
        for p in self.running.values():
            if p.poll() is None:
                p.kill()
            p.wait()
        self.running = {}

    def stop(self):
        """SIGTERM to ours, data nodes first: they end with status 0 and without reports of sanitizers. Java's are killed."""
        for s in self.stocks.values():
            s.kill()
        self.stocks = {}
        bad = []
        ours = sorted(n for n in self.running if self.kinds[n] == 'ours')
        for n in ours:
            if n.startswith('datanode'):
                self.running[n].terminate()  # all at once
        for n in ours:
            try:
                self.stop_node(n, n.startswith('datanode'))
            except Fail as e:
                bad.append(str(e))
        self._end()
        for name in sorted(os.listdir(self.dir + '/log')):
            with open('%s/log/%s' % (self.dir, name), errors='replace') as f:
                bad += ['%s: %s' % (name, x.strip()) for x in f if SANITIZER.search(x)]
        check(not bad, 'after the end of the cluster: %s', '; '.join(bad[:8]))

    def launch(self, node, kind=None):
        """Start a process; does not wait for it. @kind: from now on."""
        check(node not in self.running, '%s runs', node)
        kind = self.kinds[node] = kind or self.kinds[node]
        conf = self.conf_dir(node)
        ready = '%s/%s.ready' % (self.dir, node)
        if os.path.exists(ready):
            os.unlink(ready)
        if kind == 'ours':
            args = [TOOLS + ('/dfs-datanode' if node.startswith('datanode') else '/dfs-namenode'), '--conf', conf,
                    '--ready-file', ready]
        else:
            args = java_args(version_of(kind), conf) + [DATANODE if node.startswith('datanode') else NAMENODE]
        with open('%s/log/%s.log' % (self.dir, node), 'a') as log:
            self.running[node] = subprocess.Popen(args, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                                  env=dict(os.environ, HADOOP_CONF_DIR=conf))

    def wait_ready(self, *nodes, seconds=PATIENCE):
        for n in nodes:
            p = self.running[n]
            until(lambda: self._is_ready(n) or p.poll() is not None, lambda: '%s is ready: %s' % (n, self.log(n)[-1500:]), seconds, 0.1)
            if p.poll() is not None:
                del self.running[n]
                raise Fail('%s does not start, exit status %s: %s' % (n, p.returncode, self.log(n)[-2000:]))

    def _is_ready(self, node):
        if self.kinds[node] == 'ours':
            return os.path.exists('%s/%s.ready' % (self.dir, node))
        if not node.startswith('datanode'):
            try:  # an Apache one listens before it has started, and says so
                rpc = Rpc('127.0.0.1:%d' % self._ports[node]['rpc'])
            except OSError:
                return False
            try:
                rpc.call('getFileInfo', {1: '/'})
            except RemoteError as e:
                return e.short != 'RetriableException'
            except OSError:
                return False
            finally:
                rpc.close()
            return True
        try:
            actors = self.beans(node, 'DataNode', 'DataNodeInfo').get('BPServiceActorInfo', '[]')
            actors = json.loads(actors) if isinstance(actors, str) else actors
            return any(a['ActorState'] == 'RUNNING' and int(a.get('LastBlockReport', 0)) >= 0 for a in actors)
        except OSError:
            return False

    def start_node(self, node, kind=None):
        """Start and wait until it is registered and, with an Apache NameNode, has reported its blocks."""
        self.launch(node, kind)
        self.wait_ready(node)

    def stop_node(self, node, told=False):
        """SIGTERM, unless it was @told, and wait. Ours must end with status 0."""
        p = self.running.pop(node)
        if not told:
            p.terminate()
        try:
            rc = p.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            raise Fail('%s does not stop' % node)
        if self.kinds[node] == 'ours':
            check(rc == 0, '%s: exit status %s: %s', node, rc, self.log(node)[-1500:])

    def kill(self, node):
        """kill -9."""
        p = self.running.pop(node)
        p.kill()
        p.wait()

    def swap(self, node, kind):
        """The other implementation on the same directories."""
        self.stop_node(node)
        self.start_node(node, kind)

    def signal(self, node, sig):
        os.kill(self.running[node].pid, sig)

    def log(self, node):
        with open('%s/log/%s.log' % (self.dir, node), errors='replace') as f:
            return f.read()

    # ---- what the NameNode says ----
    def http(self, node, what):
        with urllib.request.urlopen('http://127.0.0.1:%d%s' % (self._ports[node]['http'], what), timeout=PATIENCE) as f:
            return f.read()

    def beans(self, node, service, name):
        """A bean of /jmx as a dict; empty when there is none (yet)."""
        try:
            all = json.loads(self.http(node, '/jmx?qry=Hadoop:service=%s,name=%s' % (service, name)))['beans']
        except (OSError, ValueError, KeyError):
            return {}
        return all[0] if all else {}

    def report(self):
        """`dfs admin report` of our tool."""
        return json.loads(self.dfs('admin', 'report', '--json').out)

    def live(self):
        if self.kinds[self.names[0]] == 'ours':
            return sum(1 for n in self.report()['datanodes'] if n['live'])
        return self.beans(self.active() or self.names[0], 'NameNode', 'FSNamesystemState').get('NumLiveDataNodes', -1)

    def safe_mode(self):
        if self.kinds[self.names[0]] == 'ours':
            return b'ON' in self.dfs('admin', 'safemode', 'get', rc=None).out
        return self.beans(self.active() or self.names[0], 'NameNode', 'FSNamesystemState').get('FSState') != 'Operational'

    def wait_live(self, n, seconds=PATIENCE):
        until(lambda: self.live() == n, lambda: '%d live data nodes: %d' % (n, self.live()), seconds, 0.2)

    # ---- clients ----
    def client(self, version='3.4.2'):
        """The warm JVM of a release."""
        with self.stocks_lock:  # tests ask from several threads
            if version not in self.stocks:
                self.stocks[version] = self.new_client(version)
            return self.stocks[version]

    def new_client(self, version='3.4.2'):
        """A JVM of its own, to be killed for instance."""
        return Stock(version, self.conf_dir(), '%s/log/stock-%s.log' % (self.dir, version))

    def stock(self, cls, *args, rc=None, version='3.4.2', **kw):
        """A Hadoop Tool or main class. @rc: the exit status it must have; user=, stdin=, conf= as they say."""
        r = self.client(version).run(cls, *args, **kw)
        if rc is not None:
            check(r.rc == rc, 'exit %d expected, but %s', rc, r)
        return r

    def sh(self, *args, **kw):
        """A line of FsShell."""
        return self.stock(SHELL, *args, **kw)

    def java(self, op, version='3.4.2', **args):
        return self.client(version).op(op, **args)

    def java_start(self, op, version='3.4.2', **args):
        """The same, in the background; returns a function that waits for the result."""
        return self.client(version).op_start(op, **args)

    def dfs(self, *args, rc=0, **kw):
        """Our tool, with the exit status @rc (None: any)."""
        env = dict(self.env, **kw.pop('env', {}))
        return run(TOOLS + '/dfs', *args, env=env, rc=rc, **kw)

    def popen(self, *args, env=None):
        """Our tool reading what we write; see itest.Running."""
        return Running([TOOLS + '/dfs', *args], dict(os.environ, **self.env, **(env or {})))

    def fsck(self, where='/', *args):
        return self.stock(FSCK, where, *args).out.decode()

    def healthy(self, where='/', seconds=PATIENCE):
        """Until fsck says HEALTHY with every block at its replication."""
        def good():
            last[0] = self.fsck(where, '-files', '-blocks', '-locations')
            return "is HEALTHY" in last[0] and re.search(r'Under-replicated blocks:\s+0\b', last[0]) and \
                not re.search(r'(Missing|Corrupt) blocks:\s+[1-9]', last[0])
        last = ['']
        until(good, lambda: 'fsck %s is HEALTHY: %s' % (where, last[0][-3000:]), seconds, 0.5)
        return last[0]

    def block_files(self, node, state='finalized'):
        """{block id: path} of a node's replicas."""
        out = {}
        for top in self.data_dirs(node):
            for d, _, files in os.walk(top + '/current'):
                if '/' + state in d:
                    out.update({int(f[4:]): os.path.join(d, f) for f in files if re.fullmatch(r'blk_-?\d+', f)})
        return out


def steps(c, *work):
    """Parts of a test that share a cluster, with the time that each took."""
    for step in work:
        start = time.monotonic()
        step(c)
        print('  %s (%.1f s)' % (step.__name__, time.monotonic() - start), flush=True)
    c.healthy()
