#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The disk of dfs-namenode is full: callers and the log hear the cause and the cure, reads go on, nothing that was
acknowledged is lost, and with room again it works again, with and without a restart.

usage: nn_full.py DFS-NAMENODE
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))
from hrpc import Checks, NameNode, RemoteError, Rpc  # noqa: E402
from programs import program  # noqa: E402

SMALL, LARGE = '2m', '64m'
TRIES = 200000  # more names than fit
CURE = 'its disk is full: free space in its name directory'


def mount(where, *options):
    return subprocess.run(['mount', '-t', 'tmpfs', '-o', ','.join(options), 'none', where],
                          stderr=subprocess.DEVNULL).returncode == 0


def fill(c, have):
    """Make directories until that fails; returns the failure."""
    for i in range(len(have), len(have) + TRIES):
        name = f'{i:06}' + 'x' * 200
        try:
            c.call('mkdirs', {1: '/d/' + name, 2: {1: 0o755}, 3: 1})
        except RemoteError as e:
            return e
        have.append(name)
    return None


def main():
    C = Checks()
    with tempfile.TemporaryDirectory(prefix='nn-full-') as directory:
        os.mkdir(directory + '/name')
        if not mount(directory + '/name', 'size=' + SMALL):
            print('SKIP no file system of a size of its own can be mounted here')
            return 77
        nn = NameNode(program('namenode-shim/dfs-namenode'), directory).format().start()
        have = []
        try:
            c = Rpc(nn.addr)
            e = fill(c, have)
            C.check('a change fails when the disk is full', e is not None)
            C.check('it says why and what helps', e.short == 'DiskChecker$DiskOutOfSpaceException' and CURE in e.text, e.text)
            log = open(directory + '/log').read()
            C.check('so does the log', 'op=commit' in log and CURE in log, log[-500:])
            C.check('what was acknowledged can be read', sorted(c.ls('/d')) == have)
            C.check('with more room', mount(directory + '/name', 'remount', 'size=' + LARGE))
            c.call('mkdirs', {1: '/d/after', 2: {1: 0o755}, 3: 1})
            C.check('changes work again', sorted(c.ls('/d')) == have + ['after'])
            nn.kill()
            nn.start()
            C.check('and after a restart all is there', sorted(Rpc(nn.addr).ls('/d')) == have + ['after'])
            C.check('SIGTERM ends with status 0', nn.stop() == 0)
        finally:
            if nn.proc.poll() is None:
                nn.kill()
            if C.failed:
                print(open(directory + '/log').read()[-3000:])
            subprocess.run(['umount', directory + '/name'])
    return 1 if C.failed else 0


if __name__ == '__main__':
    if os.environ.get('NN_FULL_INSIDE'):
        sys.exit(main())
    # File systems mounted here are nobody else's, and go with this process.
    r = subprocess.run(['unshare', '--mount', sys.executable, os.path.abspath(__file__), *sys.argv[1:]],
                       env=dict(os.environ, NN_FULL_INSIDE='1'))
    if r.returncode == 1 and subprocess.run(['unshare', '--mount', 'true'], stderr=subprocess.DEVNULL).returncode:
        print('SKIP no mount namespace can be had here')
        sys.exit(77)
    sys.exit(r.returncode)
