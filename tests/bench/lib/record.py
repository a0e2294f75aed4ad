# SPDX-License-Identifier: Apache-2.0
"""What a benchmark leaves behind: one JSON file with its rows, and when, where, of which commit and by which command.

A record is {bench, date, commit, machine, command, conditions, rows}. A row is flat: words that say what was measured, and
figures. A figure is a number (measured once), a list (one number a round), or {median, low, high} where only those are known.
`times` of a row is a ratio taken within each round; without it the ratio is that of the medians."""
import datetime
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

from side import ROOT

FIELDS = ('bench', 'date', 'commit', 'machine', 'command', 'conditions', 'rows')


def middle(figure):
    """The median of a figure; None of none."""
    if isinstance(figure, dict):
        return figure['median']
    return statistics.median(figure) if isinstance(figure, list) else figure


def spread(figure):
    """(lowest, highest), or None where they are not known."""
    if isinstance(figure, dict):
        return figure['low'], figure['high']
    return (min(figure), max(figure)) if isinstance(figure, list) and len(figure) > 1 else None


def cell(figure, digits=0, unit=''):
    """As a table shows it: the median, and behind it lowest and highest where they are known."""
    if figure is None:
        return ''
    text = f'{middle(figure):.{digits}f}{unit}'
    ends = spread(figure)
    return f'{text} ({ends[0]:.{digits}f} to {ends[1]:.{digits}f})' if ends else text


def ratio(a, b):
    """Of two medians; None where one is missing, or too small to divide by."""
    a, b = middle(a), middle(b)
    return a / b if a and b else None


def gather(lines, by, column, figures):
    """Rows from single measurements. @lines that agree in the fields @by are one row; the figures of each go to the columns
    `COLUMN_FIGURE` of who was measured, which column() says: a number of one round, a list of several."""
    rows = {}
    for line in lines:
        row = rows.setdefault(tuple(line[k] for k in by), {k: line[k] for k in by})
        for name, get in figures.items():
            value = get(line)
            if value is not None:
                row.setdefault(f'{column(line)}_{name}', []).append(value)
    return [{k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in row.items()} for row in rows.values()]


def machine(directory):
    """Processors, memory, kernel and the file system that was measured."""
    model = re.search(r'^model name\s*: (.*)$', pathlib.Path('/proc/cpuinfo').read_text(), re.M)
    system = re.search(r'^PRETTY_NAME="(.*)"$', pathlib.Path('/etc/os-release').read_text(), re.M)
    memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / (1 << 30)
    kind = subprocess.run(['df', '--output=fstype', str(directory)], capture_output=True, text=True).stdout.split()[-1]
    return (f'{os.cpu_count()} cores ({model[1] if model else os.uname().machine}), {memory:.0f} GB, '
            f'{system[1] if system else "Linux"}, kernel {os.uname().release}, {kind}')


def commit():
    """The commit of the tree, with + when files of it are changed."""
    def git(*words):
        return subprocess.run(['git', '-C', str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    return git('rev-parse', '--short', 'HEAD') + ('+' if git('status', '--porcelain', '--untracked-files=no') else '')


def command():
    """The words that this script was called with, without --json and its file."""
    words = iter(sys.argv[1:])
    kept = []
    for word in words:
        if word == '--json':
            next(words, None)
        elif not word.startswith('--json='):
            kept.append(word)
    return shlex.join(['tests/bench/' + pathlib.Path(sys.argv[0]).name, *kept])


def rounded(value):
    """Four digits are more than a measurement holds; the files are read by people."""
    if isinstance(value, float):
        return float(f'{value:.4g}')
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    return {k: rounded(v) for k, v in value.items()} if isinstance(value, dict) else value


def new_record(bench, directory, conditions, rows):
    """A record of what was measured just now in @directory."""
    return {'bench': bench, 'date': datetime.date.today().isoformat(), 'commit': commit(), 'machine': machine(directory),
            'command': command(), 'conditions': rounded(conditions), 'rows': rounded(rows)}


def save(path, record):
    """One row a line, so that a difference shows which rows have changed."""
    head = {k: v for k, v in record.items() if k != 'rows'}
    text = json.dumps(head, indent=1, ensure_ascii=False)[:-2] + ',\n "rows": [\n'
    text += ',\n'.join('  ' + json.dumps(r, ensure_ascii=False) for r in record['rows']) + '\n ]\n}\n'
    pathlib.Path(path).write_text(text, encoding='utf-8')


def load(path):
    record = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
    missing = [f for f in FIELDS if f not in record]
    if missing:
        sys.exit(f'{path}: no {", ".join(missing)}: it is not what a script of tests/bench writes with --json')
    return record
