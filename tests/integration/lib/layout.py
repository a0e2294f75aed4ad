# SPDX-License-Identifier: Apache-2.0
"""An independent check of a data directory: hdfs-wire section 6, with a CRC32C of its own (dtp.py)."""
import os
import re
import struct

import dtp


class Replica:
    def __init__(self, pool, state, ident, gs, path):
        self.pool, self.state, self.id, self.gs, self.path = pool, state, ident, gs, path
        self.length = os.path.getsize(path)

    def data(self):
        with open(self.path, 'rb') as f:
            return f.read()


def properties(path):
    """A Java properties file."""
    out = {}
    with open(path, encoding='latin-1') as f:
        for line in f.read().split('\n'):
            if line and line[0] not in '#!':
                key, value = line.split('=', 1)
                out[key] = re.sub(r'\\(.)', r'\1', value)
    return out


def subdirs(ident):
    return 'subdir%d/subdir%d' % (ident >> 16 & 0x1F, ident >> 8 & 0x1F)


def check_version_files(root):
    """{keys of current/VERSION}, {pool: keys}"""
    top = properties(root + '/current/VERSION')
    assert top['layoutVersion'] == '-57' and top['storageType'] == 'DATA_NODE' and top['cTime'] == '0', top
    assert top['storageID'].startswith('DS-') and top['clusterID'].startswith('CID-') and top['datanodeUuid'], top
    pools = {}
    for pool in sorted(d for d in os.listdir(root + '/current') if d.startswith('BP-')):
        v = pools[pool] = properties('%s/current/%s/current/VERSION' % (root, pool))
        assert v['blockpoolID'] == pool and v['layoutVersion'] == '-57', v
        assert int(v['namespaceID']) >= 0 and int(v['cTime']) > 0, v
    return top, pools


def check_meta(path, data, state):
    """Header, one CRC per chunk, nothing else."""
    with open(path, 'rb') as f:
        meta = f.read()
    version, kind, bpc = struct.unpack('>HBI', meta[:7])
    assert version == 1 and kind in (0, 1, 2) and bpc > 0, (path, meta[:7])
    want = dtp.crcs(kind, data, bpc)
    assert meta[7:] == want, '%s: %d bytes of CRCs for %d bytes, or a wrong one' % (path, len(meta) - 7, len(data))


def replicas(root):
    """All replicas of a data directory; AssertionError where name, place, header or CRC is wrong."""
    out = []
    for pool in check_version_files(root)[1]:
        base = '%s/current/%s/current' % (root, pool)
        for state in ('finalized', 'rbw'):
            for folder, _, files in os.walk('%s/%s' % (base, state)):
                out += _folder(pool, state, folder, base, set(files))
    return out


def _folder(pool, state, folder, base, files):
    out, metas = [], set()
    for name in sorted(f for f in files if not f.endswith('.meta')):
        assert re.fullmatch(r'blk_-?\d+', name), 'odd file %s/%s' % (folder, name)
        ident = int(name[4:])
        place = os.path.relpath(folder, base)
        assert place == ('finalized/' + subdirs(ident) if state == 'finalized' else 'rbw'), (place, name)
        found = [m for m in files if re.fullmatch(r'%s_\d+\.meta' % re.escape(name), m)]
        assert len(found) == 1, '%s/%s has the meta files %s' % (folder, name, found)
        metas.add(found[0])
        r = Replica(pool, state, ident, int(found[0][len(name) + 1:-5]), os.path.join(folder, name))
        check_meta(os.path.join(folder, found[0]), r.data(), state)
        out.append(r)
    assert metas == {f for f in files if f.endswith('.meta')}, 'a meta file without its block in ' + folder
    return out
