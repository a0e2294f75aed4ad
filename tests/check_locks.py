#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds common/base/lock_order.def to the code: each mutex and rwlock that is declared is in one row, under its program and the
name of its declaration, each that is initialised is in the row of that place, and nothing else is; the pairs have no circle.
--seen FILE, which $LOCK_ORDER_SEEN named: which pairs a run has shown, which of them the table lacks, which pairs of the table
it has not shown, and what blocked under a lock."""
import pathlib
import re
import sys

from arguments import Arguments, build_folder

ask = Arguments(__doc__)
ask.add_argument('build', nargs='?', type=build_folder, help='not needed')
ask.add_argument('--seen', metavar='FILE')
args = ask.parse_args()
ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = 'common/base/lock_order.def'
TEST = re.compile(r'_test\.c$|_test_\w+\.h$|/test_\w+\.h$|/lock_order\.[ch]$')
DECLARED = re.compile(r'^\s*(?:static )?pthread_(?:mutex|rwlock)_t (\w+)(?: = PTHREAD_\w+)?;', re.M)
STATIC = re.compile(r'(\w+) = (?:\{\.(\w+) = )?PTHREAD_(?:MUTEX|RWLOCK)_INITIALIZER')

text = (ROOT / LIST).read_text()
rows = {name: (file, expr) for name, file, expr in re.findall(r'^LOCK\("([^"]+)", "([^"]+)", "([^"]+)"', text, re.M)}
pairs = re.findall(r'^UNDER\("([^"]+)", "([^"]+)"\)', text, re.M)
declared, made = {}, {}


def holder(source, at):
    """The struct, or the variable of a struct without a name, that position `at` is in; '' outside."""
    head = list(re.finditer(r'^(?:static )?struct (?:(\w+) )?\{', source[:at], re.M))
    end = source.find('\n}', head[-1].end()) if head else -1
    if end < at:
        return ''
    return head[-1][1] or re.match(r'\n\} (\w+)', source[end:])[1]


for folder in ('common', 'datanode', 'client', 'namenode-shim', 'fuse', 'tools'):
    for path in sorted((ROOT / folder).rglob('*.[ch]')):
        name, source = path.relative_to(ROOT).as_posix(), path.read_text()
        if TEST.search(name):
            continue
        for m in DECLARED.finditer(source):
            of = holder(source, m.start())
            declared['%s:%s' % (folder, of + '.' + m[1] if of else m[1])] = name
        for m in re.finditer(r'pthread_(?:mutex|rwlock)_init\(([^,]+),', source):
            made[name, m[1]] = name
        for m in STATIC.finditer(source):
            made[name, '&' + m[1] + ('.' + m[2] if m[2] else '')] = name

bad = ['%s: %s is not in %s' % (declared[n], n, LIST) for n in sorted(set(declared) - set(rows))]
bad += ['%s: nobody declares %s' % (LIST, n) for n in sorted(set(rows) - set(declared))]
bad += ['%s: %s is initialised, but in no row of %s' % (f, e, LIST) for f, e in sorted(set(made) - set(rows.values()))]
bad += ['%s: %s does not initialise %s' % (LIST, f, e) for f, e in sorted(set(rows.values()) - set(made))]
bad += ['%s: no such lock: %s' % (LIST, n) for p in pairs for n in p if n not in rows and n != '*']
under = {n: {b for a, b in pairs if b != n and a in (n, '*')} for n in rows}
for _ in rows:
    for n in rows:
        under[n] = under[n].union(*(under[b] for b in under[n] if b in under))
bad += ['%s: %s is above itself' % (LIST, n) for n in rows if n in under[n]]

if args.seen:
    try:
        seen = [line.split() for line in pathlib.Path(args.seen).read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as e:
        ask.error(f'{args.seen}: {e}')
    if any(len(s) != 4 for s in seen):
        ask.error(f'{args.seen} is not what $LOCK_ORDER_SEEN names')
    locks = {(a, b): (p, q) for a, b, p, q in seen if b[0] != '!'}
    for (a, b), (p, q) in sorted(locks.items()):
        known = (a, b) in pairs if a == b else b in under.get(a, ())
        print('%-7s %s over %s (%s, %s)' % ('seen' if known else 'WRONG', a, b, p, q))
        if not known:
            bad.append('%s: no pair allows %s over %s (%s, %s)' % (LIST, a, b, p, q))
    for a, b in pairs:
        if (a, b) not in locks and a != '*':
            print('unseen  %s over %s' % (a, b))
    for a, b, p in sorted({(a, b[1:], p) for a, b, p, q in seen if b[0] == '!'}):
        print('blocks  %s under %s (%s)' % (b, a, p))
print(*bad or ['%d locks, %d pairs' % (len(rows), len(pairs))], sep='\n')
sys.exit(1 if bad else 0)
