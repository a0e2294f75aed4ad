#!/usr/bin/env python3
"""check_exports.py LIB HEADER...: what the library exports is what the headers declare, with a version."""
import re
import subprocess
import sys

lib, *headers = sys.argv[1:]
text = re.sub(r'/\*.*?\*/', '', '\n'.join(open(h).read() for h in headers), flags=re.S)
declared = set(re.findall(r'\bDFS_API\b[^;]*?\b(dfs_\w+)\(', text))
out = subprocess.run(['nm', '-D', '--defined-only', lib], check=True, capture_output=True, text=True).stdout
names = [line.split()[-1] for line in out.splitlines()]
exported = {n.split('@')[0] for n in names if '@@LIBDFSCLIENT_0' in n}
others = {n for n in names if '@@' not in n and n != 'LIBDFSCLIENT_0' and not n.startswith('__')}
for what, wrong in (('declared, not exported', declared - exported),
                    ('exported, not declared', exported - declared),
                    ('exported without a version', others)):
    for n in sorted(wrong):
        print(f'{lib}: {n}: {what}')
sys.exit(bool(declared - exported or exported - declared or others) or not declared)
