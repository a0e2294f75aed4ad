#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A caller whose groups are unknown waits for the directory of accounts. Nobody else does, and no data
node.

usage: nn_accounts.py DFS-NAMENODE SLOW-ACCOUNTS.SO
"""
import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))
from hrpc import Checks, FakeDn, NameNode, Rpc  # noqa: E402
from programs import program  # noqa: E402

SLOW_S = 4
STRANGERS = 6
ROUNDS = 3  # of calls that are answered while somebody waits; dozens on an idle machine


def main():
    c = Checks()
    with tempfile.TemporaryDirectory(prefix='nn-accounts-') as directory:
        nn = NameNode(program('namenode-shim/dfs-namenode'), directory, ['dfs.permissions.superusergroup=root']).format()
        os.environ['LD_PRELOAD'] = program('tests/integration/libslow_accounts.so')
        os.environ['ASAN_OPTIONS'] = os.environ.get('ASAN_OPTIONS', '') + ':verify_asan_link_order=0'
        nn.start()
        del os.environ['LD_PRELOAD']
        root, dn, took = Rpc(nn.addr), FakeDn(nn.addr, 50010).start(), {}
        root.mkdirs('/d', 0o777)

        def ask(user, what, *args):
            rpc, start = Rpc(nn.addr, user=user), time.monotonic()
            getattr(rpc, what)(*args)
            took[user] = time.monotonic() - start
        strangers = [threading.Thread(target=ask, args=a) for a in (
            ('slow-%d-reads' % SLOW_S, 'stat', '/d'), ('slow-%d-writes' % SLOW_S, 'mkdirs', '/d/new'))]
        for t in strangers:
            t.start()
        time.sleep(0.5)
        rounds = 0
        while all(t.is_alive() for t in strangers):
            root.stat('/d')
            root.mkdirs('/d/other')
            dn.heartbeat()
            rounds += all(t.is_alive() for t in strangers)
            time.sleep(0.05)
        for t in strangers:
            t.join()
        c.check('the strangers waited and were answered', len(took) == 2 and min(took.values()) >= SLOW_S - 1, took)
        c.check('nobody else waited', rounds >= ROUNDS, rounds)
        took.clear()
        ask('slow-%d-reads' % SLOW_S, 'stat', '/d')
        ask('slow-%d-writes' % SLOW_S, 'mkdirs', '/d/new2')
        c.check('they are known now', max(took.values()) < SLOW_S, took)
        took.clear()
        many = [threading.Thread(target=ask, args=('slow-1-%d' % i, 'stat', '/d'))
                for i in range(STRANGERS)]
        for t in many:
            t.start()
        time.sleep(0.2)
        start = time.monotonic()
        other = FakeDn(nn.addr, 50011, user='slow-%d-datanode' % SLOW_S).start()
        other.heartbeat()
        waited = time.monotonic() - start
        c.check('a data node of an unknown user comes before many strangers', waited < 3, waited)
        for t in many:
            t.join()
        c.check('they had one turn after the other', max(took.values()) > STRANGERS - 1, took)
        t = threading.Thread(target=lambda: Rpc(nn.addr, user='slow-2-late').call_and_hang_up('getFileInfo', {1: '/d'}, 0))
        t.start()
        t.join()
        c.check('SIGTERM while somebody waits ends with status 0', nn.stop() == 0)
    return 1 if c.failed else 0


if __name__ == '__main__':
    sys.exit(main())
