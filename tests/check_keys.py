#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds common/base/conf_keys.def to the code: each configuration key that a program reads by its name is listed there, once and
in order, and each one listed is read. --help-config prints that list, and misspelt keys are found with it."""
import pathlib
import re
import sys

from arguments import check_arguments

check_arguments(__doc__)
ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = 'common/base/conf_keys.def'
NOT_READ = {'hadoop.rpc.protection'}  # named in texts for people only
KEY = re.compile(r'"((?:dfs|fs|hadoop|io|ipc|net)\.[a-zA-Z][\w.-]*)"')

listed = re.findall(r'^CONF_KEY\("([^"]+)"', (ROOT / LIST).read_text(), re.M)
read = {}
for folder in ('common', 'datanode', 'client', 'namenode-shim', 'fuse', 'tools'):
    for path in sorted((ROOT / folder).rglob('*')):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in ('.c', '.h', '.def') and not name.endswith(('_test.c', '_test_fixture.h')) and name not in (LIST, 'common/base/conf_typo.c'):
            text = re.sub(r'old_names\[\]\[2\] = \{.*?\n\};', '', path.read_text(), flags=re.S)
            for key in KEY.findall(text):
                read.setdefault(key, name)
bad = ['%s: %s is read, but not in %s' % (where, key, LIST) for key, where in sorted(read.items())
       if key[-1] != '.' and key not in listed and key not in NOT_READ and not re.match(r'ipc\.[A-Z]', key)]
whole = tuple(k for k in read if k.endswith('.'))  # what a key is put together from
bad += ['%s: nobody reads %s' % (LIST, key) for key in listed if key not in read and not key.startswith(whole)]
bad += ['%s: %s is not in its place' % (LIST, b) for a, b in zip(listed, listed[1:]) if a >= b]
print(*bad or ['%d keys are listed and read' % len(listed)], sep='\n')
sys.exit(1 if bad else 0)
