#!/usr/bin/env python3
"""Adds up meson's test logs (one JSON object a line); prints what failed or was skipped, and why;
the last line is the total. Exit 1 when anything failed or nothing ran."""
import json
import sys

GOOD, SKIP = {'OK', 'EXPECTEDFAIL'}, {'SKIP'}
count = {'passed': 0, 'failed': 0, 'skipped': 0}
for path in sys.argv[1:]:
    with open(path, encoding='utf-8') as log:
        for line in log:
            test = json.loads(line)
            kind = 'passed' if test['result'] in GOOD else 'skipped' if test['result'] in SKIP else 'failed'
            count[kind] += 1
            if kind == 'skipped':
                text = ((test.get('stdout') or '') + (test.get('stderr') or '')).strip().splitlines()
                print(f"SKIP {test['name']}: {text[-1] if text else 'no reason given'}")
            elif kind == 'failed':
                print(f"FAIL {test['name']}: {test['result']}")
print('{passed} passed, {failed} failed, {skipped} skipped'.format(**count))
sys.exit(1 if count['failed'] or not count['passed'] else 0)
