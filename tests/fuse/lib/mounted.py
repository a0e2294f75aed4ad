# SPDX-License-Identifier: Apache-2.0
"""A real mount of a real cluster, for the tests of dfs-fuse. Builds on tests/integration/lib/itest.py.

    with Cluster() as c, Mount(c) as m:
        open(m / 'f', 'w').write('x')

Without /dev/fuse, or without the right to mount, a test is skipped and says so.
"""
import contextlib
import errno
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'integration', 'lib'))
from itest import *  # noqa: E402,F401,F403
from itest import BUILD, PATIENCE, SANITIZER, Fail, Skip, at_end, check, path, until  # noqa: E402

FUSE = BUILD + '/fuse/dfs-fuse'
NOBODY = 65534


def need_fuse():
    if not os.path.exists(FUSE):
        raise Skip('dfs-fuse is not built: libfuse3-dev is missing (tools/deps)')
    try:
        os.close(os.open('/dev/fuse', os.O_RDWR))
    except OSError as e:
        raise Skip('/dev/fuse: %s' % e.strerror)
    if os.geteuid() != 0:
        raise Skip('mounting for other users needs root')


def holders(where):
    """A process of each name space where @where is mounted: unshare -m makes a copy that umount does not reach."""
    found = {}
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/mounts' % pid) as f:
                if any(line.split()[1] == where for line in f):
                    found[os.readlink('/proc/%s/ns/mnt' % pid)] = int(pid)
        except OSError:
            pass  # it has ended
    return sorted(found.values())


class Mount:
    """@c's directory @dir, mounted in the foreground; str(m) is where. Leaving the block unmounts it and checks that
    dfs-fuse has ended by itself, with status 0 and nothing from a sanitizer."""

    def __init__(self, c, name='mnt', dir='/', options='allow_other', state=None):
        self.c, self.dir, self.options = c, dir, options
        self.where = path(name)
        self.log = path(name + '.log')
        self.p = None
        self.state = state or path('overlays')
        os.makedirs(self.state, exist_ok=True)
        self.options += ',overlay=' + self.state

    def __str__(self):
        return self.where

    def __truediv__(self, name):
        return os.path.join(os.fsencode(self.where), name) if isinstance(name, bytes) else os.path.join(self.where, name)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if not kind:
            self.stop()  # otherwise _end() cleans up: files may be open still

    def start(self):
        need_fuse()
        os.makedirs(self.where, exist_ok=True)
        args = [FUSE, 'hdfs://%s%s' % (self.c.rpc, self.dir), self.where, '-f', '-o', self.options]
        before = os.stat(self.where).st_dev
        with open(self.log, 'a') as log:
            self.p = subprocess.Popen(args, env=dict(os.environ, **self.c.env), stdout=log, stderr=log,
                                      stdin=subprocess.DEVNULL)
        at_end(self._end)
        until(lambda: self.p.poll() is not None or os.stat(self.where).st_dev != before, 'the mount is there')
        if self.p.poll() is not None:
            text = self.text()
            if 'Operation not permitted' in text:
                raise Skip('mount: ' + text.strip())
            raise Fail('dfs-fuse ends with %d: %s' % (self.p.returncode, text))
        return self

    def text(self):
        with open(self.log, errors='replace') as f:
            return f.read()

    def umount(self):
        subprocess.run(['umount', self.where], check=True)

    def stop(self):
        if not self.p:
            return
        if self.p.poll() is None:
            self.umount()
        self.wait()

    def wait(self, rc=0):
        try:
            got = self.p.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Fail('dfs-fuse does not end; it is mounted in the name spaces of the processes %s' % holders(self.where))
        self.p = None
        text = self.text()
        check(not SANITIZER.search(text), 'sanitizer: %s', text[-4000:])
        check(got == rc, 'dfs-fuse: exit status %s: %s', got, text[-2000:])

    def kill(self):
        """kill -9, and the mount point free again."""
        self.p.kill()
        self.p.wait()
        self.p = None
        subprocess.run(['umount', '-l', self.where], check=True)

    def _end(self):
        if self.p and self.p.poll() is None:
            subprocess.run(['umount', '-l', self.where], stderr=subprocess.DEVNULL)
            try:
                self.p.wait(60)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
        self.p = None


def refused(no, fn, *args, **kw):
    """@fn fails with this errno, no other."""
    try:
        fn(*args, **kw)
    except OSError as e:
        check(e.errno == no, '%s%s: %s instead of %s', getattr(fn, '__name__', fn), args, errno.errorcode.get(e.errno),
              errno.errorcode[no])
    else:
        raise Fail('%s%s succeeds instead of %s' % (getattr(fn, '__name__', fn), args, errno.errorcode[no]))


def as_user(uid, fn):
    """Run @fn() in a process of user @uid; what it raises is raised here."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = b'?'
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            fn()
            text = b''
        except BaseException as e:  # noqa: B036
            text = ('%s: %s' % (type(e).__name__, e)).encode()
        finally:
            os.write(w, text[:4000])
            os._exit(1 if text else 0)
    os.close(w)
    text = b''
    while chunk := os.read(r, 4096):
        text += chunk
    os.close(r)
    os.waitpid(pid, 0)
    if text:
        raise Fail('as user %d: %s' % (uid, text.decode(errors='replace')))


@contextlib.contextmanager
def descriptor(name, flags, mode=0o666):
    fd = os.open(name, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def write(name, data):
    with open(name, 'wb') as f:
        f.write(data)


def read(name):
    with open(name, 'rb') as f:
        return f.read()


def errno_of(fn, *args):
    """0, or the errno with which @fn fails."""
    try:
        fn(*args)
    except OSError as e:
        return e.errno
    return 0


def let_go(*fds):
    """Descriptors of a mount that is no more."""
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            pass


def hidden(c):
    return [line for line in c.dfs('ls', '-r', '/').out.decode().splitlines() if '.dfs-fuse.' in line]


def sessions(m):
    top = os.path.join(m.state, 'dfs-fuse-%d' % os.geteuid())
    return sorted(os.listdir(top)) if os.path.isdir(top) else []


def notes(m):
    top = os.path.join(m.state, 'dfs-fuse-%d' % os.geteuid())
    return [n for s in sessions(m) for n in os.listdir(os.path.join(top, s)) if n.startswith('undo.')]
