#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A caller whose groups are unknown waits for the directory of accounts. Nobody else does, and no data
node. So does the super-user when its own groups are needed.

usage: nn_accounts.py DFS-NAMENODE SLOW-ACCOUNTS.SO
"""
import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))
from hrpc import Checks, FakeDn, NameNode, RemoteError, Rpc  # noqa: E402
from programs import program  # noqa: E402

SLOW_S = 4
STRANGERS = 6
ROUNDS = 3  # of calls that are answered while somebody waits; dozens on an idle machine


def start(nn, accounts):
    os.environ['LD_PRELOAD'] = accounts
    os.environ['ASAN_OPTIONS'] = os.environ.get('ASAN_OPTIONS', '') + ':verify_asan_link_order=0'
    nn.start()
    del os.environ['LD_PRELOAD']


def super_user(c, namenode, accounts):
    """A cache pool that is given no group gets the first one of its owner."""
    me, rounds, errors = 'slow-%d-super' % SLOW_S, 0, []
    with tempfile.TemporaryDirectory(prefix='nn-accounts-') as directory:
        os.environ['HADOOP_USER_NAME'] = me
        nn = NameNode(namenode, directory, []).format()
        start(nn, accounts)
        del os.environ['HADOOP_USER_NAME']
        boss, other = Rpc(nn.addr, user=me), Rpc(nn.addr, user='other')
        boss.mkdirs('/d', 0o777)
        other.mkdirs('/d/known')

        def add_pool():
            try:
                boss.call('addCachePool', {1: {1: 'p'}})
            except RemoteError as e:
                errors.append(e.text)
        t = threading.Thread(target=add_pool)
        t.start()
        time.sleep(0.5)
        while t.is_alive():
            other.mkdirs('/d/%d' % rounds)
            rounds += t.is_alive()
            time.sleep(0.05)
        t.join()
        c.check('the super-user has no group', len(errors) == 1 and 'no primary group' in errors[0], errors)
        c.check('nobody waited for its groups', rounds >= ROUNDS, rounds)
        nn.stop()


def main():
    c, namenode, accounts = Checks(), program('namenode-shim/dfs-namenode'), program('tests/integration/libslow_accounts.so')
    with tempfile.TemporaryDirectory(prefix='nn-accounts-') as directory:
        nn = NameNode(namenode, directory, ['dfs.permissions.superusergroup=root']).format()
        start(nn, accounts)
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
        began = time.monotonic()
        other = FakeDn(nn.addr, 50011, user='slow-%d-datanode' % SLOW_S).start()
        other.heartbeat()
        waited = time.monotonic() - began
        c.check('a data node of an unknown user comes before many strangers', waited < 3, waited)
        for t in many:
            t.join()
        c.check('they had one turn after the other', max(took.values()) > STRANGERS - 1, took)
        t = threading.Thread(target=lambda: Rpc(nn.addr, user='slow-2-late').call_and_hang_up('getFileInfo', {1: '/d'}, 0))
        t.start()
        t.join()
        c.check('SIGTERM while somebody waits ends with status 0', nn.stop() == 0)
    super_user(c, namenode, accounts)
    return 1 if c.failed else 0


if __name__ == '__main__':
    sys.exit(main())
