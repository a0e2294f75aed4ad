#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the pages to the tree: each link, path and file name of ours that a page names is there, each `function()` is in a
source, and each key of our own name space is one that the programs take. Each test that docs/guarantees.md or tests/README.md
names exists, guarantees that a comment cites by number are there, and the constants of docs/wire.md are those of the code.
tests/data says itself what its names stand for.
With the build directory as argument the names of tests are checked."""
import fnmatch
import json
import pathlib
import re
import sys

from arguments import check_arguments

args = check_arguments(__doc__)
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ('common', 'datanode', 'client', 'namenode-shim', 'fuse', 'tools', 'tests', 'docs')
REFERENCE = ('design.md', 'namenode.md', 'store.md', 'client.md', 'fuse.md', 'erasure.md', 'locks.md')  # the others tell of others' code, too
PAGES = [p for p in (*ROOT.glob('*.md'), *ROOT.glob('docs/*.md'), *ROOT.glob('docs/design/*.md'), *(ROOT / 'docs/reference' / n for n in REFERENCE), ROOT / 'tests/README.md')
         if p.exists()]
PATH = re.compile(r'(?<![\w/.$-])(?:%s)/[\w./-]+' % '|'.join(FOLDERS))
KEY = re.compile(r'`(dfs\.(?:rdma|shim|client\.rdma)[\w.-]*\w)(?:=[^`]*)?`')

tree = {p.relative_to(ROOT).as_posix() for f in FOLDERS for p in (ROOT / f).rglob('*')}
names = {t.rsplit('/', 1)[-1] for t in tree}
words = set()
for t in tree:
    if t.endswith(('.c', '.h', '.def')):
        words.update(re.findall(r'\w+', (ROOT / t).read_text()))
keys = set(re.findall(r'CONF_KEY\("([^"]+)"', (ROOT / 'common/base/conf_keys.def').read_text()))
bad = []


def is_there(path):
    """As it stands, without its ending (`common/wire/ec_msg`), or by the number that a page of docs/design begins with."""
    return path in tree or any(t.startswith((path + '.', path + '-', *([path] if path.endswith('_') else []))) for t in tree)


for page in sorted(set(PAGES)):
    name, text = page.relative_to(ROOT).as_posix(), page.read_text()
    wrong = ['no such file or folder: ' + p for p in PATH.findall(re.sub(r'\]\([^)]*\)', ']', text)) if not is_there(p.rstrip('./'))]
    wrong += ['no such file: ' + f for f in re.findall(r'`([\w-]+\.(?:c|h|py|def|proto|md))`', text) if f not in names]
    wrong += ['no such link: ' + x for x in re.findall(r'\]\(([^)#]+)[^)]*\)', text)
              if not x.startswith('http') and not (page.parent / x).exists()]
    wrong += ['no such function: %s()' % f for f in re.findall(r'`(\w+)\(\)`', text) if f not in words and name != 'docs/reference/design.md']
    wrong += ['no such key: ' + k for k in KEY.findall(text) if k not in keys and not any(x.startswith(k + '.') for x in keys)]
    bad += ['%s: %s' % (name, w) for w in sorted(set(wrong))]


def read(name):
    return (ROOT / name).read_text()


KINDS = 'unit|lint|fuzz|integration|interop|memory|mount|big|rdma|stress|simulator'


def named_tests(text):
    """(suites, test, [its cases]) of `suite: test `case`, test; suite: ...`; what stands in parentheses is left out."""
    for part in re.split(r'; |\. ', re.sub(r'\([^()]*\)', '', text)):
        m = re.search(r'(?:^|\s)((?:%s)(?:, (?:%s))*): (.*)' % (KINDS, KINDS), part)
        for item in re.split(r', (?!`)', m[2]) if m else []:
            name = re.match(r'\s*([\w*]+)', item)
            if name:
                yield m[1].split(', '), name[1], re.findall(r'`(\w+)`', item)


rows = dict(re.findall(r'^\| (\d+) \| .*? \| ([^|]*) \|$', read('docs/guarantees.md'), re.M))
held = {}  # (suite, test): numbers of its guarantees
if args.build:
    tests = [(t['suite'][0].split(':')[-1], t['name'])
             for t in json.loads((pathlib.Path(args.build) / 'meson-info/intro-tests.json').read_text())]
    told = words | set(re.findall(r'\w+', ' '.join(
        p.read_text(errors='replace') for d in ('integration', 'interop', 'fuse', 'rdma') for p in (ROOT / 'tests' / d).rglob('*')
        if p.is_file() and p.suffix in ('', '.py', '.c'))))
    for no, text in rows.items():
        for kinds, test, cases in named_tests(text):
            for kind in kinds:
                hits = [t for t in tests if t[0] == kind and fnmatch.fnmatch(t[1], test)]
                for hit in hits:
                    held.setdefault(hit, set()).add(int(no))
                if not hits:
                    bad.append(f'docs/guarantees.md: {no}: no such test: {kind}: {test}')
            bad += [f'docs/guarantees.md: {no}: no such case: {c}' for c in cases if c not in told]
    shown, kind = {}, ''
    for line in read('tests/README.md').splitlines():
        kind = line[4:] if line.startswith('### ') else kind
        m = re.match(r'\| (?:\[(\w+)\]\([^)]*\)|(\w+)) \| .* \| ([\d, ]*) ?\| \d* ?\|$', line)
        if m:
            shown[kind, m[1] or m[2]] = {int(n) for n in m[3].split(',') if n.strip()}
    for t in sorted(set(tests) | set(shown)):
        if t[0] in ('unit', 'lint', 'fuzz', 'fuzzers'):
            continue
        if t not in tests:
            bad.append('tests/README.md: no such suite: %s: %s' % t)
        elif t not in shown:
            bad.append('tests/README.md: no row for %s: %s' % t)
        elif shown[t] != held.get(t, set()):
            bad.append('tests/README.md: %s: %s holds %s by docs/guarantees.md' % (*t, sorted(held.get(t, ())) or 'none'))
for t in sorted(tree):
    if t.endswith(('.c', '.h')) or (t.startswith('tests/') and (ROOT / t).is_file() and '.' not in t.rsplit('/', 1)[-1]):
        for no in re.findall(r'guarantees? (\d+)', (ROOT / t).read_text(errors='replace')):
            if no not in rows:
                bad.append(f'{t}: no guarantee {no}')

# docs/wire.md and common/wire/capsule.h
page, code = read('docs/wire.md'), read('common/wire/capsule.h')
value = {k: int(eval(re.sub(r'(?<=[0-9a-fA-F])u', '', v)))  # shifts of numbers
         for k, v in re.findall(r'\bCAPSULE_(\w+)(?:\s*=)?\s+(\(?(?:0x[\da-fA-F]+|\d+)u?(?: << \d+)?\)?)', code)}
said = dict((n, int(v)) for v, n in re.findall(r'^\*\*(\d+) ([A-Z_]+) \(', page, re.M))
said.update((n, 1 << int(b)) for b, n in re.findall(r'(\d) ([A-Z_]+)', re.search(r'^Flags: (.*)$', page, re.M)[1]))
for name, pattern in (('HEADER_LEN', r'^Header, (\d+) bytes'), ('PRIVATE_LEN', r'REQ and REP carry (\d+) bytes'),
                      ('REJECT_LEN', r'REJ carries\s+(\d+) bytes'), ('MAX_DEFAULT', r'default capsule_max is (\d+)'),
                      ('VERSION', r'^\| 4 \| 2 \| version \| (\d+) \|'), ('MAGIC', r'(0x[0-9a-fA-F]+) "DFSR"'),
                      ('PIECE_MAX', r'data length \| 0\.\.(\d+);'), ('CRC_MAX', r'CRC bytes \| 0\.\.(\d+),'),
                      ('CREDITS_LEAST', r'granted at the start; (\d+)\.\.'), ('CREDITS_MOST', r'granted at the start; \d+\.\.(\d+)'),
                      ('MAX_LEAST', r'can receive; (\d+)\.\.\d+, multiple'), ('MAX_MOST', r'can receive; \d+\.\.(\d+), multiple'),
                      ('INLINE_MOST', r'can receive; 0\.\.(\d+) '), ('HOPS_MAX', r'hops \| 1\.\.(\d+)'),
                      ('TEXT_MAX', r'at most (\d+)\s+bytes, for people')):
    m = re.search(pattern, page, re.M)
    said[name] = int(m[1], 0) if m else None
bad += [f'docs/wire.md: CAPSULE_{n} is {value.get(n)} in common/wire/capsule.h, the page says {v}'
        for n, v in sorted(said.items()) if value.get(n) != v]
print(*bad or ['%d pages name what is there' % len(set(PAGES))], sep='\n')
sys.exit(1 if bad else 0)
