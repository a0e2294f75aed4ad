#!/usr/bin/env python3
"""Holds docs/compatibility.md to the code: every RPC method of the protocols it lists, every command and every
data transfer op stands there once, and says `works` or `refused` exactly if a dispatch table has it.

A row is `| name | state | remark |`; the state is `works`, `refused: CLASS` (the simple name of the Java class, or of the
status, that the caller gets), `ignored` (commands) or `not yet`. What is in no dispatch table is answered RpcNoSuchMethodException.
With --fix the states on the page are set to what the code says; remarks and missing rows stay a person's work."""
import pathlib
import re
import sys

from arguments import check_arguments

args = check_arguments(__doc__, '--fix')
ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / 'docs/compatibility.md'
bad = []


def read(name):
    return (ROOT / name).read_text()


def sources(folder):
    return {p.name: p.read_text() for p in sorted((ROOT / folder).rglob('*.c')) if not p.name.endswith('_test.c')}


# ---- what there is: Apache's descriptors ----

services, enums = {}, {}
for line in read('tests/data/messages.tsv').splitlines():
    col = line.split('\t')
    if col[0] == 'service-method':
        services.setdefault(col[2].split('.')[-1], []).append(col[3])
    elif col[0].startswith('enum'):
        enums.setdefault(col[2], []).append(col[3])

# ---- what the code does ----

# A method is 'answers', or 'throws NAME' if all that its function does is to throw.
JAVA_CLASS = {}
for k, v in re.findall(r'\[(EXC_\w+)\] = \{\s*(?:[A-Z]+ )?"([^"]+)"', read('namenode-shim/base/exception.c')):
    JAVA_CLASS[k] = re.split(r'[.$]', v)[-1]
for k, v in re.findall(r'#define (JEX_\w+)\s*\\?\s*"([^"]+)"', read('common/wire/rpc_frame.h')):
    JAVA_CLASS[k] = re.split(r'[.$]', v)[-1]


REPLIES = re.compile(r'\b(req_reply|rpc_reply|reply)\w*\(')


def function(text, fn):
    body = re.search(r'^(?:static )?(?:int|void) %s\(.*?^}' % re.escape(fn), text, re.M | re.S)
    return body and body[0]


def thrown_by(text, fn, depth=0):
    """The exceptions that function @fn of source @text, and what it calls in that source, may throw, in order; None:
    somewhere in there is an answer."""
    body = function(text, fn)
    if not body:
        return []
    if REPLIES.search(body):
        return None
    out = []
    for exc, called in re.findall(r'\b(EXC_\w+|JEX_\w+)\b|\b([a-z]\w+)\(', body.split('{', 1)[1]):
        if exc:
            out.append(exc)
        elif depth < 3 and called != fn:
            deeper = thrown_by(text, called, depth + 1)
            if deeper is None:
                return None
            out += deeper
    return out


def verdict(text, fn, row=''):
    """What function @fn of source @text does: 'answers', or the Java class it throws when it finds nothing else to say.
    A function that never makes an answer, nor calls one that does, cannot succeed."""
    # A macro that makes functions which only throw names the class: REFUSE(fn, EXC_X, ...).
    made = re.search(r'^REFUSE\w*\(%s,\s*(EXC_\w+)' % re.escape(fn), text, re.M)
    if made:
        return JAVA_CLASS[made[1]]
    thrown = thrown_by(text, fn)
    return JAVA_CLASS[thrown[-1]] if thrown else 'answers'


def shim_methods():
    """Java protocol name -> {method: verdict}, from the tables of namenode-shim that rpc_service.c names."""
    src, tables, protocols = sources('namenode-shim'), {}, {}
    for text in src.values():
        for array, body in re.findall(r'^static const struct method (\w+)\[\] = \{\n(.*?)^\};', text, re.M | re.S):
            name = re.search(r'struct method_table (\w+) = METHOD_TABLE\(%s\)' % array, text)[1]
            rows = re.findall(r'^\s*[A-Z_]+\((\w+),[^;{}]*?(\w+)\),$', body, re.M)
            rows += re.findall(r'\.name = "(\w+)"[^}]*?\.run = (\w+)', body)
            tables[name] = {m: verdict(text, fn) for m, fn in rows}
    front = re.search(r'protocols\[PROTOCOLS\] = \{(.*?)^\};', src['rpc_service.c'], re.M | re.S)[1]
    for name, used in re.findall(r'\{(?:[A-Z]+ )?"([\w.]+)",\s*\{([^}]*)\}\}', front):
        protocols[name.split('.')[-1]] = {m: v for t in re.findall(r'&(\w+)', used) for m, v in tables[t].items()}
    return protocols


def ipc_methods():
    out = {}
    for text in sources('datanode').values():
        for array, body in re.findall(r'struct ipc_method (\w+)\[\] = \{\n(.*?)^\};', text, re.M | re.S):
            for name, fn in re.findall(r'\{"(\w+)",\s*&\w+,\s*(\w+),\s*\w+\}', body):
                out.setdefault(array, {})[name] = verdict(text, fn)
    return out


def calls_of(folder):
    """Method names that a folder calls on others."""
    return {m: 'answers' for t in sources(folder).values()
            for m in re.findall(r'\b(?:actor_call|rpc_client_call)\(\s*[^,]+,\s*"(\w+)"', t)}


def dt_ops():
    """Op name -> verdict: the switch that starts ops."""
    out, pending = {}, []
    text = read('datanode/dtp/dtp_conn.c')
    for line in text.splitlines():
        case = re.match(r'\s*case DT_(\w+):', line)
        if case:
            pending.append(case[1])
        elif pending and line.strip() and '/*' not in line:
            what = 'ERROR_UNSUPPORTED' if 'dtp_shm_refuse' in line else None if 'dtp_break' in line else 'answers'
            out.update({op: what for op in pending})
            pending = []
    return {k: v for k, v in out.items() if v}


def commands():
    """Command of a NameNode -> 'answers', or 'ignored' where the case does nothing but log."""
    text, done, pending, body = read('datanode/bp/command.c'), {}, [], []
    for line in text.splitlines():
        case = re.match(r'\s*case HDD__DATANODE_COMMAND_PROTO__TYPE__(\w+):', line)
        if case:
            pending.append(case[1])
        elif pending and line.strip() == 'break;':
            idle = not re.sub(r'log_\w+\(.*?\);', '', ' '.join(body), flags=re.S).strip()
            done.update({c: 'ignored' if idle else 'answers' for c in pending})
            pending, body = [], []
        elif pending and not line.strip().startswith('case'):
            body.append(line)
    done.update({m: 'answers' for m in re.findall(r'BLOCK_COMMAND_PROTO__ACTION__(\w+)', text)})
    return done


shim, ipc = shim_methods(), ipc_methods()
ops = re.findall(r'DT_(\w+) = \d+', re.search(r'enum dt_op \{(.*?)\}', read('common/wire/dt.h'), re.S)[1])
for name, methods in (('ClientProtocol', shim['ClientProtocol']), ('client_methods', ipc['client_methods'])):
    if len(methods) < 8:
        bad.append(f'tests/check_compat.py finds only {len(methods)} methods of {name}: its patterns no longer fit')

# Heading of a section of the page -> (names that must stand there, name -> verdict).
SECTIONS = {
    'ClientProtocol': (services['ClientNamenodeProtocol'], shim['ClientProtocol']),
    'DatanodeProtocol': (services['DatanodeProtocolService'], shim['DatanodeProtocol']),
    'DatanodeLifelineProtocol': (services['DatanodeLifelineProtocolService'], shim['DatanodeLifelineProtocol']),
    'DatanodeProtocol, called': (services['DatanodeProtocolService'], calls_of('datanode/bp')),
    'Commands of a NameNode': (enums.get('hadoop.hdfs.datanode.DatanodeCommandProto.Type', []), commands()),
    'Actions of BlockCommand': (enums.get('hadoop.hdfs.datanode.BlockCommandProto.Action', []), commands()),
    'ClientDatanodeProtocol': (services['ClientDatanodeProtocolService'], ipc['client_methods']),
    'InterDatanodeProtocol': (services['InterDatanodeProtocolService'], ipc['inter_methods']),
    'ReconfigurationProtocol': (services['ReconfigurationProtocolService'], shim['ReconfigurationProtocol']),
    'DataTransferProtocol': (ops, dt_ops()),
    'NamenodeProtocol': (services['NamenodeProtocolService'], shim['NamenodeProtocol']),
    'HAServiceProtocol': (services['HAServiceProtocolService'], shim['HAServiceProtocol']),
    'RefreshAuthorizationPolicyProtocol': (services['RefreshAuthorizationPolicyProtocolService'],
                                           shim['RefreshAuthorizationPolicyProtocol']),
    'RefreshUserMappingsProtocol': (services['RefreshUserMappingsProtocolService'],
                                    shim['RefreshUserMappingsProtocol']),
    'RefreshCallQueueProtocol': (services['RefreshCallQueueProtocolService'], shim['RefreshCallQueueProtocol']),
    'GenericRefreshProtocol': (services['GenericRefreshProtocolService'], shim['GenericRefreshProtocol']),
    'GetUserMappingsProtocol': (services['GetUserMappingsProtocolService'], shim['GetUserMappingsProtocol']),
}

# ---- what the page says ----

STATES = {None: 'not yet', 'answers': 'works', 'ignored': 'ignored'}
FIX = args.fix


def wanted(have):
    return STATES.get(have, f'refused: `{have}`')


page, lines, section = {}, PAGE.read_text().splitlines(), None
for i, line in enumerate(lines):
    head = re.match(r'#+ ([^(]+?)(?: \(.*)?$', line)
    row = re.match(r'\| `(\w+)` \| (works|not yet|ignored|refused: `\w+`) \|', line)
    if head:
        section = head[1]
    elif row and section in SECTIONS:
        if row[1] in page.setdefault(section, {}):
            bad.append(f'{section}: {row[1]} stands there twice')
        page[section][row[1]] = row[2]
        if FIX and row[1] in SECTIONS[section][0]:
            page[section][row[1]] = wanted(SECTIONS[section][1].get(row[1]))
            lines[i] = f'| `{row[1]}` | {page[section][row[1]]} |' + line[row.end():]
    elif section in SECTIONS and re.match(r'\| `', line):
        bad.append(f'{section}: this row is not `| name | works, refused: CLASS or not yet | remark |`: {line}')
if FIX:
    PAGE.write_text('\n'.join(lines) + '\n')

for section, (names, code) in SECTIONS.items():
    said = page.get(section, {})
    if not names:
        bad.append(f'{section}: nothing known of it in tests/data/messages.tsv')
    for name in names:
        if name not in said:
            bad.append(f'{section}: {name} is missing; the code says: {wanted(code.get(name))}')
        elif said[name] != wanted(code.get(name)):
            bad.append(f'{section}: {name}: the page says "{said[name]}", the code: {wanted(code.get(name))} '
                       '(tests/check_compat.py --fix sets it)')
    for name in said:
        if name not in names:
            bad.append(f'{section}: {name} is no method of it')
rows = sum(len(s) for s in page.values())
print(*[f'docs/compatibility.md: {b}' for b in bad] or [f'{rows} rows agree with the dispatch tables'], sep='\n')
sys.exit(1 if bad else 0)
