#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the layout: all C is as clang-format lays it out by .clang-format, and no line of prose, of C or of a build file is
longer than 100 columns. Left out: tables and code of a page, strings that a person or a tool reads as one line, names that are longer, recorded data."""
import pathlib
import re
import shutil
import subprocess
import sys

from arguments import check_arguments

check_arguments(__doc__)
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ('common', 'datanode', 'client', 'namenode-shim', 'fuse', 'tools', 'tests')
VERSION = '14'  # other versions lay out some lines in another way
COLUMNS = 100
sources = sorted(p for f in FOLDERS for p in (ROOT / f).rglob('*.[ch]'))
pages = [p for p in (*ROOT.glob('*.md'), *ROOT.glob('docs/*.md'), *ROOT.glob('docs/design/*.md'),
                     *(ROOT / 'docs/reference' / n for n in ('namenode.md', 'store.md', 'client.md', 'fuse.md', 'erasure.md', 'locks.md')), ROOT / 'tests/README.md')
         if p.exists()]
bad = []


def width(line):
    return len(line.expandtabs(8))


for path in sources:
    for no, line in enumerate(path.read_text().splitlines(), 1):
        if width(line) > COLUMNS and '"' not in line and ' ' in line.strip():
            bad.append(f'{path.relative_to(ROOT)}:{no}: {width(line)} columns')
for path in pages:
    code = False
    for no, line in enumerate(path.read_text().splitlines(), 1):
        code ^= line.lstrip().startswith('```')
        if '```' in line.lstrip()[3:]:
            bad.append(f'{path.relative_to(ROOT)}:{no}: a fence within a line')
        if width(line) > COLUMNS and not code and not re.match(r'\s*(\||!?\[[^\]]*\]\()', line):
            bad.append(f'{path.relative_to(ROOT)}:{no}: {width(line)} columns')

tool = shutil.which('clang-format-' + VERSION) or shutil.which('clang-format')
version = subprocess.run([tool, '--version'], capture_output=True, text=True).stdout if tool else ''
if f'version {VERSION}.' in version:
    run = subprocess.run([tool, '--dry-run', '-Werror', *map(str, sources)], cwd=ROOT, capture_output=True, text=True)
    wrong = sorted(set(re.findall(r'^(\S+\.[ch]):\d+', run.stderr, re.M)))
    bad += ['%s: not as clang-format lays it out (clang-format -i)' % pathlib.Path(w).relative_to(ROOT) for w in wrong]
    if run.returncode and not wrong:
        bad.append(run.stderr.strip())
elif not bad:
    print(f'SKIP: clang-format {VERSION} is not installed (tools/deps does it)')
    sys.exit(77)
print(*bad or [f'{len(sources)} sources, {len(pages)} pages'], sep='\n')
sys.exit(1 if bad else 0)
