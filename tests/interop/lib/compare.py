# SPDX-License-Identifier: Apache-2.0
"""What two clusters answered, made comparable: text without times, ids and addresses, and the differences that are known.

A difference may stay when docs/compatibility.md lists its id with a reason (a row `| \\`SUITE/ID\\` | what differs | why |`
of any of its tables) and the line says what ours answers: another answer of ours is a new difference."""
import difflib
import os
import re
import socket
import threading
import time

from interop import SOURCE, Fail, check

STAY = re.compile(r'^\|\s*`(\w+/[\w.-]+)`\s*\|(.*)\|\s*$')


def listed(suite):
    """{id: reason} of docs/compatibility.md."""
    file = SOURCE + '/docs/compatibility.md'
    if not os.path.exists(file):
        return {}
    with open(file, encoding='utf-8') as f:
        rows = [STAY.match(line) for line in f]
    return {m[1].split('/', 1)[1]: m[2].rsplit('|', 1)[-1].strip() for m in rows if m and m[1].startswith(suite + '/')}


def _days():
    """Yesterday, today, tomorrow: times that a run makes; older ones were set by a line and are compared."""
    return [time.localtime(time.time() + d * 86400) for d in (-1, 0, 1)]


def _date(formats):
    return '(?:%s)' % '|'.join(time.strftime(f, d) for f in formats for d in _days())


RULES = [(re.compile(p), to) for p, to in [
    # An Apache NameNode leaves busy nodes out while it chooses, and says how far it came.
    (r'could only be written to \d+ of the', 'could only be written to N of the'),
    (r'(?m)(^[ \t]+at [\w.$/<>]+\(.*\)\n)+\n?', ''),  # a server's traces end with an empty line
    (r'(?m)^\s*\.\.\. \d+ more\n', ''),
    (r'BP-\d+-[\d.]+-\d+', 'POOL'),
    (r'blk_-?\d+(_\d+)?(\.meta)?', 'BLOCK'),
    (r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}', 'UUID'),
    (r'CID-UUID', 'CLUSTER'),
    (r'DFSClient_NONMAPREDUCE_-?\d+_\d+', 'CLIENT'),
    (r'\b(inode|[fF]ile[ iI]+[dD]|INodeId)[ =:]+\d+', r'\1 INODE'),
    (_date(['%Y-%m-%d']) + r'[ T]\d\d:\d\d(:\d\d([.,]\d+)?Z?)?', 'TIME'),
    (_date(['%a %b %d', '%a %b %e']) + r' \d\d:\d\d:\d\d \w+ \d{4}', 'TIME'),
    (_date(['%y%m%d']) + r'\d{6,7}\b', 'STAMP'),
    (r'(?<!\d)(%s)\d{8}(?!\d)' % '|'.join('%d' % (time.time() // 100000 + k) for k in (-1, 0, 1)), 'MILLIS'),
    (r'\bin \d+ milliseconds', 'in N milliseconds'),
    (r'\d+(\.\d+)? seconds', 'N seconds'),
]]


def normal(text, c):
    """@text as it would be on any cluster of the shape of @c."""
    if isinstance(text, bytes):
        text = text.decode(errors='surrogateescape')
    text = text.replace(c.dir, 'DIR').replace(c.rpc, 'NAMENODE')
    for n in c.kinds:
        for what, port in c.ports(n).items():
            text = re.sub(r'\b(?:[\w.-]+/)?(?:127\.0\.0\.1|localhost):%d\b' % port, '%s-%s' % (n.rstrip('0123456789'), what), text)
            text = re.sub(r'\b%d\b' % port, 'PORT', text)
    text = re.sub(r'(([xyz])\2{40,}/?)\1*', lambda m: '%s*%d' % (m[2], len(m[0])), text)
    text = text.replace(socket.gethostname(), 'HOST')
    for p, to in RULES:
        text = p.sub(to, text)
    return text


def read_table(file, make):
    """[@make(number, section, text) of each line] of a table: a line `== NAME` begins a section, # a comment."""
    lines, section = [], None
    with open(file, encoding='utf-8') as f:
        for number, text in enumerate(f, 1):
            text = text.rstrip('\n')
            if text.startswith('== '):
                section = text[3:]
            elif text and text[0] != '#':
                lines.append(make(number, section, text))
    return lines


MARK = re.compile(r'%(\w+)(?:=(?:"([^"]*)"|(\S+)))? +')


def take_marks(text):
    """{NAME: VALUE} of the marks `%NAME`, `%NAME=VALUE` and `%NAME="VALUE WITH BLANKS"` before a line, and the rest of it."""
    marks = {}
    while text.startswith('%'):
        m = MARK.match(text)
        check(m, 'no mark: %s', text)
        marks[m[1]] = m[2] if m[2] is not None else m[3] or True
        text = text[m.end():]
    return marks, text


def sections(lines):
    """Those of DFS_TEST_SECTIONS, else all; and whether these are all. A line has a .section."""
    only = [s for s in os.environ.get('DFS_TEST_SECTIONS', '').split(',') if s]
    unknown = set(only) - {x.section for x in lines}
    check(not unknown, 'no section %s', ', '.join(unknown))
    return [x for x in lines if not only or x.section in only], not only


def play(lines, players, verbose=False):
    """Every line by every player, the players side by side; [[answer of each line] of each player]."""
    answers, errors = [[] for _ in players], []

    def one(p, out):
        slow = []
        try:
            for line in lines:
                start = time.monotonic()
                out.append(p.answer(line))
                slow.append((time.monotonic() - start, line.text))
            if verbose:
                print('%s: %.1f s, the slowest: %s' % (p.c.kinds['namenode'], sum(t for t, _ in slow),
                                                       ', '.join('%.1f s %s' % x for x in sorted(slow)[:-6:-1])))
        except Exception as e:
            errors.append(e)
    threads = [threading.Thread(target=one, args=x) for x in zip(players, answers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return answers


class Verdict:
    """Collects what differs and decides at the end."""

    def __init__(self, suite):
        self.suite, self.reasons = suite, listed(suite)
        self.count, self.bad, self.stay, self.used = 0, [], {}, set()

    def line(self, line, ours, apache):
        """One comparison of @ours and @apache. The marks of the line: diff=ID (known=ID: in some runs) under which it may
        differ, and ours=RE, which fits the whole of our answer then."""
        title = '%s:%d: %s' % (line.section, line.number, line.text)
        sometimes, diff = 'known' in line.marks, line.marks.get('diff') or line.marks.get('known')
        self.count += 1
        if diff:
            self.used.add(diff)
        if ours == apache:
            if diff and not sometimes:
                self.bad.append('%s\n  no difference any more: take the mark %s away' % (title, diff))
            return
        why = self._why_not(diff, line.marks.get('ours'), ours)
        if diff and not why:
            self.stay.setdefault(diff, []).append(title)
            return
        self.bad.append('%s%s\n%s' % (title, why, _show(ours, apache)))

    def _why_not(self, diff, expected, ours):
        """Why a difference under the id @diff may not stay; empty: it may."""
        if not diff:
            return ''
        if diff not in self.reasons:
            return '\n  docs/compatibility.md does not list %s/%s' % (self.suite, diff)
        text = '\n'.join(x for x in (str(part).strip() for part in ours) if x)
        if not expected or not re.fullmatch(expected, text):
            return '\n  %%diff=%s with %%ours=%s, but ours is %r' % (diff, expected, text)
        return ''

    def end(self, all=True):
        """@all: every line ran, so that an id nobody uses is wrong."""
        if all:
            self.bad += ['docs/compatibility.md lists %s/%s, which no line uses' % (self.suite, i)
                         for i in sorted(set(self.reasons) - self.used)]
        print('%s: %d compared, %d the same, %d differ as listed (%s), %d differ otherwise' %
              (self.suite, self.count, self.count - len(self.bad) - sum(map(len, self.stay.values())),
               sum(map(len, self.stay.values())), ', '.join('%s %d' % (i, len(x)) for i, x in sorted(self.stay.items())), len(self.bad)))
        for b in self.bad:
            print('DIFFERENT ' + b.encode(errors='backslashreplace').decode())
        if self.bad:
            raise Fail('%d differences' % len(self.bad))


def _show(ours, apache):
    """The lines that differ, with two of their neighbours: - Apache's, + ours."""
    old, new = ([x for part in answer for x in str(part).splitlines()] for answer in (apache, ours))
    return '\n'.join('  ' + x for x in list(difflib.unified_diff(old, new, n=2, lineterm=''))[3:])
