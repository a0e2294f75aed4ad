# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages by the .proto files of the tree: as text, so that what two servers answered can be compared and
read; and made up, so that a server can be asked nonsense."""
import os
import random
import re

from hrpc import dec

PROTO = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..', 'common', 'wire', 'proto')
NUMBERS = ('bool', 'uint32', 'uint64', 'int32', 'int64', 'sint32', 'sint64', 'fixed32')
_messages, _enums = {}, {}


def _parse(text):
    text = re.sub(r'/\*.*?\*/', '', re.sub(r'//.*', '', text), flags=re.S)
    words = re.findall(r'"[^"]*"|[\w.]+|[{}=;\[\],<>()-]', text)
    stack, i = [], 0
    while i < len(words):
        w, scope = words[i], '.'.join(name for _, name in stack)
        if w in ('message', 'enum') and words[i + 2] == '{':
            stack.append((w, words[i + 1]))
            (_messages if w == 'message' else _enums)['.'.join(n for _, n in stack)] = {}
            i += 3
        elif w == '{':
            stack.append(('other', '?'))
            i += 1
        elif w == '}':
            stack.pop()
            i += 1
        elif stack and stack[-1][0] == 'message' and w in ('required', 'optional', 'repeated'):
            _messages[scope][int(words[i + 4])] = (words[i + 2], words[i + 1], w)
            i = words.index(';', i)
        elif stack and stack[-1][0] == 'enum' and words[i + 1] == '=':
            minus = words[i + 2] == '-'
            _enums[scope][int(words[i + 2 + minus], 0) * (-1 if minus else 1)] = w
            i += 3 + minus
        else:
            i += 1


def _load():
    if not _messages:
        for name in sorted(os.listdir(PROTO)):
            if name.endswith('.proto'):
                with open(os.path.join(PROTO, name)) as f:
                    _parse(f.read())


def _resolve(name, scope):
    parts = name.split('.')
    if parts[0] in ('hd', 'hc', 'hdd', 'hdl'):  # packages
        parts = parts[1:]
    around = scope.split('.')
    for k in range(len(around), -1, -1):
        full = '.'.join(around[:k] + parts)
        if full in _messages or full in _enums:
            return full
    return name


def _number(kind, v):
    if kind[0] == 's':
        return (v >> 1) ^ -(v & 1)
    return v - (1 << 64) if v >> 63 else v


def knows(message):
    _load()
    return message in _messages


def text(raw, message):
    """One line of name=value in the order of field numbers."""
    _load()
    out = []
    for num, values in sorted(dec(raw).items()):
        name, kind, _ = _messages[message].get(num, (str(num), '?', ''))
        full = _resolve(kind, message)
        for v in values:
            if kind in NUMBERS and isinstance(v, int):
                shown = str(_number(kind, v))
            elif isinstance(v, int):
                shown = _enums.get(full, {}).get(v, str(v))
            elif full in _messages:
                shown = '{' + text(v, full) + '}'
            elif kind in ('string', 'bytes'):
                shown = repr(v.decode('utf-8', 'replace'))
            else:
                shown = v.hex()
            out.append('%s=%s' % (name, shown))
    return ' '.join(out)


def requests():
    """Names of all messages FooRequestProto."""
    _load()
    return sorted(m for m in _messages if m.endswith('RequestProto') and '.' not in m)


INTEGERS = [0, 1, 2, 3, 10, 511, 1 << 20, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]


def made_up(message, texts, integers=(), depth=0):
    """Fields of a random message; @texts: what strings and bytes are taken from."""
    def value(kind):
        full = _resolve(kind, message)
        if kind in NUMBERS:
            return random.choice([*INTEGERS, *integers])
        if full in _enums:
            return random.choice([*_enums[full], 99])
        if full in _messages and depth < 4:
            return made_up(full, texts, integers, depth + 1)
        return random.choice(texts)
    out = {}
    for num, (_, kind, label) in _messages[message].items():
        if label == 'repeated':
            out[num] = [value(kind) for _ in range(random.choice((0, 1, 2, 3)))]
        elif label == 'required' or random.random() < 0.5:
            out[num] = value(kind)
    return out
