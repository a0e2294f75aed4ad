#!/usr/bin/env python3
"""Adds up meson's test logs (one JSON object a line); prints what failed, with its cases and what they said, or was skipped,
and why; the last line is the total. Exit 1 when anything failed or nothing ran."""
import json
import re
import sys

GOOD, SKIP = {'OK', 'EXPECTEDFAIL'}, {'SKIP'}
COLUMNS, LINES = 300, 5  # of a test that failed
CASE = re.compile(r'FAIL(?:ED)?\b[: ]')
NEXT = re.compile(r'(?:PASS|FAIL|FAILED|SKIP|Traceback|logs|repeat|also|seed)\b')
CMOCKA = re.compile(r'\[ +(ERROR|LINE|FAILED) +\] (?:--- )?(.*)')
CRASH = re.compile(r'ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error: |Assertion .* failed|^lock_order: ')


def cases(lines):
    """What of the output of a test says which of its cases failed: a text each. A message of tests/integration/lib/itest.py
    goes on in the next lines, one of cmocka is in the lines before."""
    found, said = [], []
    for i, line in enumerate(lines):
        mocked = CMOCKA.match(line)
        if mocked and mocked[1] != 'FAILED':
            said.append(mocked[2])
        elif mocked and said:
            found.append(f'{mocked[2]}: ' + ' '.join(said))
            said = []
        elif CASE.match(line):
            end = next((k for k in range(i + 1, len(lines)) if NEXT.match(lines[k])), len(lines))
            found.append(' '.join(lines[i:end]))
    return found or [line for line in lines if CRASH.search(line)] or lines[-2:]


def short(text):
    """In one line; of a long one its begin and its end."""
    text, half = ' '.join(text.split()), COLUMNS // 2 - 5
    return text if len(text) <= COLUMNS - 4 else f'{text[:half]} ... {text[-half:]}'


def main():
    count = {'passed': 0, 'failed': 0, 'skipped': 0}
    for path in sys.argv[1:]:
        with open(path, encoding='utf-8') as log:
            for line in log:
                test = json.loads(line)
                kind = 'passed' if test['result'] in GOOD else 'skipped' if test['result'] in SKIP else 'failed'
                count[kind] += 1
                text = ((test.get('stdout') or '') + '\n' + (test.get('stderr') or '')).strip().splitlines()
                if kind == 'skipped':
                    print(f"SKIP {test['name']}: {text[-1] if text else 'no reason given'}")
                elif kind == 'failed':
                    said = cases([s for s in text if s.strip()])
                    print(f"FAIL {test['name']}: {test['result']}")
                    if len(said) >= LINES:
                        said[LINES - 2:] = [f'and {len(said) - LINES + 2} more']
                    for s in said:
                        print(f'  {short(s)}')
    print('{passed} passed, {failed} failed, {skipped} skipped'.format(**count))
    sys.exit(1 if count['failed'] or not count['passed'] else 0)


main()
