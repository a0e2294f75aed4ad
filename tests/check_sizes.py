#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the sizes: no C file is longer than 700 lines, and no function longer than 60. A file or a function that must be
longer says why in a comment of its own that begins with `Long:` (of a file: within the first 40 lines; of a function: right
above it). `--table` prints lines and functions by folder."""
import pathlib
import re
import sys

from arguments import check_arguments

args = check_arguments(__doc__, '--table')
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ('common', 'datanode', 'client', 'namenode-shim', 'fuse', 'tools', 'tests')
FILE, FUNCTION = 700, 60
TEST = re.compile(r'_test(_fixture)?\.[ch]$|_test_\w+\.[ch]$|^tests/|/simulator/')
bad, rows = [], {}


def functions(lines):
    """(name, first line, lines) of each definition: clang-format puts a function's last brace, and nothing else, in column 0."""
    begin = head = None
    for no, line in enumerate(lines):
        if begin is None and re.match(r'[A-Za-z_].*[(,]', line) and not line.startswith(('typedef', 'return')):
            head = no
        if begin is None and head is not None and line.endswith('{') and re.match(r'(.*\)|\s.*) \{$|\{$', line):
            begin = head
        if line == '}' and begin is not None:
            name = re.search(r'(\w+)\(', lines[begin])
            yield name.group(1) if name else '?', begin, no - begin + 1
            begin = head = None
        elif begin is None and re.match(r'\};|.*;$', line):
            head = None


def why(lines, first):
    """The comment that ends right above line `first`."""
    at = first
    while at and re.match(r'\s*(/\*|\*|//)', lines[at - 1]):
        at -= 1
    return ' '.join(lines[at:first])


for folder in FOLDERS:
    for path in sorted((ROOT / folder).rglob('*.[ch]')):
        name, lines = str(path.relative_to(ROOT)), path.read_text().splitlines()
        kind = (folder, 'tests' if TEST.search(name) else 'code')
        row = rows.setdefault(kind, {'files': 0, 'lines': 0, 'longest': 0, 'functions': []})
        row['files'] += 1
        row['lines'] += len(lines)
        row['longest'] = max(row['longest'], len(lines))
        if len(lines) > FILE and not any('Long:' in line for line in lines[:40]):
            bad.append(f'{name}: {len(lines)} lines')
        for function, first, size in functions(lines):
            row['functions'].append(size)
            if size > FUNCTION and 'Long:' not in why(lines, first):
                bad.append(f'{name}:{first + 1}: {function}() has {size} lines')

if args.table:
    print('| folder | | files | lines | longest | functions | median | p90 | longest |\n|---|---|---|---|---|---|---|---|---|')
    for (folder, kind), row in rows.items():
        f = sorted(row['functions']) or [0]
        print(f'| {folder} | {kind} | {row["files"]} | {row["lines"]} | {row["longest"]} | {len(row["functions"])} | '
              f'{f[len(f) // 2]} | {f[len(f) * 9 // 10]} | {f[-1]} |')
print(*bad or [f'{sum(r["files"] for r in rows.values())} files, {sum(len(r["functions"]) for r in rows.values())} functions'],
      sep='\n')
sys.exit(1 if bad else 0)
