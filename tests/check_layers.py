#!/usr/bin/env python3
"""Holds the dependency directions of the house (docs/ARCHITECTURE.md): a file may include headers of
its own folder and of the folders listed for it, nothing else of the tree."""
import pathlib
import re
import sys

MAY = {  # folder -> folders it may include from, besides itself; the longest prefix wins
    'common/base': [],
    'common/http': ['common/base'],
    'common/wire': ['common/base', 'common/erasure'],
    'common/reactor': ['common/base'],
    'common/transport': ['common/base', 'common/reactor'],
    'common/rpc': ['common/base', 'common/wire', 'common/reactor', 'common/transport'],
    'common/link': ['common/base', 'common/wire', 'common/reactor', 'common/transport'],
    'common/erasure': ['common/base'],
    'datanode/store': ['common'],
    'datanode/xfer': ['common', 'datanode/store', 'datanode/dn.h', 'datanode/live.def', 'datanode/live.h',
                      'datanode/outliers.h', 'datanode/nn/nn.h'],
    'datanode/nn': ['common', 'datanode/store', 'datanode/dn.h', 'datanode/live.def', 'datanode/live.h',
                    'datanode/outliers.h', 'datanode/xfer/xfer.h', 'datanode/xfer/rebuild.h', 'datanode/xfer/token.h'],
    'datanode': ['common'],
    'namenode-shim': ['common'],
    'client': ['common'],
    'client/include': [],
    'client/examples': ['client/include'],
    'fuse': ['client/include', 'common/base'],
    'tools': ['client/include', 'common'],
    'tests': [''],
}
ROOT = pathlib.Path(__file__).resolve().parent.parent
bad = []
files = sorted(p for d in {k.split('/')[0] for k in MAY} for p in (ROOT / d).rglob('*.[ch]'))
for path in files:
    name = path.relative_to(ROOT).as_posix()
    home = max((k for k in MAY if name.startswith(k + '/')), key=len)
    allowed = tuple(f if f.endswith('.h') or not f else f + '/' for f in [home, *MAY[home]])
    for inc in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
        if '/' in inc and not inc.startswith(allowed):
            bad.append(f'{name}: may not include {inc}')
print(*bad or [f'{len(files)} files, no forbidden include'], sep='\n')
sys.exit(1 if bad else 0)
