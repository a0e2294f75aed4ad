#!/usr/bin/env python3
"""Calls that this tree does not use: unbounded string functions, calls without an error, and
printf outside the programs that talk to a person."""
import pathlib
import re
import sys

from arguments import check_arguments

check_arguments(__doc__)
BANNED = re.compile(r'\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|alloca|ntohl|htonl|ntohs|htons|usleep)\s*\(')
PRINTF = re.compile(r'(?<![\w:])printf\s*\(')
ROOT = pathlib.Path(__file__).resolve().parent.parent
bad = []
for folder in ('common', 'datanode', 'client', 'namenode-shim', 'fuse', 'tools'):
    for path in sorted((ROOT / folder).rglob('*.[ch]')):
        name = path.relative_to(ROOT).as_posix()
        text = re.sub(r'/\*.*?\*/', lambda m: re.sub(r'[^\n]', ' ', m.group()), path.read_text(), flags=re.S)
        text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
        may_print = folder == 'tools' or name.endswith(('_test.c', '_bench.c', 'args.c', 'test_random.h')) or '/examples/' in name or '/simulator/' in name
        for no, line in enumerate(text.splitlines(), 1):
            if BANNED.search(line) or (PRINTF.search(line) and not may_print):
                bad.append(f'{name}:{no}: {line.strip()}')
print(*bad or ['no banned call'], sep='\n')
sys.exit(1 if bad else 0)
