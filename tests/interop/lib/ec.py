# SPDX-License-Identifier: Apache-2.0
"""Striped files on disk: which unit holds what, compared with what is there. See common/erasure/geometry.h."""
import os
import random

from interop import BUILD, HADOOP, check, path, run, until

EC_ADMIN = HADOOP + 'hdfs.tools.ECAdmin'
COMPARE = BUILD + '/tests/interop/ec_stripes'
CELL = 1 << 20
BLOCK = 2 * CELL
POLICIES = [('XOR-2-1-1024k', 'xor', 2, 1), ('RS-3-2-1024k', 'rs', 3, 2), ('RS-6-3-1024k', 'rs', 6, 3), ('RS-10-4-1024k', 'rs', 10, 4)]
CONF = {'dfs.blocksize': BLOCK, 'dfs.namenode.redundancy.interval.seconds': 3600,  # nothing is to be rebuilt meanwhile
        # Else a node that is busy for a moment is passed over, and a group begins without one of its parity units.
        'dfs.namenode.redundancy.considerLoad': 'false'}


def sizes(k):
    group = k * BLOCK
    return [0, 1, CELL - 1, CELL, CELL + 1, k * CELL - 1, k * CELL, k * CELL + 1, group - 1, group, group + 1, 2 * group + 7]


def set_policy(c, where, policy):
    c.stock(EC_ADMIN, '-enablePolicy', '-policy', policy, rc=0)
    c.sh('-mkdir', '-p', where, rc=0)
    c.stock(EC_ADMIN, '-setPolicy', '-path', where, '-policy', policy, rc=0)


def deal(data, k):
    """The units of a group, one cell after the other."""
    units = [bytearray() for _ in range(k)]
    for i in range(0, len(data), CELL):
        units[i // CELL % k] += data[i:i + CELL]
    return units


def replicas(c, meta=False):
    """{block id: bytes}, or {block id: bytes of the meta file}; no id may be on two nodes."""
    out = {}
    for node in c.nodes():
        for block, file in c.block_files(node).items():
            check(block not in out, '%d twice', block)
            if meta:
                file = next(os.path.join(os.path.dirname(file), x) for x in os.listdir(os.path.dirname(file))
                            if x.startswith('blk_%d_' % block) and x.endswith('.meta'))
            with open(file, 'rb') as f:
                out[block] = f.read()
    return out


def check_group(data, codec, k, m, group, blocks, stripes):
    """Compares what is on disk with @data, and writes the rows to @stripes for our coder to judge the parity."""
    units = deal(data, k)
    for i, unit in enumerate(units):
        check(blocks.pop(group + i, b'') == unit, 'unit %d of %d, %d bytes in the group, is not as dealt', i, group, len(data))
    parity = [blocks.pop(group + k + i, None) for i in range(m)]
    check(None not in parity, 'group %d has no parity unit %s', group, [i for i in range(m) if parity[i] is None])
    check(all(len(p) == len(units[0]) for p in parity), 'parity of %d is %s long, unit 0 %d', group, [len(p) for p in parity], len(units[0]))
    for at in range(0, len(units[0]), CELL):
        n = len(units[0][at:at + CELL])
        stripes.write(b'%s %d %d %d\n' % (codec.encode(), k, m, n))
        for u in units + parity:
            stripes.write(bytes(u[at:at + n]).ljust(n, b'\0'))
    return (len(units[0]) + CELL - 1) // CELL


def groups_of(c):
    """Ids of the groups of each file, in order, as fsck lists them."""
    out, name = {}, None
    for line in c.fsck('/', '-files', '-blocks').splitlines():
        if line.startswith('/') and ' bytes, ' in line:
            name = line.split(' ')[0]
            out[name] = []
        elif ':blk_-' in line:
            out[name].append(int(line.split(':blk_')[1].split('_')[0]))
    return out


def check_layout(c, contents, policies=None):
    """@contents: {policy: {path below /policy: bytes}}, all there is."""
    blocks, groups, rows = replicas(c), groups_of(c), 0
    with open(path('stripes'), 'wb') as stripes:
        for policy, codec, k, m in policies or POLICIES:
            for name, data in contents[policy].items():
                ids = groups['/%s/%s' % (policy, name)]
                check(len(ids) == -(-len(data) // (k * BLOCK)), '%s/%s: groups %s', policy, name, ids)
                for i, group in enumerate(ids):
                    rows += check_group(data[i * k * BLOCK:(i + 1) * k * BLOCK], codec, k, m, group, blocks, stripes)
    check(not blocks, 'nobody\'s blocks: %s', list(blocks))  # units of length 0 do not exist
    r = run(COMPARE, path('stripes'), rc=0, timeout=300)
    check(r.out == b'%d stripes agree\n' % rows, '%s', r)
    os.unlink(path('stripes'))


def content(file):
    with open(file, 'rb') as f:
        return f.read()


class Disk:
    """What is on all disks of a cluster now."""

    def __init__(self, c):
        self.data, self.meta, self.groups = replicas(c), replicas(c, meta=True), groups_of(c)


def check_same_units(disk, k, m, one, other):
    """Two files of the same content: every unit of one, and its meta file, is that of the other, byte for byte."""
    ids, others = disk.groups[one], disk.groups[other]
    check(len(ids) == len(others), '%s has groups %s, %s has %s', one, ids, other, others)
    for g, j in zip(ids, others):
        for u in range(k + m):
            check(disk.data.get(g + u) == disk.data.get(j + u), '%s and %s: unit %d', one, other, u)
            check(disk.meta.get(g + u) == disk.meta.get(j + u), '%s and %s: checksums of unit %d', one, other, u)


# ---- nodes that die while a file is written ----
def rbw_holders(c):
    """{node: units it is writing} of the group that began last"""
    found = {n: [b for b in c.block_files(n, 'rbw') if b < 0] for n in c.running if n.startswith('datanode')}
    last = max((b & ~15 for blocks in found.values() for b in blocks), default=0)
    return {n: [b & 15 for b in blocks if b & ~15 == last] for n, blocks in found.items() if any(b & ~15 == last for b in blocks)}


def feed(c, policy, k, m, lose, rest_rows=5, name='mid', first_rows=1, args=()):
    """Our client writes, and while it does, @lose of the nodes that write die. Returns what was written and the dead nodes."""
    where = '/%s/%s%d' % (policy, name, lose)
    row = k * CELL
    first, second = random.randbytes(first_rows * row + CELL // 2), random.randbytes(rest_rows * row + 4321)
    with c.popen('put', *args, '-', where) as p:
        p.write(first)
        # Data units of the first row and all parity are open; whoever comes first dies, so parity and data in turn.
        holders = until(lambda: [h for h in [rbw_holders(c)] if len(h) >= k + m], '%d units are being written' % (k + m))[0]
        dead = random.sample(sorted(holders), lose)
        print('%s: units %s die' % (where, sorted(u for n in dead for u in holders[n])))
        for node in dead:
            c.kill(node)
        _, err = p.p.communicate(second, timeout=120)  # all that it takes, when it gives up
        return where, first + second, dead, p.p.returncode, err.decode()
