#!/usr/bin/env python3
"""Holds the dependency directions of the house (docs/ARCHITECTURE.md): a file may include headers of
its own folder and of the folders listed for it, nothing else of the tree."""
import pathlib
import re
import sys

from arguments import check_arguments

check_arguments(__doc__)
# What the rooms of a program share.
DN = ['datanode/dn.h', 'datanode/live_settings.def', 'datanode/live_settings.h', 'datanode/admin/outliers.h', 'datanode/bp/bp.h']
NN = ['namenode-shim/nn.h', 'namenode-shim/req.h', 'namenode-shim/settings.h']
FUSE = ['fuse/mount.h', 'fuse/options.h']
MAY = {  # folder -> folders and headers it may include from, besides itself; the longest prefix wins
    'common/base': [],
    'common/http': ['common/base'],
    'common/wire': ['common/base', 'common/erasure'],
    'common/reactor': ['common/base'],
    'common/transport': ['common/base', 'common/reactor'],
    'common/rpc': ['common/base', 'common/wire', 'common/reactor', 'common/transport'],
    'common/link': ['common/base', 'common/wire', 'common/reactor', 'common/transport'],
    'common/erasure': ['common/base'],
    # The process, which knows all its rooms; dn.h is what the rooms share.
    'datanode': ['common', 'datanode/'],
    'datanode/store': ['common'],
    'datanode/block': ['common', 'datanode/store', *DN, 'datanode/data_port/data_port.h'],
    'datanode/dtp': ['common', 'datanode/store', *DN, 'datanode/block', 'datanode/reconstruct/reconstruct.h'],
    'datanode/capsule': ['common', 'datanode/store', *DN, 'datanode/block', 'datanode/dtp/dtp_internal.h'],
    'datanode/reconstruct': ['common', 'datanode/store', *DN, 'datanode/block', 'datanode/capsule/capsule_port.h'],
    'datanode/data_port': ['common', 'datanode/store', *DN, 'datanode/block', 'datanode/dtp/dtp.h',
                           'datanode/capsule/capsule_port.h', 'datanode/reconstruct/reconstruct.h'],
    'datanode/bp': ['common', 'datanode/store', *DN, 'datanode/data_port/data_port.h', 'datanode/block/hot_copies.h',
                    'datanode/block/token.h',
                    'datanode/reconstruct/reconstruct.h'],
    'datanode/admin': ['common', 'datanode/store', *DN, 'datanode/bp', 'datanode/data_port/data_port.h',
                       'datanode/block/operations.h'],
    # nn.h and req.h are what the rooms share; below them each room sees only those before it.
    'namenode-shim': ['common', 'namenode-shim/'],
    'namenode-shim/base': ['common'],
    'namenode-shim/db': ['common', *NN, 'namenode-shim/base', 'namenode-shim/namespace/dircache.h',
                         'namenode-shim/namespace/inode.h', 'namenode-shim/namespace/retry_cache.h'],
    'namenode-shim/namespace': ['common', *NN, 'namenode-shim/base', 'namenode-shim/db'],
    'namenode-shim/blocks': ['common', *NN, 'namenode-shim/base', 'namenode-shim/db', 'namenode-shim/namespace'],
    'namenode-shim/rpc': ['common', *NN, 'namenode-shim/base', 'namenode-shim/db', 'namenode-shim/namespace',
                          'namenode-shim/blocks'],
    'namenode-shim/web': ['common', *NN, 'namenode-shim/base', 'namenode-shim/db', 'namenode-shim/namespace',
                          'namenode-shim/blocks', 'namenode-shim/rpc/client_protocol_admin.h'],
    'client': ['common'],
    'client/include': [],
    'client/examples': ['client/include'],
    # fs.h holds what all files of a handle share, which belongs to the rooms above it.
    'client/src/fs': ['common', 'client/include', 'client/src/read/idle_streams.h', 'client/src/stream/local_replicas.h',
                      'client/src/stream/rdma.h', 'client/src/stream/sock.h', 'client/src/write/deferred_sync.h',
                      'client/src/write/early_close.h', 'client/src/write/packet.h'],
    'client/src/namespace': ['common', 'client/include', 'client/src/fs'],
    'client/src/stream': ['common', 'client/include', 'client/src/fs'],
    'client/src/read': ['common', 'client/include', 'client/src/fs', 'client/src/stream',
                        'client/src/striped/block_group.h', 'client/src/striped/striped_reader.h'],
    'client/src/write': ['common', 'client/include', 'client/src/fs', 'client/src/stream'],
    'client/src/striped': ['common', 'client/include', 'client/src/fs', 'client/src/stream', 'client/src/read',
                           'client/src/write'],
    'client/src/api': ['common', 'client/include', 'client/src'],
    'fuse': ['client/include', 'common/base', 'fuse/'],
    'fuse/requests': ['client/include', 'common/base', *FUSE, 'fuse/content/content.h', 'fuse/session/dev_fuse.h',
                      'fuse/session/request_table.h'],
    'fuse/content': ['client/include', 'common/base', *FUSE, 'fuse/requests/ops.h', 'fuse/session/state.h'],
    'fuse/session': ['client/include', 'common/base', *FUSE, 'fuse/content/content.h'],
    'tools': ['client/include', 'common'],
    'tests': [''],
}
ROOT = pathlib.Path(__file__).resolve().parent.parent
bad = []
files = sorted(p for d in {k.split('/')[0] for k in MAY} for p in (ROOT / d).rglob('*.[ch]'))
for path in files:
    name = path.relative_to(ROOT).as_posix()
    home = max((k for k in MAY if name.startswith(k + '/')), key=len)
    program = name.split('/')[0]
    test = name.endswith('_test.c') or '/test_' in name or '_test_' in name  # sees all of its program
    allowed = tuple(f if f.endswith(('.h', '.def', '/')) or not f else f + '/'
                    for f in [home, *MAY[home], *([program, 'common', 'client/include'] if test else [])])
    for inc in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
        if '/' in inc and not inc.startswith(allowed):
            bad.append(f'{name}: may not include {inc}')
print(*bad or [f'{len(files)} files, no forbidden include'], sep='\n')
sys.exit(1 if bad else 0)
