# SPDX-License-Identifier: Apache-2.0
"""What the integration tests share: a runner, scratch directories, real clusters, metrics.

A test file is an executable with @test functions and main() at its end. It prints PASS, FAIL or SKIP
for each; exit 0, 1 or 77 (only skips). Everything it makes is in BUILD/itest/FOLDER-FILE/, removed after
success and named, with the command that repeats the test, after a failure.
DFS_BUILD is the build directory (default: build/asan, else build/release of this tree).
"""
import atexit
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..'))


def _build():
    wanted = os.environ.get('DFS_BUILD')
    for b in [wanted] if wanted else [f'{SOURCE}/build{folder}' for folder in ('/asan', '/release', '')]:
        if os.path.exists(b + '/build.ninja'):
            return os.path.abspath(b)
    sys.exit(f'DFS_BUILD: {wanted} is no build directory' if wanted else 'no build directory; set DFS_BUILD or run tests/run')


BUILD = _build()
TOOLS = BUILD + '/tools'
PROGRAM = os.path.abspath(sys.argv[0])  # before anybody changes the directory
NAME = '-'.join(PROGRAM.split('/')[-2:])  # two folders have a suite of the same name, and they may run at the same time
ROOT = '%s/itest/%s' % (BUILD, NAME)
PATIENCE = 150  # seconds for things that take less than one on an idle machine
SANITIZER = re.compile(r'AddressSanitizer|LeakSanitizer|runtime error:|ThreadSanitizer|Assertion .* failed')

os.environ['PATH'] = TOOLS + ':' + os.environ['PATH']
for _key in ('HADOOP_CONF_DIR', 'HADOOP_USER_NAME'):  # the caller's cluster is none of ours
    os.environ.pop(_key, None)
os.environ.setdefault('ASAN_OPTIONS', 'detect_leaks=1:exitcode=99')
os.environ.setdefault('UBSAN_OPTIONS', 'halt_on_error=1:print_stacktrace=1')


# ---- runner ----
class Skip(Exception):
    """A test that cannot run here; the text says why."""


class Fail(AssertionError):
    """What was wrong, for people."""


_tests = []
_ends = []  # what each test leaves to be stopped, last one first


def test(fn):
    _tests.append(fn)
    return fn


def check(ok, text, *args):
    if not ok:
        raise Fail(text % args if args else text)


def at_end(fn):
    _ends.append(fn)


def end_all():
    """For programs without main(): stop what is left."""
    _run_ends(True)


def _run_ends(failed):
    """Stop what is left; the first error counts unless the test failed already."""
    error = None
    while _ends:
        try:
            _ends.pop()()
        except Exception as e:  # go on with the others
            error = error or e
    if error and not failed:
        raise error


def unmount_below(folder):
    """What is mounted there still: by a test that was killed, or by a server that crashed."""
    with open('/proc/self/mounts', 'rb') as f:
        points = [line.split()[1].decode('unicode_escape').encode('latin-1') for line in f]
    for point in reversed(points):
        if point.startswith(os.fsencode(folder) + b'/'):
            subprocess.run(['umount', '-l', point], stderr=subprocess.DEVNULL)


def end_marked(mark):
    """kill -9 for what has @mark in its environment, until nothing of it runs, or does not go."""
    left, end = True, time.monotonic() + PATIENCE
    while left and time.monotonic() < end:
        left = False
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open('/proc/%s/environ' % pid, 'rb') as f:
                    if mark in f.read().split(b'\0'):
                        left = True
                        os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass  # it has ended
        time.sleep(0.1)


def clean_up_after_us():
    """A process of its own session waits for our end. When we are killed, it ends what we have started and unmounts what we
    have mounted; when we end by ourselves, we have done so."""
    us = os.getpid()
    os.environ['DFS_TEST_OF'] = str(us)  # inherited by all that we start
    pid = os.fork()
    if pid:
        atexit.register(lambda: os.getpid() == us and os.kill(pid, signal.SIGKILL))
        return
    os.setsid()
    null = os.open('/dev/null', os.O_RDWR)
    for fd in 0, 1, 2:  # meson reads our output to its end
        os.dup2(null, fd)
    try:
        end = os.pidfd_open(us)
        if os.getppid() == us:
            select.select([end], [], [])
        end_marked(b'DFS_TEST_OF=%d' % us)
        unmount_below(ROOT)
    finally:
        os._exit(0)


def _run(fn):
    failed = True
    try:
        fn()
        failed = False
    finally:
        try:
            _run_ends(failed)
        finally:
            unmount_below(scratch())


def cpu_seconds():
    """Of this process and of those that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main(names=None):
    names = sys.argv[1:] if names is None else names
    unknown = set(names) - {t.__name__ for t in _tests}
    if unknown:
        sys.exit('no test %s; there are: %s' % (', '.join(unknown), ' '.join(t.__name__ for t in _tests)))
    seed = os.environ.get('DFS_TEST_SEED') or str(random.randrange(1 << 30))
    if not seed.isdecimal():
        print('%s: DFS_TEST_SEED=%s is no whole number' % (PROGRAM, seed), file=sys.stderr)
        sys.exit(2)
    seed = int(seed)
    unmount_below(ROOT)
    shutil.rmtree(ROOT, ignore_errors=True)
    clean_up_after_us()
    bad, skipped, ran = [], [], 0
    for t in _tests:
        if names and t.__name__ not in names:
            continue
        random.seed('%s %s' % (seed, t.__name__))
        os.makedirs(scratch(t.__name__), exist_ok=True)
        _current[0] = t.__name__
        start, before = time.monotonic(), cpu_seconds()
        ran += 1
        try:
            _run(t)
            print('PASS %s (%.1f s, %.1f s of CPU)' % (t.__name__, time.monotonic() - start, cpu_seconds() - before))
            shutil.rmtree(scratch(t.__name__), ignore_errors=True)
        except Skip as e:
            skipped.append(str(e))
            print('SKIP %s: %s' % (t.__name__, e))
        except Exception as e:
            bad.append(t.__name__)
            if not isinstance(e, Fail):
                traceback.print_exc(file=sys.stdout)
            print('FAIL %s: %s' % (t.__name__, e or type(e).__name__))
        sys.stdout.flush()
    if bad:
        print('logs: %s\nrepeat: DFS_BUILD=%s DFS_TEST_SEED=%d %s %s' %
              (ROOT, BUILD, seed, PROGRAM, ' '.join(bad)))
        sys.exit(1)
    shutil.rmtree(ROOT, ignore_errors=True)
    if skipped and len(skipped) == ran:
        print('SKIP ' + '; '.join(skipped))
        sys.exit(77)


_current = ['']


def scratch(*parts):
    """A path below this test's directory (on the disk of the build)."""
    return os.path.join(ROOT, *(parts or (_current[0],)))


def path(*parts):
    """A path in the running test's own directory."""
    return scratch(_current[0], *parts)


def _only_ours(folder):
    """No directory from / down to @folder is writable for others, as dfs.domain.socket.path wants it."""
    while True:
        st = os.stat(folder)
        if st.st_mode & 0o002 or (st.st_mode & 0o020 and st.st_gid) or (st.st_mode & 0o200 and st.st_uid not in (0, os.geteuid())):
            return False
        if folder == '/':
            return True
        folder = os.path.dirname(folder)


def socket_dir():
    """A new directory with a short name where a data node may have its UNIX domain socket; removed after the test."""
    for base in (BUILD, os.path.expanduser('~'), '/run'):
        if len(base) < 70 and _only_ours(base) and os.access(base, os.W_OK):
            d = tempfile.mkdtemp(prefix='s.', dir=base)
            at_end(lambda: shutil.rmtree(d, ignore_errors=True))
            return d
    raise Skip('others may write to every directory that could hold a socket, or its name is too long')


# ---- processes ----
class Result:
    def __init__(self, args, rc, out, err):
        self.args, self.rc, self.out, self.err = args, rc, out, err

    def __str__(self):
        return '%s: exit %d\n%s%s' % (' '.join(self.args), self.rc, self.out[-2000:].decode(errors='replace'),
                                      self.err[-4000:].decode(errors='replace'))


def run(*args, env=None, input=None, stdin=None, timeout=2 * PATIENCE, rc=None, stdout=subprocess.PIPE, cwd=None):
    """Run a program to its end. @rc: the exit status it must have."""
    args = [str(a) for a in args]
    p = subprocess.Popen(args, env=dict(os.environ, **(env or {})), stdout=stdout, stderr=subprocess.PIPE, cwd=cwd,
                         stdin=subprocess.PIPE if input is not None else stdin or subprocess.DEVNULL)
    try:
        out, err = p.communicate(input, timeout)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
        raise Fail('%s: not done after %d s\n%s' % (' '.join(args), timeout, err[-2000:].decode(errors='replace')))
    r = Result(args, p.returncode, out or b'', err)
    if p.returncode == 99 or SANITIZER.search(err.decode(errors='replace')):
        raise Fail('sanitizer: %s' % r)
    if rc is not None:
        check(p.returncode == rc, 'exit %d expected, but %s', rc, r)
    return r


class Running:
    """A process with its standard input in our hand: write(), then close() for its end. In a with block."""

    def __init__(self, args, env):
        self.args = args
        self.p = subprocess.Popen(args, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.kill()
            self.p.communicate()

    def write(self, data):
        self.p.stdin.write(data)
        self.p.stdin.flush()

    def close(self, rc=0, timeout=2 * PATIENCE):
        """End of input; it must end with @rc."""
        out, err = self.p.communicate(timeout=timeout)
        r = Result(self.args, self.p.returncode, out, err)
        check(r.rc == rc and not SANITIZER.search(err.decode(errors='replace')), 'exit %d expected, but %s', rc, r)
        return r


def until(cond, what, seconds=PATIENCE, step=0.05):
    """Wait for @cond() to be true; returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = cond()
        if value:
            return value
        if time.monotonic() > end:
            raise Fail('not after %d s: %s' % (seconds, what() if callable(what) else what))
        time.sleep(step)


def alive(pid):
    """Running: not a zombie, and no zombie whose other threads still end (and hold its locks)."""
    try:
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rsplit(')', 1)[1].split()[0] != 'Z' or len(os.listdir('/proc/%d/task' % pid)) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def size_of(file):
    """0 where a node has just removed it."""
    try:
        return os.path.getsize(file)
    except FileNotFoundError:
        return 0


def memory_kib(pid):
    with open('/proc/%d/status' % pid) as f:
        return int(re.search(r'VmRSS:\s+(\d+)', f.read()).group(1))


def real_allocator(pid):
    """No sanitizer has taken malloc's place: what it keeps back for itself says nothing about the program."""
    with open('/proc/%d/maps' % pid) as f:
        return not re.search(r'lib[at]san', f.read())


def sanitizer_reports(folder):
    """Lines of sanitizers and failed assertions in the logs of a cluster."""
    out = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), errors='replace') as f:
            out += ['%s: %s' % (name, line.strip()) for line in f if SANITIZER.search(line)]
    return out


# ---- clusters ----
class Cluster:
    """One dfs-namenode and @nodes dfs-datanode by dfs-mini, in @dir. Nodes are called namenode, datanode1, ...

    with Cluster(...) as c, or start() and stop(). Stopping checks exit codes and sanitizer reports."""

    def __init__(self, name='cluster', nodes=3, conf=None, dir=None, args=()):
        self.dir = dir or path(name)
        self.nodes = nodes
        self.conf = {'dfs.blocksize': '1m', 'dfs.heartbeat.interval': '1s', **(conf or {})}
        self.args = list(args)
        self.env = {'HADOOP_CONF_DIR': self.dir + '/conf'}
        self.mini = None
        self.own = {}  # nodes restarted by us

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
        os.makedirs(os.path.dirname(self.dir), exist_ok=True)
        args = [TOOLS + '/dfs-mini', '--datanodes', str(self.nodes), '--dir', self.dir] + self.args
        for k, v in self.conf.items():
            args += ['-D', '%s=%s' % (k, v)]
        self.err = self.dir + '.mini.log'
        with open(self.err, 'a') as err:
            self.mini = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=err, stdin=subprocess.DEVNULL)
        at_end(self._end)
        line = self.mini.stdout.readline()
        if not line.startswith(b'NameNode '):
            self.mini.wait(PATIENCE)
            with open(self.err) as f:
                raise Fail('the cluster does not start: %s' % f.read()[-3000:])
        self.rpc = re.match(rb'NameNode hdfs://(\S+),', line).group(1).decode()
        self.rpc_port = int(self.rpc.rsplit(':', 1)[1])
        return self

    def _end(self):
        """After a test, however it ended: nothing of ours stays."""
        for name in list(self.own):
            self.own.pop(name).kill()
        if self.mini and self.mini.poll() is None:
            self.mini.terminate()
            try:
                self.mini.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.mini.kill()
                self.mini.wait()

    def stop(self):
        """SIGTERM; everything ends by itself, with status 0 and without reports."""
        bad = []
        for name in sorted(self.own):  # data nodes before the NameNode
            p = self.own.pop(name)
            p.terminate()
            if self._wait(p, bad, name):
                bad.append('%s: exit status %d' % (name, p.returncode))
        self.mini.terminate()
        if self._wait(self.mini, bad, 'dfs-mini') not in (0, 128 + signal.SIGTERM):
            bad.append('dfs-mini: exit status %s' % self.mini.returncode)
        with open(self.err) as f:
            bad += [line.strip() for line in f if 'killing' in line]
        bad += sanitizer_reports(self.dir + '/log')
        check(not bad, 'after the end of the cluster: %s', '; '.join(bad[:8]))

    @staticmethod
    def _wait(p, bad, name):
        try:
            return p.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            bad.append('%s does not stop' % name)
            p.kill()
            p.wait()
            return 0

    # ---- nodes ----
    def names(self):
        return ['datanode%d' % i for i in range(1, self.nodes + 1)]

    def pid(self, node):
        if node in self.own:
            return self.own[node].pid
        with open('%s/%s.pid' % (self.dir, node)) as f:
            return int(f.read())

    def signal(self, node, sig):
        os.kill(self.pid(node), sig)

    def kill(self, node):
        """kill -9, and wait until it is gone."""
        pid = self.pid(node)
        os.kill(pid, signal.SIGKILL)
        if node in self.own:
            self.own.pop(node).wait()
        until(lambda: not alive(pid), '%s is dead' % node)

    def launch(self, node, *args):
        """Start a node that does not run; does not wait for it."""
        ready = '%s/%s.ready' % (self.dir, node)
        if os.path.exists(ready):
            os.unlink(ready)
        with open('%s/log/%s.log' % (self.dir, node), 'a') as log:
            p = subprocess.Popen(['%s/start/%s' % (self.dir, node), *args], stdout=log, stderr=log,
                                 stdin=subprocess.DEVNULL)
        self.own[node] = p
        return p

    def wait_ready(self, node):
        p = self.own[node]
        until(lambda: os.path.exists('%s/%s.ready' % (self.dir, node)) or p.poll() is not None, node + ' is ready')
        if p.poll() is not None:
            del self.own[node]
            raise Fail('%s does not start, exit status %d: %s' % (node, p.returncode, self.log(node)[-1500:]))

    def restart(self, *nodes):
        for n in nodes:
            self.launch(n)
        for n in nodes:
            self.wait_ready(n)

    def log(self, node):
        with open('%s/log/%s.log' % (self.dir, node), errors='replace') as f:
            return f.read()

    def data(self, node):
        """Data directory of a data node."""
        return '%s/dn%s' % (self.dir, node[len('datanode'):])

    def ready(self, node):
        """Addresses as the node wrote them: {'data': 'ip:port', 'ipc':, 'http':} or {'rpc':, 'http':}."""
        with open('%s/%s.ready' % (self.dir, node)) as f:
            return json.load(f)

    def port(self, node, what):
        return int(self.ready(node)[what].rsplit(':', 1)[1])

    def metrics(self, node):
        """{'name{label="x"}': value}"""
        with urllib.request.urlopen('http://%s/metrics' % self.ready(node)['http'], timeout=PATIENCE) as f:
            lines = f.read().decode().splitlines()
        return {k: float(v) for k, v in (line.rsplit(' ', 1) for line in lines if line and line[0] != '#')}

    # ---- files ----
    def dfs(self, *args, rc=0, **kw):
        """`dfs ARGS` in this cluster, with the exit status @rc (None: any)."""
        env = dict(self.env, **kw.pop('env', {}))
        return run(TOOLS + '/dfs', *args, env=env, rc=rc, **kw)

    def popen(self, *args, env=None):
        """`dfs ARGS` that reads what we write; see Running."""
        return Running([TOOLS + '/dfs', *args], dict(os.environ, **self.env, **(env or {})))

    def json(self, *args, **kw):
        return json.loads(self.dfs(*args, **kw).out)

    def stat(self, path):
        return self.json('stat', '--json', path)[0]

    def report(self):
        return self.json('admin', 'report', '--json')

    def live(self):
        return sum(1 for n in self.report()['datanodes'] if n['live'])

    def put(self, data, path, *args):
        self.dfs('put', *args, '-', path, input=data)

    def cat(self, path, **kw):
        return self.dfs('cat', path, **kw).out

    def replicas(self, path):
        """[[address, ...] of each block]"""
        return [b['nodes'] for b in self.stat(path)['blocks']]

    def wait_replicas(self, path, n, seconds=PATIENCE):
        """Until the NameNode knows @n replicas of every block."""
        last = []

        def enough():
            last[:] = self.replicas(path)
            return all(len(r) == n for r in last)
        until(enough, lambda: '%s has %d replicas everywhere: %s' % (path, n, last), seconds, 0.2)

    def node_of(self, address):
        """Name of the data node that listens at @address."""
        for n in self.names():
            if self.ready(n)['data'] == address:
                return n
        raise Fail('no data node at ' + address)

    def block_files(self, node, state='finalized'):
        """{block id: path} of a node's replicas."""
        out = {}
        for d, _, files in os.walk(self.data(node) + '/current'):
            if '/%s' % state in d:
                out.update({int(f[4:]): os.path.join(d, f) for f in files if re.fullmatch(r'blk_-?\d+', f)})
        return out


# ---- bytes ----
def pattern(size, salt=0):
    """Bytes without a period that a chunk, packet or block could hide."""
    return random.Random(salt * 1000003 + size).randbytes(size)


def free_bytes(folder):
    s = os.statvfs(folder)
    return s.f_bavail * s.f_frsize
