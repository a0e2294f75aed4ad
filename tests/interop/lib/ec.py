# SPDX-License-Identifier: Apache-2.0
"""Striped files on disk: which unit holds what, compared with what is there. See common/erasure/geometry.h."""
import os

from interop import BUILD, HADOOP, check, path, run

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
