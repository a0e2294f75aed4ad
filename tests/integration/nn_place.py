#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where dfs-namenode has replicas written, copied and deleted: storage policies and racks, with simulated data nodes
(RPC only, no data).

usage: nn_place.py DFS-NAMENODE [WHAT]...
"""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))
from hrpc import CLIENT, Checks, FakeDn, NameNode, Rpc, ext_block  # noqa: E402
from programs import cases, program  # noqa: E402

C = Checks()
PATIENCE = 150  # seconds for what takes less than a few on an idle machine
FAST = ['dfs.heartbeat.interval=1s', 'dfs.namenode.redundancy.interval.seconds=1s', 'dfs.shim.redundancy.delay=0s',
        'dfs.namenode.reconstruction.pending.timeout-sec=2s']
FOUR = {'a': '/r1', 'b': '/r1', 'c': '/r1', 'd': '/r2'}
DISK, SSD, ARCHIVE, RAM_DISK = 1, 2, 3, 4


class World:
    """A NameNode of its own, with the racks of a table; node('a', ...) makes a data node that stands in one of them."""

    def __init__(self, program, directory, name, racks=(), conf=()):
        where = f'{directory}/{name}'
        os.mkdir(where)
        self.racks = dict(racks)
        self.ips = {n: f'127.0.0.{10 + i}' for i, n in enumerate(self.racks)}
        with open(where + '/table', 'w') as f:
            f.writelines(f'{self.ips[n]} {rack}\n' for n, rack in self.racks.items())
        table = ['net.topology.node.switch.mapping.impl=TableMapping', f'net.topology.table.file.name={where}/table']
        self.nn = NameNode(program, where, FAST + table + list(conf)).format()
        self.dns = {}

    def __enter__(self):
        self.nn.start()
        self.c = Rpc(self.nn.addr, CLIENT)
        return self

    def __exit__(self, *failure):
        self.nn.kill()
        if C.failed or failure[0]:
            print(open(self.nn.dir + '/log').read()[-3000:])

    def node(self, name, kind=DISK):
        ip = self.ips.get(name, '127.0.0.1')
        self.dns[name] = FakeDn(self.nn.addr, 6000 + len(self.dns), name, ip=ip, kind=kind).start()
        return self.dns[name]

    def beat(self):
        for d in self.dns.values():
            d.heartbeat()

    def write(self, path, on, repl=None, length=50):
        """A closed file of one block, with replicas on these nodes: (id, length, stamp)."""
        f = self.c.create(path, repl=repl or len(on))
        lb = self.c.add_block(path, file_id=f[13])
        b = (lb.sub(1)[2], length, lb.sub(1)[3])
        for n in on:
            self.dns[n].received(b)
        C.check(f'{path} is written', self.c.complete(path, 'c1', ext_block(lb, length), f[13]) == 1)
        return b

    def order(self, block, action):
        """(node that got the order, target or None) of the first TRANSFER (1) or INVALIDATE (2) of @block."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.beat()
            got = self.ordered(block, action)
            if got:
                return got[0]
            time.sleep(0.1)
        return None, None

    def ordered(self, block, action):
        return [(n, b[1] == block[0] and action == 1 and targets[i] or None) for n, d in self.dns.items()
                for cmd in d.commands if cmd[1] == 1 and cmd.sub(3)[1] == action
                for targets in [[t.subs(1)[0].sub(1)[3].decode() for t in cmd.sub(3).subs(4)]]
                for i, b in enumerate(cmd.sub(3).subs(3)) if b[1] == block[0]]


def places(lb):
    return sorted(x.sub(1)[3].decode() for x in lb.subs(3))


def policies(w):
    """Storage policies and their fall-backs, of new blocks and of copies."""
    c = w.c
    for name, kind in (('memory', RAM_DISK), ('archive', ARCHIVE)):
        w.node(name, kind)
    f = c.create('/hot')
    C.throws('a HOT file is not written to memory and archive alone', 'IOException',
             lambda: c.add_block('/hot', file_id=f[13]))
    try:
        c.add_block('/hot', file_id=f[13])
    except Exception as e:
        C.check('the error names what is missing', 'on DISK (storage policy HOT)' in str(e), str(e))
    for name, kind in (('disk', DISK), ('ssd', SSD)):
        w.node(name, kind)
    got = {}
    for policy in ('HOT', 'COLD', 'WARM', 'ONE_SSD', 'ALL_SSD', 'LAZY_PERSIST'):
        c.mkdirs('/' + policy)
        c.call('setStoragePolicy', {1: '/' + policy, 2: policy})
        f = c.create(f'/{policy}/f', repl=3)
        got[policy] = places(c.add_block(f'/{policy}/f', file_id=f[13]))
    C.check('policies are obeyed', got == {
        'HOT': ['disk'], 'COLD': ['archive'], 'WARM': ['archive', 'disk'], 'ONE_SSD': ['disk', 'ssd'],
        'ALL_SSD': ['disk', 'ssd'], 'LAZY_PERSIST': ['disk']}, got)
    b = w.write('/HOT/g', ['disk'], 2)
    C.check('a copy of a HOT block goes to the archive when there is no other disk',
            w.order(b, 1) == ('disk', 'archive'), w.ordered(b, 1))
    b = w.write('/ALL_SSD/g', ['ssd'], 2)
    C.check('one of ALL_SSD to a disk', w.order(b, 1) == ('ssd', 'disk'), w.ordered(b, 1))


def additional(w):
    """A pipeline whose nodes share a rack gets one from another rack."""
    a = w.node('a'), w.node('b'), w.node('c'), w.node('d')
    f = w.c.create('/more', repl=3)
    lb = w.c.add_block('/more', file_id=f[13])
    got = set()
    for _ in range(12):
        more = w.c.call('getAdditionalDatanode', {
            1: '/more', 2: ext_block(lb), 3: [d.info() for d in a[:2]], 5: 1, 6: 'c1', 7: [d.storage for d in a[:2]],
            8: f[13]}).sub(1)
        got.add(more.subs(3)[-1].sub(1)[3].decode())
    C.check('the node that replaces one of a pipeline in one rack stands in another', got == {'d'}, got)


def crowded(w):
    """Replicas that all stand in one rack are found when there is another one, and one of them is moved there."""
    for n in 'abc':
        w.node(n)
    blocks = [w.write(f'/crowd{i}', ['a', 'b', 'c']) for i in range(3)]
    time.sleep(1.5)
    w.beat()
    C.check('nothing is copied in the only rack there is', not any(w.ordered(b, 1) for b in blocks))
    w.node('d')
    for b in blocks:
        source, target = w.order(b, 1)
        C.check('a copy to the other rack', target == 'd', target)
        w.dns['d'].received(b)
        C.check('and one goes from the first', w.order(b, 2)[0] in ('a', 'b', 'c'), w.ordered(b, 2))
    sent = sum(len(w.ordered(b, 1)) for b in blocks)
    time.sleep(1.5)
    w.beat()
    C.check('then all is well', sum(len(w.ordered(b, 1)) for b in blocks) == sent)


EVEN = {'a': '/r1', 'b': '/r1', 'c': '/r1', 'd': '/r1', 'e': '/r2', 'f': '/r2', 'g': '/r3'}


def crowded_units(w):
    """Units of a group that share racks while others have room are moved there, one at a time."""
    w.c.call('enableErasureCodingPolicy', {1: 'RS-3-2-1024k'})
    for n in 'abcde':
        w.node(n)
    f = w.c.call('create', {1: '/g', 2: {1: 0o644}, 3: 'c1', 4: 3, 5: 1, 6: 1, 7: 8 << 20,
                            10: 'RS-3-2-1024k'}).sub(1)
    lb = w.c.add_block('/g', file_id=f[13])
    group, stamp = lb.sub(1)[2], lb.sub(1)[3]
    units = {i: n.sub(1)[3].decode() for i, n in zip(lb[9], lb.subs(3))}  # unit: its node
    for i, n in units.items():
        w.dns[n].received((group + i, 1 << 20, stamp))
    C.check('the group is written', w.c.complete('/g', 'c1', ext_block(lb, 3 << 20), f[13]) == 1)

    def orders(action):
        return [(i, n, to) for i in units for n, to in w.ordered((group + i,), action)]

    def step(want, racks):
        """One move: a copy of a unit, and the deletion of the old one. Where to."""
        seen = orders(1), orders(2)
        end = time.monotonic() + PATIENCE
        while len(orders(1)) == len(seen[0]) and time.monotonic() < end:
            w.beat()
            time.sleep(0.1)
        new = [o for o in orders(1) if o not in seen[0]]
        C.check(f'one unit is copied to {want}', len(new) == 1 and new[0][2] in want, new)
        if len(new) != 1:
            return
        unit, source, target = new[0]
        C.check('by the node that has it', units[unit] == source, new)
        C.check('nothing is deleted before it is there', orders(2) == seen[1], orders(2))
        w.dns[target].received((group + unit, 1 << 20, stamp))
        w.beat()
        C.check('then the old one goes',
                [o[:2] for o in orders(2) if o not in seen[1]] == [(unit, source)], orders(2))
        units[unit] = target
        w.dns[source].received((group + unit, 1 << 20, stamp), status=3)
        C.check('racks', len({EVEN[n] for n in units.values()}) == racks, units)

    w.node('f')
    step('f', 2)  # four and one become three and two
    w.node('g')
    step('g', 3)  # as many racks as there are
    sent = len(orders(1))
    time.sleep(1.5)
    w.beat()
    C.check('then all is well', len(orders(1)) == sent, orders(1))


def moved(w):
    """What a balancer or mover has copied goes from where it came from."""
    for n in 'ab':
        w.node(n)
    w.dns['b'].remaining >>= 1
    w.beat()
    b = w.write('/moved', ['a'])
    w.dns['b'].received(b, hint='a')
    C.check('the replica that was copied goes, not the copy', w.order(b, 2)[0] == 'a', w.ordered(b, 2))


LIMITS = ['dfs.namenode.replication.max-streams=1', 'dfs.namenode.replication.max-streams-hard-limit=3',
          'dfs.block.invalidate.limit=4']


def limits(w):
    """How much one answer to a heartbeat orders is configured."""
    def sizes(action, xmits=0):
        got = [len(cmd.sub(3).subs(3)) for _ in range(5) for cmd in w.dns['a'].heartbeat(xmits=xmits)
               if cmd[1] == 1 and cmd.sub(3)[1] == action]
        return max(got, default=0)
    w.node('a')
    blocks = [w.write(f'/l{i}', ['a'], 2) for i in range(9)]
    w.node('b')
    C.check('copies are ordered', w.order(blocks[0], 1)[0] == 'a')
    time.sleep(1.5)
    C.check('none of a node that is at one already', sizes(1, 1) == 0)
    C.check('one at a time', sizes(1) == 1)
    for i in range(9):
        w.c.delete(f'/l{i}')
    C.check('four deletions at a time', sizes(2) == 4)


SLOW_COPIES = ['dfs.namenode.reconstruction.pending.timeout-sec=60s']
SATISFIER = ['dfs.storage.policy.satisfier.mode=external', *SLOW_COPIES]


def satisfied(w):
    """satisfyStoragePolicy of a tree: replicas on unwanted types are copied to wanted ones, then go."""
    w.node('d1')
    w.node('d2')
    w.c.mkdirs('/s/t')
    tree = [w.write(f'/s/t/{i}', ['d1', 'd2']) for i in range(3)] + [w.write('/s/f', ['d1', 'd2'])]
    w.node('s1', SSD)
    w.c.call('setStoragePolicy', {1: '/s', 2: 'ONE_SSD'})
    time.sleep(1.2)
    w.beat()
    C.check('a new policy alone moves nothing', not any(w.ordered(b, 1) for b in tree))
    C.throws('satisfyStoragePolicy of nothing', 'FileNotFoundException',
             lambda: w.c.call('satisfyStoragePolicy', {1: '/none'}))
    w.c.call('satisfyStoragePolicy', {1: '/s'})
    for b in tree:
        source, target = w.order(b, 1)
        C.check('a copy to the SSD', target == 's1', target)
        w.dns['s1'].received(b)
        C.check('and one goes from a disk', w.order(b, 2)[0] == source, (source, w.ordered(b, 2)))
    sent = sum(len(w.ordered(b, 1)) for b in tree)
    time.sleep(1.5)
    w.beat()
    C.check('no more than that', sent == 4 and sum(len(w.ordered(b, 1)) for b in tree) == sent, sent)


def main():
    namenode = program('namenode-shim/dfs-namenode')
    every = ((policies, {}), (additional, FOUR), (crowded, FOUR), (crowded_units, EVEN, SLOW_COPIES),
             (moved, {}), (limits, {}, LIMITS), (satisfied, {}, SATISFIER))
    names = cases([fn.__name__ for fn, *_ in every])
    with tempfile.TemporaryDirectory(prefix='nn-place-') as directory:
        for fn, racks, *conf in every:
            if fn.__name__ not in names:
                continue
            with World(namenode, directory, fn.__name__, racks, *conf) as w:
                fn(w)
    return 1 if C.failed else 0


if __name__ == '__main__':
    sys.exit(main())
