# SPDX-License-Identifier: Apache-2.0
"""Hadoop RPC v9 spoken by hand, a NameNode process under test, and a data node that is only words.

Messages are encoded field by field from hdfs-wire sections 1 and 3, not with the code under test.
A message is a dict {field number: value}; a value is an int (varint), bytes/str, a dict, or a list
of these. Decoding gives {field number: [values]}: ints, or bytes to decode further.
"""
import json
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time

PATIENCE = 150  # seconds for what takes less than one on an idle machine
CLIENT = 'org.apache.hadoop.hdfs.protocol.ClientProtocol'
DATANODE = 'org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol'


# ---- protobuf ----
def varint(v):
    out = bytearray()
    v &= (1 << 64) - 1
    while v > 0x7F:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)
    return bytes(out)


def zigzag(v):
    return (v << 1) ^ (v >> 63)


def enc(fields):
    out = b''
    for num, value in fields.items():
        for v in value if isinstance(value, list) else [value]:
            if isinstance(v, dict):
                v = enc(v)
            elif isinstance(v, str):
                v = v.encode()
            if isinstance(v, (bytes, bytearray)):
                out += varint(num << 3 | 2) + varint(len(v)) + v
            else:
                out += varint(num << 3) + varint(int(v))
    return out


def get_varint(b, i):
    v = shift = 0
    while True:
        v |= (b[i] & 0x7F) << shift
        shift += 7
        i += 1
        if not b[i - 1] & 0x80:
            return v, i


def dec(b):
    out, i = {}, 0
    while i < len(b):
        tag, i = get_varint(b, i)
        if tag & 7 == 0:
            v, i = get_varint(b, i)
        elif tag & 7 == 2:
            n, i = get_varint(b, i)
            v, i = b[i:i + n], i + n
        else:
            raise ValueError(f'wire type {tag & 7}')
        out.setdefault(tag >> 3, []).append(v)
    return out


class Msg:
    """A decoded message: m[3] first value (None if absent), m.all(3) all, m.sub(3) first as Msg."""

    def __init__(self, b):
        self.f = dec(b)

    def __getitem__(self, n):
        return self.f.get(n, [None])[0]

    def all(self, n):
        return self.f.get(n, [])

    def sub(self, n):
        return Msg(self[n]) if n in self.f else None

    def subs(self, n):
        return [Msg(b) for b in self.all(n)]


class RemoteError(Exception):
    def __init__(self, cls, text):
        super().__init__(f'{cls}: {text}')
        self.cls, self.short, self.text = cls, cls.rsplit('.', 1)[-1], text


# ---- RPC ----
class Rpc:
    def __init__(self, addr, protocol=CLIENT, user='root', client_id=None, timeout=PATIENCE, source=None):
        host, port = addr.rsplit(':', 1)
        self.protocol, self.client_id = protocol, client_id or os.urandom(16)
        self.next_id = 0
        self.lock = threading.Lock()
        self.s = socket.create_connection((host, int(port)), timeout, source and (source, 0))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ctx = enc({2: {1: user}, 3: protocol})
        self.s.sendall(b'hrpc\x09\x00\x00' + self._frame(-3, ctx))

    def _frame(self, call_id, *parts, retry=-1):
        head = enc({1: 2, 2: 0, 3: zigzag(call_id), 4: self.client_id, 5: zigzag(retry)})
        body = b''.join(varint(len(p)) + p for p in (head, *parts))
        return struct.pack('>I', len(body)) + body

    def _read(self, n):
        b = b''
        while len(b) < n:
            part = self.s.recv(n - len(b))
            if not part:
                raise ConnectionError('closed')
            b += part
        return b

    def call(self, method, fields=None, call_id=None, retry=0):
        """The answer as Msg; RemoteError; OSError."""
        with self.lock:
            if call_id is None:
                call_id, self.next_id = self.next_id, self.next_id + 1
            req = enc({1: method, 2: self.protocol, 3: 1})
            self.s.sendall(self._frame(call_id, req, enc(fields or {}), retry=retry))
            b = self._read(struct.unpack('>I', self._read(4))[0])
        n, i = get_varint(b, 0)
        head = Msg(b[i:i + n])
        if head[2]:
            raise RemoteError(head[4].decode(), (head[5] or b'').decode())
        assert head[1] == call_id, (head[1], call_id)
        n, i = get_varint(b, i + n)
        assert i + n == len(b), 'bytes after the answer'
        return Msg(b[i:])

    def call_and_hang_up(self, method, fields, call_id, retry=0):
        """Send the call and close without reading its answer."""
        self.s.sendall(self._frame(call_id, enc({1: method, 2: self.protocol, 3: 1}), enc(fields), retry=retry))
        self.s.close()

    def close(self):
        self.s.close()

    # what most tests need
    def mkdirs(self, path, mode=0o755, **kw):
        return self.call('mkdirs', {1: path, 2: {1: mode}, 3: 1}, **kw)[1]

    def create(self, path, client='c1', flags=3, repl=1, block=1 << 20, mode=0o644, **kw):
        return self.call('create', {1: path, 2: {1: mode}, 3: client, 4: flags, 5: 1, 6: repl, 7: block},
                         **kw).sub(1)

    def delete(self, path, recursive=1, **kw):
        return self.call('delete', {1: path, 2: recursive}, **kw)[1]

    def rename(self, src, dst, **kw):
        return self.call('rename', {1: src, 2: dst}, **kw)[1]

    def stat(self, path):
        return self.call('getFileInfo', {1: path}).sub(1)

    def ls(self, path):
        out, after = [], b''
        while True:
            d = self.call('getListing', {1: path, 2: after, 3: 0}).sub(1)
            if d is None:
                return None
            page = [e[2].decode() for e in d.subs(1)]
            out += page
            if not d[2]:
                return out
            after = page[-1].encode()

    def add_block(self, path, client='c1', previous=None, exclude=(), file_id=0):
        f = {1: path, 2: client, 5: file_id, 4: [dn.info() for dn in exclude]}
        if previous:
            f[3] = previous
        return self.call('addBlock', f).sub(1)

    def complete(self, path, client='c1', last=None, file_id=0):
        f = {1: path, 2: client, 4: file_id}
        if last:
            f[3] = last
        return self.call('complete', f)[1]

    def locations(self, path, offset=0, length=1 << 40):
        return self.call('getBlockLocations', {1: path, 2: offset, 3: length}).sub(1)


def ext_block(located, length=None, gs=None):
    """The ExtendedBlock of a LocatedBlock as a request field."""
    b = located.sub(1)
    return {1: b[1], 2: b[2], 3: gs or b[3], 4: b[4] if length is None else length}


# ---- a simulated data node: RPC only, no data ----
class FakeDn:
    def __init__(self, addr, port, uuid=None, capacity=1 << 40, remaining=1 << 40, ip='127.0.0.1', kind=1,
                 user='root'):
        self.rpc, self.ip, self.kind = Rpc(addr, DATANODE, source=ip, user=user), ip, kind
        self.uuid, self.port = uuid or f'dn-{port}', port
        self.storage, self.capacity, self.remaining = f'DS-{self.uuid}', capacity, remaining
        self.commands = []

    def ident(self):
        return {1: self.ip, 2: 'localhost', 3: self.uuid, 4: self.port, 5: self.port + 1, 6: self.port + 2}

    def info(self):
        return {1: self.ident()}

    def reg(self):
        return {1: self.ident(), 2: self.info_bytes, 3: {1: 0, 2: 0, 3: 0, 4: {1: 0, 2: 0}}, 4: '3.4.2'}

    def register(self):
        i = self.rpc.call('versionRequest').sub(1)
        self.pool, self.info_bytes = i[3].decode(), i[4]
        r = self.rpc.call('registerDatanode', {1: self.reg()}).sub(1)
        assert r.sub(1)[3].decode() == self.uuid
        return self

    def heartbeat(self, want_lease=0, xmits=0):
        rep = {1: self.storage, 3: self.capacity, 5: self.remaining, 7: {1: self.storage, 3: self.kind}}
        r = self.rpc.call('sendHeartbeat', {1: self.reg(), 2: rep, 3: xmits, 9: want_lease})
        self.commands += r.subs(1)
        self.lease = r[5]
        return r.subs(1)

    def report(self, replicas=(), lease=0):
        """Full report: replicas are (id, length, stamp, state)."""
        buf = b''.join(varint(zigzag(i)) + varint(n) + varint(g) + varint(s) for i, n, g, s in replicas)
        st = {1: {1: self.storage, 3: self.kind}, 3: len(replicas), 4: buf}
        return self.rpc.call('blockReport', {1: self.reg(), 2: self.pool, 3: st,
                                             4: {1: 1, 2: 0, 3: 1, 4: lease}})

    def start(self, replicas=()):
        self.register()
        self.heartbeat(want_lease=1)
        self.report(replicas, self.lease)
        return self

    def received(self, block, status=2, hint=None):
        """block: (id, length, stamp); status RECEIVING 1, RECEIVED 2, DELETED 3. @hint: of which node it is to go."""
        i, n, g = block
        news = {1: {1: i, 2: g, 3: n}, 3: status, **({2: hint} if hint else {})}
        self.rpc.call('blockReceivedAndDeleted', {1: self.reg(), 2: self.pool, 3: {
            1: self.storage, 3: {1: self.storage, 3: self.kind}, 2: news}})


# ---- a NameNode process ----
_claims = []  # held to the end of the process


def free_port():
    """Below the range of outgoing connections: a client that retries while the server is down could
    otherwise be given the server's own port and hold it. Claimed as dfs-mini claims its ports: no two choose the same."""
    while True:
        port = random.SystemRandom().randrange(10000, 22000)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind('\0dfs-mini/port/%d' % port)
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(('127.0.0.1', port))
            _claims.append(claim)
            return port
        except OSError:
            claim.close()


class NameNode:
    def __init__(self, program, directory, conf=()):
        self.program, self.dir, self.conf = program, directory, list(conf)
        self.proc, self.addr, self.http = None, f'127.0.0.1:{free_port()}', '127.0.0.1:0'

    def args(self):
        kv = ['fs.defaultFS=hdfs://' + self.addr, 'dfs.namenode.http-address=' + self.http,
              f'dfs.namenode.name.dir={self.dir}/name', *self.conf]
        return [self.program] + [x for v in kv for x in ('-D', v)]

    def format(self):
        subprocess.run(self.args() + ['--format'], check=True, stderr=subprocess.DEVNULL)
        return self

    def start(self):
        ready = self.dir + '/ready'
        if os.path.exists(ready):
            os.unlink(ready)
        with open(self.dir + '/log', 'a') as log:
            self.proc = subprocess.Popen(self.args() + ['--ready-file', ready], stderr=log, stdout=log)
        deadline = time.time() + PATIENCE
        while not os.path.exists(ready):
            if self.proc.poll() is not None or time.time() > deadline:
                raise RuntimeError('NameNode does not start: ' + open(self.dir + '/log').read()[-2000:])
            time.sleep(0.01)
        d = json.load(open(ready))
        self.addr, self.http = d['rpc'], d['http']
        return self

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def stop(self):
        """SIGTERM; its exit status."""
        self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(PATIENCE)


class Checks:
    """PASS/FAIL lines; exit status."""

    def __init__(self):
        self.failed = 0

    def check(self, name, ok, detail=''):
        print(('PASS ' if ok else 'FAIL ') + name + (f': {detail}' if detail and not ok else ''), flush=True)
        self.failed += not ok
        return ok

    def throws(self, name, cls, fn):
        try:
            r = fn()
        except RemoteError as e:
            return self.check(name, e.short == cls, f'{e.short} instead of {cls}: {e.text[:200]}')
        return self.check(name, False, f'no {cls}, but {r}')
