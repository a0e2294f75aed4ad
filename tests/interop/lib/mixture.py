# SPDX-License-Identifier: Apache-2.0
"""Clusters of our data nodes and Java's under one NameNode: pipelines in a wanted order, replicas asked one by one.

A pattern such as OJO names the kinds of the nodes in a pipeline, first to last.
"""
import concurrent.futures
import itertools
import os
import sys
from interop import *
import dtp

PATTERNS = [''.join(p) for p in itertools.product('OJ', repeat=3)]
TRIES = 60           # for a pipeline in a given order: the NameNode moves a node "near" the writer to the front
# A copy that meets the stale replica of a restarted node is refused by both kinds; asked for again after 5 s, not 300.
HDFS_SITE = {'dfs.namenode.reconstruction.pending.timeout-sec': 5,
             'dfs.namenode.redundancy.considerLoad': 'false', 'dfs.namenode.avoid.write.stale.datanode': 'true',
             'dfs.client.socket-timeout': 20000, 'dfs.namenode.replication.max-streams': 20,
             'dfs.namenode.replication.max-streams-hard-limit': 40}


class Mixture(Interop):
    """An Apache NameNode, first @ours data nodes of ours, then @javas of kind @java."""

    def __init__(self, ours=3, javas=3, java='java', namenode='apache', conf=None, **kw):
        super().__init__(namenode, ['ours'] * ours + [java] * javas, conf={**HDFS_SITE, **(conf or {})}, **kw)
        self.count = itertools.count(1)

    def kind_of(self, address):
        return 'O' if self.kinds[self.node_at(address)] == 'ours' else 'J'

    def pattern_of(self, addresses):
        return ''.join(self.kind_of(a) for a in addresses)

    def new_path(self, what):
        return '/%s-%d' % (what, next(self.count))

    def some_nodes(self, order):
        """Addresses of distinct running nodes of these kinds, in this order."""
        have = {k: [self.address(n) for n in self.nodes() if n in self.running and self.kind_of(self.address(n)) == k]
                for k in 'OJ'}
        for k in have.values():
            random.shuffle(k)
        return [have[k].pop() for k in order]

    def create_in_order(self, order, where, h, first, conf=None, client='3.4.2', **kw):
        """A file open for writing in handle @h, @first written, whose first block goes through @order."""
        for _ in range(TRIES):
            self.java('create', h=h, path=where, favored=self.some_nodes(order), conf=conf, replication=len(order), version=client,
                      **kw)
            self.java('write', h=h, data=first, version=client)
            self.java('hflush', h=h, version=client)
            got = self.java('pipeline', h=h, version=client)
            if self.pattern_of(got) == order:
                return got
            self.java('close', h=h, version=client)
        raise Fail('no pipeline %s in %d tries' % (order, TRIES))

    def pool(self):
        for d in self.data_dirs('datanode1'):
            for name in os.listdir(d + '/current'):
                if name.startswith('BP-'):
                    return name
        raise Fail('no block pool')

    def block(self, b):
        return dtp.Block(self.pool(), b['id'], b['gs'], b['length'])

    def check_replicas(self, where, data, replication=3):
        """Every replica of a closed file by itself, asked directly."""
        blocks = self.java('blocks', path=where)
        check(sum(b['length'] for b in blocks) == len(data), '%s: blocks of %s bytes', where, [b['length'] for b in blocks])
        for b in blocks:
            check(len(b['nodes']) >= replication, '%s: block %d has replicas on %s', where, b['id'], b['nodes'])
            want = data[b['offset']:b['offset'] + b['length']]
            for a in b['nodes']:
                try:
                    got = dtp.read_block(int(a.rsplit(':', 1)[1]), self.block(b), 0, b['length'])
                except Exception as e:
                    raise Fail('%s: block %d of %s (%s): %s' % (where, b['id'], a, self.node_at(a), e))
                check(got == want, '%s: block %d of %s differs', where, b['id'], a)

    def wait_replicas(self, where, n=3):
        last = []

        def enough():
            last[:] = self.java('blocks', path=where)
            return all(len(b['nodes']) == n for b in last)  # one too many is about to be deleted
        until(enough, lambda: '%s has %d replicas of each block: %s' % (where, n, last), step=0.2)

    def check_file(self, where, data, replication=3):
        """Both clients, then every replica."""
        r = self.java('cat', path=where, data=True)
        check(r['data'] == data, '%s: the stock client reads %d other bytes for %d', where, r['length'], len(data))
        check(self.dfs('cat', where).out == data, '%s: our client reads other bytes', where)
        self.wait_replicas(where, replication)
        self.check_replicas(where, data, replication)

    def fill(self, where, data, order, blocksize=1 << 20):
        """A file whose blocks lie on nodes of these kinds."""
        h = where + ' fill'
        self.java('create', h=h, path=where, favored=self.some_nodes(order), replication=len(order), blocksize=blocksize)
        self.java('write', h=h, data=data)
        self.java('close', h=h)

    def our_put(self, where, data, *args):
        """`dfs put`; returns the nodes of each block's pipeline, in order of time."""
        r = self.dfs('put', '-D', 'dfs.log.level=debug', *args, '-f', '-', where, input=data)
        return pipelines(r.err)


def pipelines(log):
    return [m.decode().split() for m in re.findall(rb'op=pipeline block=\S+ nodes: (.*)', log)]


def per_pattern(c, work, patterns=PATTERNS):
    """@work(order, number) for each, a few at a time: they wait for the NameNode most of the time."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for f in [pool.submit(work, p, i) for i, p in enumerate(patterns)]:
            f.result()
