#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dfs-namenode over RPC with simulated data nodes (RPC only, no data): names, files, reports, replication, leases, restart.

usage: nn_rpc.py DFS-NAMENODE
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))
from hrpc import CLIENT, Checks, FakeDn, NameNode, RemoteError, Rpc, enc, ext_block, varint  # noqa: E402
import programs  # noqa: E402

C = Checks()
PATIENCE = 150  # seconds for what takes less than a few on an idle machine
FAST = ['dfs.heartbeat.interval=1s', 'dfs.namenode.heartbeat.recheck-interval=500',
        'dfs.namenode.stale.datanode.interval=6000', 'dfs.namenode.redundancy.interval.seconds=1s', 'dfs.shim.redundancy.delay=1s',
        'dfs.shim.lease.soft-limit=1s', 'dfs.shim.block.recovery.interval=2s']


def write_file(c, dns, path, blocks, repl=1, client='c1', report=True):
    """Write a file whose blocks have the given lengths; returns [(id, len, gs)] and their nodes."""
    st = c.create(path, client=client, repl=repl)
    prev, done, by = None, [], {d.uuid: d for d in dns}
    for n in blocks:
        lb = c.add_block(path, client, prev, file_id=st[13])
        b = lb.sub(1)
        nodes = [by[loc.sub(1)[3].decode()] for loc in lb.subs(3)]
        if report:
            for d in nodes:
                d.received((b[2], n, b[3]))
        done.append((b[2], n, b[3], nodes))
        prev = ext_block(lb, n)
    ok = c.complete(path, client, prev, file_id=st[13])
    return done, ok


def wait(cond, step=0.1, seconds=PATIENCE):
    """The first true value of cond(), or its last one."""
    end = time.monotonic() + seconds
    value = cond()
    while not value and time.monotonic() < end:
        time.sleep(step)
        value = cond()
    return value


def hold(c, client):
    """From now on this client's files are its own for another second."""
    c.call('renewLease', {1: client})


def deletions(dns, block):
    """The uuids of the nodes that have been ordered to delete a replica of @block, by what their heartbeats have brought."""
    for d in dns:
        d.heartbeat()
    return sorted(d.uuid for d in dns for cmd in d.commands if cmd[1] == 1 and cmd.sub(3)[1] == 2
                  for x in cmd.sub(3).subs(3) if x[1] == block)


def names(c, nn):
    C.check('mkdirs answers true', c.mkdirs('/a/b/c') == 1)
    C.check('mkdirs of an existing directory answers true', c.mkdirs('/a/b') == 1)
    s = c.stat('/')
    C.check('the root is inode 16385', s[13] == 16385 and s[1] == 1 and s[2] == b'')
    C.check('a missing path is an empty answer', c.stat('/none') is None and c.ls('/none') is None)
    f = c.create('/a/f')
    C.check('create answers the status of the new file', f[1] == 2 and f[13] > 16385 and f[10] == 1)
    C.check('complete of an empty file', c.complete('/a/f', file_id=f[13]) == 1)
    C.check('a listing is sorted', c.ls('/a') == ['b', 'f'])
    C.throws('create without overwrite of an existing file', 'FileAlreadyExistsException',
             lambda: c.create('/a/f', flags=1))
    C.throws('create over a directory', 'FileAlreadyExistsException', lambda: c.create('/a/b'))
    C.throws('mkdirs over a file', 'FileAlreadyExistsException', lambda: c.mkdirs('/a/f'))
    C.throws('mkdirs below a file', 'ParentNotDirectoryException', lambda: c.mkdirs('/a/f/x'))
    C.check('a question about a path below a file has an empty answer', c.stat('/a/f/x') is None)
    C.throws('a listing below a file', 'AccessControlException', lambda: c.ls('/a/f/x'))
    C.throws('a named attribute', 'XAttrNotFoundException',
             lambda: c.call('getXAttrs', {1: '/a', 2: {1: 0, 2: 'none'}}))
    C.throws('a relative path', 'InvalidPathException', lambda: c.mkdirs('a'))
    C.throws('delete of a full directory', 'PathIsNotEmptyDirectoryException', lambda: c.delete('/a', 0))
    C.throws('getBlockLocations of nothing', 'FileNotFoundException', lambda: c.locations('/none'))
    C.throws('an unknown method', 'RpcNoSuchMethodException', lambda: c.call('makeCoffee'))
    C.throws('too small a block', 'IOException', lambda: c.create('/a/g', block=1000))
    C.throws('too large a replication', 'IOException', lambda: c.create('/a/g', repl=1000))
    C.check('rename into a directory', c.rename('/a/f', '/a/b') == 1 and c.ls('/a/b') == ['c', 'f'])
    C.check('rename of nothing answers false', c.rename('/none', '/a/x') == 0)
    C.throws('rename2 of nothing', 'FileNotFoundException',
             lambda: c.call('rename2', {1: '/none', 2: '/a/x', 3: 0}))
    C.check('delete answers true, then false', c.delete('/a') == 1 and c.delete('/a') == 0)
    alice = Rpc(nn.addr, user='alice')
    C.throws('a stranger may not write the root', 'AccessControlException', lambda: alice.mkdirs('/x'))
    c.call('setPermission', {1: '/', 2: {1: 0o777}})
    alice.create('/hers', client='a1', mode=0o444)
    C.throws('a lease of a file that one may not write is recovered by nobody', 'AccessControlException',
             lambda: alice.call('recoverLease', {1: '/hers', 2: 'a2'}))
    C.check('but by its holder', alice.call('recoverLease', {1: '/hers', 2: 'a1'})[1] == 1)
    c.call('setPermission', {1: '/', 2: {1: 0o755}})
    c.delete('/hers')
    long = Rpc(nn.addr, user='u' * 60000)
    C.throws('a user name of 60,000 bytes', 'AccessControlException', lambda: long.mkdirs('/x'))
    huge = Rpc(nn.addr, user='u' * 70000)
    C.throws('more than 64 KiB from who is not known yet', 'RpcServerException', lambda: huge.mkdirs('/x'))
    C.throws('a client name of 70,000 bytes', 'HadoopIllegalArgumentException',
             lambda: c.create('/x', client='c' * 70000))
    C.throws('an owner of 70,000 bytes', 'HadoopIllegalArgumentException',
             lambda: c.call('setOwner', {1: '/', 2: 'o' * 70000}))
    for i in range(1200):
        c.mkdirs(f'/page/{i:05}')
    C.check('listings of more than a page', c.ls('/page') == [f'{i:05}' for i in range(1200)])
    s = c.call('getContentSummary', {1: '/page'}).sub(1)
    C.check('content summary counts directories', s[3] == 1201 and s[2] == 0)


def questions(c):
    d = c.call('getServerDefaults').sub(1)
    C.check('server defaults', d[1] == 128 << 20 and d[2] == 512 and d[4] == 3 and d[8] == 2)
    C.throws('HA state without HA', 'ServiceFailedException', lambda: c.call('getHAServiceState'))
    C.check('safe mode is off', c.call('setSafeMode', {1: 3})[1] == 0)
    for m, f in (('getErasureCodingPolicies', {}), ('getEZForPath', {1: '/'}), ('getXAttrs', {1: '/'}),
                 ('listXAttrs', {1: '/'}), ('getAclStatus', {1: '/'}), ('msync', {}),
                 ('getDelegationToken', {1: 'x'}), ('getErasureCodingPolicy', {1: '/'}),
                 ('getStoragePolicies', {}), ('getFsReplicatedBlockStats', {}), ('listEncryptionZones', {1: 0}),
                 ('getFsECBlockGroupStats', {}), ('getSlowDatanodeReport', {}), ('getDataEncryptionKey', {})):
        try:
            c.call(m, f)
        except RemoteError as e:
            C.check(f'{m} answers', False, str(e))


def create_with_block(c, path, repl=1):
    """Our own extension: the first block comes with the file."""
    return c.call('create', {1: path, 2: {1: 0o644}, 3: 'c1', 4: 3, 5: 1, 6: repl, 7: 1 << 20, 1000: 1})


def first_block(c, dns):
    got = create_with_block(c, '/fb', 2)
    file_id, lb = got.sub(1)[13], got.sub(1000)
    C.check('create brings the first block', len(lb.all(3)) == 2 and len(lb.all(8)) == 2 and not lb[2])
    C.check('addBlock gives the same one', c.add_block('/fb', file_id=file_id).sub(1)[2] == lb.sub(1)[2])
    for d in dns:
        if d.uuid in [x.sub(1)[3].decode() for x in lb.subs(3)]:
            d.received((lb.sub(1)[2], 9, lb.sub(1)[3]))
    C.check('it completes', c.complete('/fb', 'c1', ext_block(lb, 9), file_id) == 1 and c.stat('/fb')[3] == 9)
    got = create_with_block(c, '/fb')
    C.check('a file with a block that nobody has stays open', c.complete('/fb', 'c1', file_id=got.sub(1)[13]) == 0)
    f = {1: '/fb', 2: 'c1', 4: got.sub(1)[13], 1000: 1}
    C.check('unless that block was never used', c.call('complete', f)[1] == 1 and not c.locations('/fb').all(2))
    C.check('also when it is said twice', c.call('complete', f)[1] == 1 and c.stat('/fb')[3] == 0)
    got = create_with_block(c, '/fb')
    c.call('fsync', {1: '/fb', 2: 'c1', 3: 10, 4: got.sub(1)[13]})
    C.check('a block with bytes is kept', c.call('complete', {**f, 4: got.sub(1)[13]})[1] == 0
            and len(c.locations('/fb').all(2)) + len(c.locations('/fb').all(4)) > 0)
    c.delete('/fb')


def page(nn, path):
    with urllib.request.urlopen(f'http://{nn.http}{path}', timeout=PATIENCE) as r:
        return r.read().decode()


def bean(nn, name):
    return json.loads(page(nn, f'/jmx?qry=Hadoop:service=NameNode,name={name}'))['beans'][0]


def scheduled(nn):
    """Blocks for which room is promised, on all nodes."""
    return sum(n['blockScheduled'] for n in json.loads(bean(nn, 'NameNodeInfo')['LiveNodes']).values())


def promised_room(c, nn, dns):
    """A file that was opened, and not written, keeps nobody from the room that the disks have."""
    for d in dns:
        d.remaining = 10 << 20
        d.heartbeat()
    opened = [create_with_block(c, f'/room/{i}') for i in range(50)]
    C.check('a block to every opened file', all(o.all(1000) for o in opened))
    got = c.create('/room/written')
    C.check('room for a writer beside them', len(c.add_block('/room/written', file_id=got[13]).subs(3)) == 1)
    for i, o in enumerate(opened):
        c.call('complete', {1: f'/room/{i}', 2: 'c1', 4: o.sub(1)[13], 1000: 1})
    C.check('what they did not use is given back', scheduled(nn) == 1, scheduled(nn))
    c.delete('/room')
    C.check('also by a delete', scheduled(nn) == 0, scheduled(nn))
    for d in dns:
        d.remaining = d.capacity
        d.heartbeat()


def no_nodes(c):
    c.create('/alone')
    try:
        c.add_block('/alone')
        C.check('addBlock without data nodes fails', False)
    except RemoteError as e:
        C.check('addBlock without data nodes says so', 'could only be written to 0 of the 1 minReplication nodes'
                in e.text and 'There are 0 datanode(s) running' in e.text, e.text)
        C.check('and how many files keep room', re.search(r'\([1-9]\d* files are open\)', e.text), e.text)
    c.delete('/alone')
    got = create_with_block(c, '/alone')
    C.check('a file with its first block, without data nodes, is made without', got.sub(1)[13] and not got.all(1000))
    c.delete('/alone')


def files(c, nn, dns):
    C.check('report of live nodes', len(c.call('getDatanodeReport', {1: 2}).all(1)) == 3)
    blocks, ok = write_file(c, dns, '/f3', [1 << 20, 1 << 20, 7], repl=3)
    C.check('a file of three blocks completes', ok == 1)
    l = c.locations('/f3')
    C.check('its length and blocks', l[1] == (2 << 20) + 7 and len(l.all(2)) == 3 and not l[3] and l[5])
    lb = l.subs(2)[1]
    C.check('three locations with storages', len(lb.all(3)) == 3 and len(lb.all(8)) == 3 and len(lb.all(7)) == 3)
    C.check('a range of blocks', len(c.locations('/f3', 1 << 20, 1).all(2)) == 1)
    C.check('ids and stamps count up', [b[0] for b in blocks] == list(range(blocks[0][0], blocks[0][0] + 3))
            and blocks[0][0] > 1 << 30 and blocks[0][2] > 1000)
    # addBlock is idempotent
    st = c.create('/idem')
    one, two = c.add_block('/idem', file_id=st[13]), c.add_block('/idem', file_id=st[13])
    C.check('a repeated addBlock gives the same block', one.sub(1)[2] == two.sub(1)[2] and two.all(8))
    C.throws('addBlock with a wrong previous', 'IOException',
             lambda: c.add_block('/idem', previous=ext_block(l.subs(2)[0])))
    C.throws('a stranger\'s addBlock', 'LeaseExpiredException', lambda: c.add_block('/idem', 'c2', ext_block(one)))
    hold(c, 'c1')
    C.throws('create of an open file', 'AlreadyBeingCreatedException',
             lambda: c.create('/idem', client='c2', flags=1))
    b, end = one.sub(1), ext_block(one, 5)
    C.throws('complete with a stamp that nobody gave out', 'IOException',
             lambda: c.complete('/idem', 'c1', {**end, 3: end[3] + 1}))
    t0 = time.monotonic()
    C.check('complete waits for the report, then is false', c.complete('/idem', 'c1', ext_block(one, 5)) == 0
            and time.monotonic() - t0 > 1)
    for d in dns:
        d.received((b[2], 5, b[3]))
    C.check('complete after the report', c.complete('/idem', 'c1', ext_block(one, 5)) == 1)
    C.check('a repeated complete is true', c.complete('/idem', 'c1', ext_block(one, 5)) == 1)
    # surplus replicas of a file of one replica go
    wait(lambda: len(deletions(dns, b[2])) >= 2)
    C.check('surplus replicas are ordered deleted', len(deletions(dns, b[2])) == 2, deletions(dns, b[2]))
    # abandon
    st = c.create('/ab')
    lb = c.add_block('/ab', file_id=st[13])
    c.call('abandonBlock', {1: ext_block(lb), 2: '/ab', 3: 'c1', 4: st[13]})
    lb2 = c.add_block('/ab', file_id=st[13], exclude=dns[:2])
    C.check('after abandonBlock another block', lb2.sub(1)[2] != lb.sub(1)[2])
    C.check('excluded nodes are not chosen', [x.sub(1)[3].decode() for x in lb2.subs(3)] == [dns[2].uuid])
    # pipeline
    up = c.call('updateBlockForPipeline', {1: ext_block(lb2), 2: 'c1'}).sub(1)
    C.check('a new stamp for the pipeline', up.sub(1)[3] > lb2.sub(1)[3] and up[2] == (1 << 64) - 1)
    more = c.call('getAdditionalDatanode', {1: '/ab', 2: ext_block(lb2), 3: [dns[2].info()], 5: 1, 6: 'c1',
                                            7: [dns[2].storage], 8: st[13]}).sub(1)
    C.check('getAdditionalDatanode gives old and new', len(more.all(3)) == 2)
    new = ext_block(up, 10)
    c.call('updatePipeline', {1: 'c1', 2: ext_block(lb2), 3: new, 4: [dns[0].ident()], 5: [dns[0].storage]})
    dns[0].received((new[2], 10, new[3]))
    C.check('complete with the new stamp', c.complete('/ab', 'c1', new, st[13]) == 1)
    dns[2].received((new[2], 10, lb2.sub(1)[3]))
    C.check('the replica of the old stamp is ordered deleted', wait(lambda: deletions(dns[2:], new[2])))
    # fsync: visible to readers
    st = c.create('/open')
    lb = c.add_block('/open', file_id=st[13])
    c.call('fsync', {1: '/open', 2: 'c1', 3: 2000, 4: st[13]})  # zig-zag of 1000
    l = c.locations('/open')
    C.check('an open file: length without its last block', l[1] == 0 and l[3] == 1 and not l[5]
            and l.sub(4).sub(1)[4] == 1000 and len(l.sub(4).all(3)) == 1)
    C.check('getFileInfo counts what was flushed', c.stat('/open')[3] == 1000)
    c.delete('/open')
    C.throws('addBlock after delete', 'FileNotFoundException',
             lambda: c.add_block('/open', previous=ext_block(lb, 1000), file_id=st[13]))
    # append
    blocks, ok = write_file(c, dns, '/app', [100])
    a = c.call('append', {1: '/app', 2: 'c9'})
    C.check('append gives the last block', a.sub(1).sub(1)[2] == blocks[0][0] and a.sub(1).sub(1)[4] == 100
            and len(a.sub(1).all(8)) == 1)
    up = c.call('updateBlockForPipeline', {1: ext_block(a.sub(1)), 2: 'c9'}).sub(1)
    new = ext_block(up, 100)
    d = blocks[0][3][0]
    c.call('updatePipeline', {1: 'c9', 2: ext_block(a.sub(1)), 3: new, 4: [d.ident()], 5: [d.storage]})
    d.received((new[2], 150, new[3]))
    new[4] = 150
    C.check('an appended file completes', c.complete('/app', 'c9', new) == 1 and c.stat('/app')[3] == 150)


def bad_replicas(c, dns):
    blocks, _ = write_file(c, dns, '/bad', [50], repl=2)
    i, n, g, nodes = blocks[0]
    lb = c.locations('/bad').subs(2)[0]
    pool = lb.sub(1)[1]
    c.call('reportBadBlocks', {1: {1: {1: pool, 2: i, 3: g, 4: n}, 2: 0, 3: [nodes[0].info()], 4: 0,
                                   5: {1: b'', 2: b'', 3: '', 4: ''}, 8: [nodes[0].storage]}})
    l = c.locations('/bad').subs(2)[0]
    C.check('a bad replica is not shown', [x.sub(1)[3].decode() for x in l.subs(3)] == [nodes[1].uuid])
    target = wait_transfer(dns, i)
    C.check('a copy is ordered from the good one', target is not None and target[0] is nodes[1])
    new = {d.uuid: d for d in dns}[target[1]]
    new.received((i, n, g))
    C.check('then the bad one is ordered deleted', wait(lambda: deletions(nodes[:1], i)))


def wait_transfer(dns, block):
    """(source, target uuid) of the TRANSFER order of @block, which an earlier heartbeat may have brought."""
    def order():
        for d in dns:
            d.heartbeat()
            for cmd in d.commands:
                if cmd[1] == 1 and cmd.sub(3)[1] == 1:
                    for b, t in zip(cmd.sub(3).subs(3), cmd.sub(3).subs(4)):
                        if b[1] == block:
                            return d, t.subs(1)[0].sub(1)[3].decode()
        return None
    return wait(order, 0.2)


def wait_dead(c, beating):
    """Until a node that is not @beating is dead: how many are."""
    def dead():
        for d in beating:
            d.heartbeat()
        return len(c.call('getDatanodeReport', {1: 3}).all(1))
    return wait(dead, 0.3)


def places(lb):
    return [x.sub(1)[3].decode() for x in lb.subs(3)]


def stale_node(c, nn, rest, silent):
    """@silent has begun to miss heartbeats, and has a replica of /dead."""
    def told():
        for d in rest:
            d.heartbeat()
        live = c.call('getDatanodeReport', {1: 2}).subs(1)
        return [x.sub(1)[3].decode() for x in live if x[1000]]
    C.check('a silent node is told stale long before it is dead', wait(told, 0.3) == [silent.uuid], told())
    C.check('in the beans, on the page, in the metrics', bean(nn, 'FSNamesystemState')['NumStaleDataNodes'] == 1
            and 'stale, in service' in page(nn, '/') and 'dfs_namenode_stale_datanodes 1' in page(nn, '/metrics'))
    last = {places(c.locations('/dead').subs(2)[0])[-1] for _ in range(12)}
    C.check('reads go to it last', last == {silent.uuid}, last)
    ids = [c.create(f'/stale/{i}', repl=2)[13] for i in range(8)]
    new = {u for i, f in enumerate(ids) for u in places(c.add_block(f'/stale/{i}', file_id=f))}
    C.check('new blocks go to others', silent.uuid not in new, new)
    c.create('/stale/3', repl=3)
    C.check('unless there are too few', silent.uuid in places(c.add_block('/stale/3')))
    c.delete('/stale')


def dead_node(c, nn, dns):
    blocks, _ = write_file(c, dns, '/dead', [60], repl=2)
    i, n, g, nodes = blocks[0]
    rest = [d for d in dns if d is not nodes[0]]
    stale_node(c, nn, rest, nodes[0])
    C.check('a silent node is dead', wait_dead(c, rest) == 1)
    t = wait_transfer(rest, i)
    C.check('its replicas are copied', t is not None and t[0] is nodes[1])
    C.check('a dead node\'s heartbeat is told to register', [x[1] for x in nodes[0].heartbeat()] == [5])
    nodes[0].start([(i, n, g, 0)])
    C.check('it comes back', len(c.call('getDatanodeReport', {1: 2}).all(1)) == 3)


def lost_volume(c, dns):
    blocks, _ = write_file(c, dns, '/vol', [40], repl=3)
    i, n, g, nodes = blocks[0]
    d, first = nodes[0], nodes[0].storage
    d.storage = 'DS-second'
    d.heartbeat()
    C.check('a storage no longer in heartbeats is lost at once', len(c.locations('/vol').subs(2)[0].all(3)) == 2)
    d.storage = first
    d.heartbeat()
    d.report([(b[0], b[1], b[2], 0) for b in blocks])
    C.check('it comes back with its report', len(c.locations('/vol').subs(2)[0].all(3)) == 3)


def leases(c, dns):
    st = c.create('/left', client='gone', repl=2)
    lb = c.add_block('/left', 'gone', file_id=st[13])
    b = lb.sub(1)
    by = {d.uuid: d for d in dns}
    nodes = [by[x.sub(1)[3].decode()] for x in lb.subs(3)]
    for why, name in (('an empty client name', ''), ('a client name of 70,000 bytes', 'c' * 70000)):
        C.throws(f'recoverLease by {why}', 'HadoopIllegalArgumentException',
                 lambda n=name: c.call('recoverLease', {1: '/left', 2: n}))
    C.check('recoverLease starts and answers false', c.call('recoverLease', {1: '/left', 2: 'c2'})[1] == 0)
    primary = cmd = None
    for d in nodes:
        for x in d.heartbeat():
            if x[1] == 2:
                primary, cmd = d, x.sub(4).subs(1)[0]
    C.check('the primary gets the order', cmd is not None and cmd[1] > b[3] and len(cmd.sub(2).all(3)) == 2)
    C.throws('the old writer has lost its lease', 'LeaseExpiredException',
             lambda: c.add_block('/left', 'gone', ext_block(lb, 33), file_id=st[13]))
    pr = primary.rpc
    sync = {1: ext_block(lb), 2: cmd[1], 3: 33, 4: 1, 5: 0, 6: [d.ident() for d in nodes],
            7: [d.storage for d in nodes]}
    C.throws('a stale primary is refused', 'IOException',
             lambda: pr.call('commitBlockSynchronization', {**sync, 2: cmd[1] - 1}))
    pr.call('commitBlockSynchronization', sync)
    C.check('the file is closed with the agreed length', c.call('isFileClosed', {1: '/left'})[1] == 1
            and c.stat('/left')[3] == 33)
    C.check('both replicas are known', len(c.locations('/left').subs(2)[0].all(3)) == 2)
    # soft limit
    c.create('/soft', client='s1')
    time.sleep(1.2)
    C.throws('a create after the soft limit: nothing to recover, so the file is just there',
             'FileAlreadyExistsException', lambda: c.create('/soft', client='s2', flags=1))
    C.check('an append after the soft limit takes the file over', c.call('append', {1: '/soft', 2: 's3'}).sub(2))
    C.throws('its first writer has lost it', 'LeaseExpiredException', lambda: c.complete('/soft', 's1'))


def recovery_order(dns, block):
    """The node that is asked to recover @block, and its RecoveringBlock."""
    def order():
        for d in dns:
            for x in d.heartbeat():
                for r in x.sub(4).subs(1) if x[1] == 2 else []:
                    if r.sub(2).sub(1)[2] == block:
                        return d, r
        return None
    return wait(order) or (None, None)


def sync(d, pool, old, stamp, length, nodes, delete=0):
    i, n, g = old
    d.rpc.call('commitBlockSynchronization', {
        1: {1: pool, 2: i, 3: g, 4: n}, 2: stamp, 3: length, 4: 1, 5: delete, 6: [x.ident() for x in nodes],
        7: [x.storage for x in nodes]})


def truncate(c, dns, path, length):
    return c.call('truncate', {1: path, 2: length, 3: 'tc'})[1]


def cut(c, dns):
    """Truncation ends though its first primary is silent, and not at another length."""
    blocks, _ = write_file(c, dns, '/cut', [1 << 20, 500], repl=2)
    C.check('truncate inside a block is false', truncate(c, dns, '/cut', (1 << 20) + 100) == 0)
    C.check('asked again it is false', truncate(c, dns, '/cut', (1 << 20) + 100) == 0)
    hold(c, 'tc')
    C.throws('at another length', 'AlreadyBeingCreatedException', lambda: truncate(c, dns, '/cut', 5))
    i, n, g, nodes = blocks[1]
    first, one = recovery_order(dns, i)
    t = one.sub(3)
    C.check('its recovery says the length', t[3] == 100 and t[1] == i and t[2] == one[1] and one.sub(2).sub(1)[4] == n)
    second, two = recovery_order(dns, i)
    C.check('a silent primary: another node is asked', second is not first and second in nodes and two[1] > one[1]
            and two.sub(3)[3] == 100)
    C.throws('the silent one comes too late', 'IOException', lambda: sync(first, first.pool, (i, n, g), one[1], 100, nodes))
    C.throws('a primary that found no replica cannot take away bytes that are known of', 'IOException',
             lambda: sync(second, second.pool, (i, n, g), two[1], 0, [], delete=1))
    sync(second, second.pool, (i, n, g), two[1], 100, nodes)
    C.check('the file is closed and cut', c.call('isFileClosed', {1: '/cut'})[1] == 1 and c.stat('/cut')[3] == (1 << 20) + 100)
    C.check('at the border of a block at once', truncate(c, dns, '/cut', 1 << 20) == 1)
    everybody = sorted(d.uuid for d in nodes)
    C.check('the block beyond goes from all nodes', wait(lambda: deletions(dns, i) == everybody), deletions(dns, i))


def replace(c, path, part, at, count, **kw):
    """Our own call: @path gets the blocks of @part at the places @at."""
    l = c.locations(path)
    last = l.sub(4).sub(1) if l.sub(4) else None
    f = {1: path, 2: c.stat(path)[13], 3: l[1], 6: part, 7: b''.join(varint(i) for i in at), 8: count}
    if last:
        f.update({4: last[2], 5: last[3]})
    return c.call('replaceBlocks', {**f, **kw.pop('fields', {})}, **kw)


def block_ids(c, path):
    return [b.sub(1)[2] for b in c.locations(path).subs(2)]


def early_end(c, dns):
    """complete() that need not wait for the disk: where nothing but the end of the file depends on it."""
    def end(path, last=None, drop=0):
        f = {1: path, 2: 'ee', 4: c.stat(path)[13], 1000: drop, 1001: 1}
        if last:
            f[3] = last
        r = c.call('complete', f)
        return r[1], r[1000] or 0
    made = c.call('create', {1: '/ee/f', 2: {1: 0o644}, 3: 'ee', 4: 1, 5: 1, 6: 1, 7: 1 << 20, 1000: 1, 1001: 1})
    b = made.sub(1000).sub(1)
    node = next(d for d in dns if d.uuid == made.sub(1000).subs(3)[0].sub(1)[3].decode())
    node.received((b[2], 9, b[3]))
    last = ext_block(made.sub(1000), 9)
    C.check('a file ends early', end('/ee/f', last) == (1, 1))
    C.check('for everybody', c.call('isFileClosed', {1: '/ee/f'})[1] == 1 and c.locations('/ee/f')[1] == 9)
    C.check('said again it is durable', end('/ee/f', last) == (1, 0))
    c.call('create', {1: '/ee/g', 2: {1: 0o644}, 3: 'ee', 4: 1, 5: 1, 6: 1, 7: 1 << 20, 1000: 1})
    C.check('but not where a block goes with it', end('/ee/g', drop=1) == (1, 0))
    C.check('an empty one does', (c.create('/ee/h', client='ee', flags=1), end('/ee/h'))[1] == (1, 1))
    c.create('/ee/i', client='ee', flags=1)
    C.check('only who asks is answered early', c.call('complete', {1: '/ee/i', 2: 'ee', 4: c.stat('/ee/i')[13]})[1000] in (None, 0))
    c.delete('/ee')


def replaced(c, dns):
    """A file keeps some of its blocks: all three nodes have each."""
    old, _ = write_file(c, dns, '/rp/f', [1 << 20, 1 << 20, 7], repl=3)
    new, _ = write_file(c, dns, '/rp/t', [1 << 20], repl=3)
    c.call('setOwner', {1: '/rp/f', 2: 'somebody', 3: 'some'})
    before, part = c.stat('/rp/f'), c.stat('/rp/t')
    everybody = sorted(d.uuid for d in dns)
    stats = c.call('getFsStats')
    C.throws('a file that has changed', 'LeaseExpiredException', lambda: replace(c, '/rp/f', '/rp/t', [1], 3, fields={3: 8}))
    c.call('append', {1: '/rp/f', 2: 'rp', 3: 36})  # NEW_BLOCK: the last one stays as it is
    C.throws('or is being written', 'AlreadyBeingCreatedException', lambda: replace(c, '/rp/f', '/rp/t', [1], 3))
    c.complete('/rp/f', 'rp', file_id=before[13])
    C.check('a middle block is another one', replace(c, '/rp/f', '/rp/t', [1], 3, call_id=4000) is not None
            and block_ids(c, '/rp/f') == [old[0][0], new[0][0], old[2][0]])
    C.check('said twice it is done once', c.call('replaceBlocks', {1: '/rp/f', 2: 1, 3: 1, 6: '/rp/t', 8: 3}, call_id=4000, retry=1) is not None)
    st = c.stat('/rp/f')
    C.check('it has the other id, the same length and owner', st[13] == part[13] and st[3] == before[3] and st[5] == b'somebody')
    C.throws('the old id is gone', 'FileNotFoundException', lambda: c.stat(f'/.reserved/.inodes/{before[13]}'))
    C.check('and so is the other name', c.stat('/rp/t') is None)
    C.check('its old block goes from all nodes', wait(lambda: deletions(dns, old[1][0]) == everybody), deletions(dns, old[1][0]))
    C.check('and no other one', not [i for i in (old[0][0], old[2][0], new[0][0]) if deletions(dns, i)])
    now = c.call('getFsStats')
    C.check('nothing is missing, corrupt or short of replicas', (now[4], now[5], now[6]) == (stats[4], stats[5], stats[6]), now.f)
    C.throws('another replication does not fit', 'HadoopIllegalArgumentException',
             lambda: (write_file(c, dns, '/rp/t', [1 << 20], repl=1), replace(c, '/rp/f', '/rp/t', [1], 3)))
    c.delete('/rp/f')
    C.check('with the file all of its blocks go', wait(lambda: all(deletions(dns, i) == everybody for i in (old[0][0], old[2][0], new[0][0]))))
    c.delete('/rp')


def lasting(nn):
    """kill -9: a truncation goes on; joins, replaced blocks, quotas and policies stay."""
    nn.kill()
    nn.start()  # no nodes of what came before
    dns = [FakeDn(nn.addr, 6500 + 10 * i).start() for i in range(3)]
    c = Rpc(nn.addr)
    c.call('setSafeMode', {1: 1})
    cut_blocks, _ = write_file(c, dns, '/last/cut', [700], repl=1)
    a, _ = write_file(c, dns, '/last/a', [1 << 20], repl=1)
    b, _ = write_file(c, dns, '/last/b', [33], repl=1)
    c.call('concat', {1: '/last/a', 2: ['/last/b']})
    f, _ = write_file(c, dns, '/lastrp/f', [1 << 20, 33], repl=1)
    t, _ = write_file(c, dns, '/lastrp/t', [1 << 20], repl=1)
    replace(c, '/lastrp/f', '/lastrp/t', [0], 2)
    c.call('setQuota', {1: '/last', 2: 4, 3: 3 << 20})
    c.call('setStoragePolicy', {1: '/last', 2: 'COLD'})
    truncate(c, dns, '/last/cut', 70)
    nn.kill()
    nn.start()
    c = Rpc(nn.addr)
    all_blocks = [x for x in cut_blocks + a + b + f + t]
    again = []
    for d in dns:
        d.rpc.close()
        again.append(FakeDn(nn.addr, d.port, d.uuid).start([(x[0], x[1], x[2], 0) for x in all_blocks if d in x[3]]))
    c.call('setSafeMode', {1: 1})
    i, n, g, nodes = cut_blocks[0]
    C.check('the truncation is still going on', c.call('isFileClosed', {1: '/last/cut'})[1] == 0 and truncate(c, again, '/last/cut', 70) == 0)
    d, r = recovery_order(again, i)
    C.check('and ordered anew with its length', d is not None and r.sub(3) is not None and r.sub(3)[3] == 70)
    sync(d, d.pool, (i, n, g), r[1], 70, [d])
    C.check('and ends', c.stat('/last/cut')[3] == 70)
    C.check('joined files stay joined', c.stat('/last/a')[3] == (1 << 20) + 33 and c.stat('/last/b') is None)
    C.check('blocks that were replaced stay so', block_ids(c, '/lastrp/f') == [t[0][0], f[1][0]])
    again[1].received(f[0][:3])
    C.check('who has the old one still deletes it', wait(lambda: deletions(again, f[0][0]) == [again[1].uuid]), deletions(again, f[0][0]))
    c.delete('/lastrp')
    u = c.call('getQuotaUsage', {1: '/last'}).sub(1)
    C.check('quotas and their use stay', (u[1], u[2], u[3], u[4]) == (3, 4, (1 << 20) + 103, 3 << 20), u.f)
    C.check('a name more is within', c.mkdirs('/last/d') == 1)
    C.throws('two are not', 'NSQuotaExceededException', lambda: c.mkdirs('/last/e'))
    C.check('policies are inherited still', c.call('getStoragePolicy', {1: '/last/a'}).sub(1)[2] == b'COLD' and c.stat('/last/a')[16] == 2)
    c.delete('/last')
    C.check('a new directory of that name has none', c.mkdirs('/last') == 1 and c.stat('/last')[16] == 0)


def once(c, nn):
    """At most once, also when the answer was lost in a kill."""
    cid = os.urandom(16)
    a = Rpc(nn.addr, client_id=cid)
    first = a.create('/once', client='w', flags=1, call_id=77)
    nn.kill()
    nn.start()
    b = Rpc(nn.addr, client_id=cid)
    again = b.create('/once', client='w', flags=1, call_id=77, retry=1)
    C.check('a repeated create after kill -9 gives the first answer', again[13] == first[13])
    b.delete('/once', call_id=78)
    C.check('a repeated delete gives the first answer', b.delete('/once', call_id=78, retry=1) == 1)
    C.check('a new delete of the same finds nothing', b.delete('/once', call_id=79) == 0)


def restart(nn, dns):
    c = Rpc(nn.addr)
    blocks, _ = write_file(c, dns, '/keep', [77], repl=2)
    i, n, g, nodes = blocks[0]
    c.mkdirs('/keepdir')
    C.check('SIGTERM ends with status 0', nn.stop() == 0)
    nn.start()
    c = Rpc(nn.addr)
    C.check('in safe mode until blocks are reported', c.call('setSafeMode', {1: 3})[1] == 1)
    C.throws('no change in safe mode', 'SafeModeException', lambda: c.mkdirs('/no'))
    C.check('reads in safe mode', c.stat('/keep')[3] == 77)
    C.throws('no locations in safe mode are not a loss', 'SafeModeException', lambda: c.locations('/keep'))
    C.check('force out', c.call('setSafeMode', {1: 1})[1] == 0)
    d = FakeDn(nn.addr, nodes[0].port, nodes[0].uuid).start([(i, n, g, 0), (999999, 5, 1001, 0)])
    C.check('replicas are known again', len(c.locations('/keep').subs(2)[0].all(3)) == 1)
    C.check('an unknown replica survives the first report', not [x for x in d.heartbeat() if x[1] == 1])
    d.report([(i, n, g, 0), (999999, 5, 1001, 0)])
    cmds = [x for x in d.heartbeat() if x[1] == 1]
    C.check('and is deleted after the second', len(cmds) == 1 and cmds[0].sub(3).subs(3)[0][1] == 999999)
    c.delete('/keep')
    cmds = [x for x in d.heartbeat() if x[1] == 1]
    C.check('a deleted file\'s replica is ordered deleted', len(cmds) == 1 and cmds[0].sub(3).subs(3)[0][1] == i)


def make_large(c, top):
    """A tree of more names than one change looks at, or removes; how many."""
    for i in range(45):
        c.mkdirs(f'{top}/{i:02}' + '/d' * 60)
    return 1 + 45 * 61


def large_tree(nn):
    """It is deleted bit by bit: by its owner, below a quota, over a kill -9."""
    c, bob = Rpc(nn.addr), Rpc(nn.addr, user='bob')
    c.call('setSafeMode', {1: 1})
    c.mkdirs('/large')
    c.call('setPermission', {1: '/large', 2: {1: 0o777}})
    c.call('setQuota', {1: '/large', 2: 100000, 3: 1 << 50})
    before = bean(nn, 'FSNamesystem')['FilesTotal']

    def used():
        return c.call('getQuotaUsage', {1: '/large'}).sub(1)[1]
    names = make_large(bob, '/large/tree')
    C.check('a large tree', used() == 1 + names, used())
    C.check('is deleted by its owner', bob.delete('/large/tree') == 1 and c.ls('/large') == [])
    C.check('its names are given back when that is answered', used() == 1, used())
    make_large(bob, '/large/tree')
    c.mkdirs('/large/tree/44/hers/x', 0o700)
    C.throws('but not with what another has in it', 'AccessControlException', lambda: bob.delete('/large/tree'))
    C.check('and nothing of it went', used() == 1 + names + 2, used())
    c.call('setQuota', {1: '/large', 2: -1, 3: -1})
    C.check('without a quota nobody waits for the end', c.delete('/large/tree') == 1)
    nn.kill()
    nn.start()
    c = Rpc(nn.addr)
    C.check('it stays deleted', c.ls('/large') == [])
    c.call('setSafeMode', {1: 1})
    wait(lambda: bean(nn, 'FSNamesystem')['FilesTotal'] == before)
    C.check('and what is left of it goes after a start', bean(nn, 'FSNamesystem')['FilesTotal'] == before)
    c.delete('/large')


PROVIDER = 'org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager'
DP = 1  # DECOMMISSION_INPROGRESS of AdminState


def admin_state(c, dn):
    """The AdminState of a node, whether it lives or not."""
    for i in c.call('getDatanodeReport', {1: 1}).subs(1):
        if i.sub(1)[3].decode() == dn.uuid:
            return i[10] or 0
    return None


def wait_state(c, dn, state, beating, seconds=PATIENCE):
    def reached():
        for d in beating:
            d.heartbeat()
        return admin_state(c, dn) == state
    return wait(reached, 0.2, seconds)


def leaving(program, directory):
    """Nodes that are to leave: replaced while they are away, and back without a report."""
    hosts = directory + '/hosts.json'

    def say(c, a, b):
        with open(hosts, 'w') as f:
            f.write('[{"hostName": "127.0.0.1", "port": 6200, "adminState": "%s"},'
                    ' {"hostName": "127.0.0.1", "port": 6210, "adminState": "%s"}]' % (a, b))
        if c:
            c.call('refreshNodes')

    os.mkdir(directory + '/leaving')
    say(None, 'NORMAL', 'NORMAL')
    nn = NameNode(program, directory + '/leaving', FAST + [
        'dfs.hosts=' + hosts, 'dfs.namenode.hosts.provider.classname=' + PROVIDER,
        'dfs.namenode.decommission.interval=1s']).format().start()
    try:
        c = Rpc(nn.addr, CLIENT)
        a, b = (FakeDn(nn.addr, 6200 + 10 * i).start() for i in range(2))
        write_file(c, [a, b], '/two', [60], repl=2)
        say(c, 'IN_MAINTENANCE', 'NORMAL')
        C.check('a node enters maintenance', wait_state(c, a, 4, [a, b]))
        other = FakeDn(nn.addr, 6200, 'other').register()
        uuids = [x.sub(1)[3].decode() for x in c.locations('/two').subs(2)[0].subs(3)]
        C.check('a node that was replaced during its maintenance is forgotten', uuids == [b.uuid], str(uuids))
        say(c, 'NORMAL', 'NORMAL')
        other.heartbeat()
        other.report()
        c.delete('/two')

        a = other
        blocks, _ = write_file(c, [a, b], '/one', [60])
        only = blocks[0][3][0]
        rest = b if only is a else a
        rest.remaining = 0  # nothing can be copied there
        rest.heartbeat()
        say(c, *('DECOMMISSIONED' if d is only else 'NORMAL' for d in (a, b)))
        C.check('a node is decommissioned', wait_state(c, only, DP, [a, b]))
        C.check('the node is dead', wait_dead(c, [rest]) == 1)
        C.check('a dead node with the last replica is not decommissioned', not wait_state(c, only, 2, [rest], 2.5)
                and admin_state(c, only) == DP)
        only.register()
        only.heartbeat()
        C.check('nor when it is back and has not reported', not wait_state(c, only, 2, [a, b], 2.5))
        only.report([blocks[0][:3] + (0,)])
        C.check('nor when it has', not wait_state(c, only, 2, [a, b], 2.5))
        rest.remaining = 1 << 40
        rest.heartbeat()
        t = wait_transfer([only, rest], blocks[0][0])
        C.check('its replica is copied', t is not None and t[0] is only)
        rest.received(blocks[0][:3])
        C.check('then it is decommissioned', wait_state(c, only, 2, [a, b]))
    finally:
        nn.kill()
        if C.failed:
            print(open(directory + '/leaving/log').read()[-3000:])


def claim(program, directory):
    """A node is in dfs.hosts by the address that it calls from, not by the name that it gives itself."""
    with open(directory + '/include', 'w') as f:
        f.write('trusted.invalid\n')
    os.mkdir(directory + '/claim')
    nn = NameNode(program, directory + '/claim', FAST + ['dfs.hosts=' + directory + '/include']).format().start()
    try:
        dn = FakeDn(nn.addr, 6400)
        dn.ident = lambda: {1: '127.0.0.1', 2: 'trusted.invalid', 3: dn.uuid, 4: 6400, 5: 6401, 6: 6402}
        C.throws('a node that claims a listed name', 'DisallowedDatanodeException', dn.register)
        with open(directory + '/include', 'a') as f:
            f.write('127.0.0.1\n')
        Rpc(nn.addr, CLIENT).call('refreshNodes')
        C.check('a node at a listed address', dn.register() is dn)
    finally:
        nn.kill()


def slow_script(program, directory):
    """A topology script that answers and does not end: only the registration that asked waits."""
    script = directory + '/rack'
    with open(script, 'w') as f:
        f.write('#!/bin/sh\necho /r1\nexec >&-\nexec sleep 60\n')
    os.chmod(script, 0o755)
    os.mkdir(directory + '/script')
    nn = NameNode(program, directory + '/script', FAST + ['net.topology.script.file.name=' + script]).format().start()
    try:
        c = Rpc(nn.addr, CLIENT)
        dn = FakeDn(nn.addr, 6300)
        t = threading.Thread(target=dn.register)
        t.start()
        time.sleep(0.5)  # it is asked, and the script runs
        c.mkdirs('/while')
        C.check('a change while a topology script hangs', t.is_alive())
        t.join(PATIENCE)
        C.check('the registration is answered', not t.is_alive() and dn.heartbeat() is not None)
        racks = [i[8] for i in c.call('getDatanodeReport', {1: 1}).subs(1)]
        C.check('the node stands in the default rack', racks == [b'/default-rack'], str(racks))
        with open(script, 'w') as f:
            f.write('#!/bin/sh\necho /r1\nhead -c 200000 /dev/zero\n')
        c.call('refreshNodes')
        dn.register()
        racks = [i[8] for i in c.call('getDatanodeReport', {1: 1}).subs(1)]
        C.check('the first word of a long answer counts', racks == [b'/r1'], str(racks))
    finally:
        nn.kill()


def identity(nn):
    d = FakeDn(nn.addr, 7000, 'other')
    i = d.rpc.call('versionRequest').sub(1)
    d.pool = i[3].decode()
    s = i.sub(4)
    d.info_bytes = enc({1: s[1], 2: s[2], 3: 'CID-foreign', 4: s[4]})
    C.throws('a node of another cluster', 'UnregisteredNodeException',
             lambda: d.rpc.call('registerDatanode', {1: d.reg()}))


def program(nn, directory):
    r = subprocess.run(nn.args(), capture_output=True, text=True)
    C.check('a second NameNode on the directory: one clear line', r.returncode == 1 and 'in use by process' in r.stderr
            and r.stderr.count('\n') == 1, r.stderr)
    other = NameNode(nn.program, directory + '/2', nn.conf)
    os.mkdir(other.dir)
    r = subprocess.run(other.args(), capture_output=True, text=True)
    C.check('an unformatted directory: one clear line', r.returncode == 1 and '--format' in r.stderr
            and r.stderr.count('\n') == 1, r.stderr)
    other.format()
    r = subprocess.run(other.args() + ['--format'], capture_output=True, text=True)
    C.check('a second format is refused', r.returncode == 1 and '--force' in r.stderr, r.stderr)
    other.addr = nn.addr
    r = subprocess.run(other.args(), capture_output=True, text=True)
    C.check('port in use: clear', r.returncode == 1 and nn.addr in r.stderr and r.stderr.count('\n') <= 2, r.stderr)


def meta_save(nn, c):
    """It writes plain files of the log directory, which is the name directory unless told."""
    def save(name):
        return lambda: c.call('metaSave', {1: name})
    where = nn.dir + '/name/'
    with open(where + 'old', 'w') as f:
        f.write('x' * 100000)
    save('old')()
    with open(where + 'old') as f:
        text = f.read()
    C.check('metaSave replaces a file', 'files and directories' in text and 'Number of datanodes' in text and
            'xxx' not in text, text[-200:])
    os.mkfifo(where + 'pipe')
    os.symlink(where + 'old', where + 'link')
    os.link(where + 'old', where + 'hard')
    for name in ('pipe', 'link', 'hard', 'current', '../x', 'a/b', '', '.x', 'in_use.lock', 'x' * 300):
        C.throws('metaSave to "%s"' % name[:20], 'IOException', save(name))
    with open(where + 'old') as f:
        C.check('nothing else is changed', f.read() == text and not os.path.exists(nn.dir + '/x'))
    r = subprocess.run(nn.args() + ['--format', '--force'], capture_output=True, text=True)
    C.check('the lock is held', r.returncode == 1 and 'in use' in r.stderr, r)


def main():
    with tempfile.TemporaryDirectory(prefix='nn-rpc-') as directory:
        nn = NameNode(programs.program('namenode-shim/dfs-namenode'), directory, FAST).format().start()
        try:
            c = Rpc(nn.addr, CLIENT)
            names(c, nn)
            questions(c)
            no_nodes(c)
            once(c, nn)
            c = Rpc(nn.addr, CLIENT)
            dns = [FakeDn(nn.addr, 6000 + 10 * i).start() for i in range(3)]
            files(c, nn, dns)
            first_block(c, dns)
            promised_room(c, nn, dns)
            bad_replicas(c, dns)
            dead_node(c, nn, dns)
            lost_volume(c, dns)
            leases(c, dns)
            cut(c, dns)
            replaced(c, dns)
            early_end(c, dns)
            meta_save(nn, c)
            identity(nn)
            program(nn, directory)
            restart(nn, dns)
            large_tree(nn)
            lasting(nn)
            claim(nn.program, directory)
            slow_script(nn.program, directory)
            leaving(nn.program, directory)
        finally:
            if nn.proc.poll() is None:
                nn.kill()
            if C.failed or sys.exc_info()[0]:
                print(open(directory + '/log').read()[-3000:])
    return 1 if C.failed else 0


if __name__ == '__main__':
    sys.exit(main())
