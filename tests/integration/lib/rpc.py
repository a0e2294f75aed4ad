# SPDX-License-Identifier: Apache-2.0
"""Hadoop RPC version 9 spoken by hand: an independent client of the NameNode (hdfs-wire section 1)."""
import os
import socket
import struct

from dtp import delim, f_bytes, f_int, fields

CLIENT_PROTOCOL = 'org.apache.hadoop.hdfs.protocol.ClientProtocol'
MAGIC = b'hrpc\x09\x00\x00'
DIR, FILE = 1, 2
CREATE, OVERWRITE = 1, 2


class RpcError(Exception):
    def __init__(self, cls, text):
        super().__init__('%s: %s' % (cls, text))
        self.cls = cls.rsplit('.', 1)[-1]


def _zig(v):
    return v << 1 ^ v >> 63


def header(call_id, client_id, retry=-1):
    return delim(f_int(1, 2) + f_int(2, 0) + f_int(3, _zig(call_id) & 0xFFFFFFFF) + f_bytes(4, client_id) +
                 f_int(5, _zig(retry) & 0xFFFFFFFF))


def frame(body):
    return struct.pack('>I', len(body)) + body


class Rpc:
    """One connection. A lost one raises OSError or EOFError; connect() again and retry with the same id."""

    def __init__(self, port, user='root', protocol=CLIENT_PROTOCOL, timeout=60):
        self.port, self.user, self.protocol, self.timeout = port, user, protocol, timeout
        self.client_id = os.urandom(16)
        self.next_id = 0
        self.s = None

    def connect(self):
        self.close()
        self.s = socket.create_connection(('127.0.0.1', self.port), timeout=self.timeout)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = f_bytes(2, f_bytes(1, self.user)) + f_bytes(3, self.protocol)
        self.s.sendall(MAGIC + frame(header(-3, self.client_id) + delim(context)))

    def close(self):
        if self.s:
            self.s.close()
            self.s = None

    def _take(self, n):
        out = bytearray()
        while len(out) < n:
            part = self.s.recv(n - len(out))
            if not part:
                raise EOFError('connection closed')
            out += part
        return bytes(out)

    def call(self, method, message=b'', call_id=None, retry=0):
        """The fields of the answer. @call_id: of an earlier call that is retried."""
        if call_id is None:
            call_id = self.new_id()
        if not self.s:
            self.connect()
        request = f_bytes(1, method) + f_bytes(2, self.protocol) + f_int(3, 1)
        self.s.sendall(frame(header(call_id, self.client_id, retry) + delim(request) + delim(message)))
        return self.answer(call_id)

    def answer(self, call_id):
        body = self._take(struct.unpack('>I', self._take(4))[0])
        size, at = _varint(body, 0)
        head = fields(body[at:at + size])
        if head[2][0]:
            raise RpcError(head.get(4, [b'?'])[0].decode(), head.get(5, [b''])[0].decode(errors='replace'))
        if head[1][0] != call_id:
            raise AssertionError('answer to call %d, not %d' % (head[1][0], call_id))
        size, at = _varint(body, at + size)
        assert at + size == len(body), 'bytes after the answer'
        return fields(body[at:])

    def new_id(self):
        self.next_id += 1
        return self.next_id


def _varint(buf, at):
    v = shift = 0
    while True:
        b = buf[at]
        at += 1
        v |= (b & 0x7F) << shift
        shift += 7
        if not b & 0x80:
            return v, at


# ---- ClientProtocol ----
def create(src, client='itest', flags=CREATE, replication=1, block_size=1 << 20):
    return 'create', (f_bytes(1, src) + f_bytes(2, f_int(1, 0o644)) + f_bytes(3, client) + f_int(4, flags) +
                      f_int(5, 1) + f_int(6, replication) + f_int(7, block_size))


def complete(src, client='itest'):
    return 'complete', f_bytes(1, src) + f_bytes(2, client)


def mkdirs(src):
    return 'mkdirs', f_bytes(1, src) + f_bytes(2, f_int(1, 0o755)) + f_int(3, 1)


def rename(src, dst):
    return 'rename', f_bytes(1, src) + f_bytes(2, dst)


def rename2(src, dst, overwrite=False):
    return 'rename2', f_bytes(1, src) + f_bytes(2, dst) + f_int(3, overwrite)


def delete(src, recursive=True):
    return 'delete', f_bytes(1, src) + f_int(2, recursive)


def listing(rpc, src):
    """[(name, type)] of a directory, all pages; None when it is not there."""
    out, after = [], b''
    while True:
        m = rpc.call('getListing', f_bytes(1, src) + f_bytes(2, after) + f_int(3, 0))
        if 1 not in m:
            return None
        page = fields(m[1][0])
        for entry in page.get(1, []):
            e = fields(entry)
            out.append((e[2][0].decode(), e[1][0]))
            after = e[2][0]
        if not page[2][0]:
            return out
