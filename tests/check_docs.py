#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the pages to the tree: each link, path and file name of ours that a page names is there, each `function()` is in a
source, and each key of our own name space is one that the programs take. docs/reference is left out but for its design.md: it
tells of others' code, too; tests/data says itself what its names stand for."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ('common', 'datanode', 'client', 'namenode-shim', 'fuse', 'tools', 'tests', 'docs')
PAGES = [p for p in (*ROOT.glob('*.md'), *ROOT.glob('docs/*.md'), *ROOT.glob('docs/design/*.md'), ROOT / 'docs/reference/design.md')]
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
    return path in tree or any(t.startswith((path + '.', path + '-')) for t in tree)


for page in sorted(set(PAGES)):
    name, text = page.relative_to(ROOT).as_posix(), page.read_text()
    wrong = ['no such file or folder: ' + p for p in PATH.findall(text) if not is_there(p.rstrip('./'))]
    wrong += ['no such file: ' + f for f in re.findall(r'`([\w-]+\.(?:c|h|py|def|proto|md))`', text) if f not in names]
    wrong += ['no such link: ' + x for x in re.findall(r'\]\(([^)#]+)[^)]*\)', text)
              if not x.startswith('http') and not (page.parent / x).exists()]
    wrong += ['no such function: %s()' % f for f in re.findall(r'`(\w+)\(\)`', text) if f not in words and name != 'docs/reference/design.md']
    wrong += ['no such key: ' + k for k in KEY.findall(text) if k not in keys and not any(x.startswith(k + '.') for x in keys)]
    bad += ['%s: %s' % (name, w) for w in sorted(set(wrong))]
print(*bad or ['%d pages name what is there' % len(set(PAGES))], sep='\n')
sys.exit(1 if bad else 0)
