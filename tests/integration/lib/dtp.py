# SPDX-License-Identifier: Apache-2.0
"""DataTransferProtocol spoken by hand: an independent peer for tests of the data port.

Messages are encoded field by field from hdfs-wire section 5, not with the code under test.
"""
import contextlib
import hashlib
import hmac
import os
import socket
import struct
import zlib

WRITE, READ, REPLACE, COPY, CHECKSUM, TRANSFER = 80, 81, 83, 84, 85, 86
SUCCESS, ERROR, ERROR_CHECKSUM, ERROR_ACCESS_TOKEN, CHECKSUM_OK = 0, 1, 2, 5, 6
ERROR_UNSUPPORTED, OOB_RESTART, IN_PROGRESS = 7, 8, 12
STAGE_APPEND, STAGE_APPEND_RECOVERY, STAGE_STREAMING_RECOVERY = 0, 1, 3
STAGE_CLOSE_RECOVERY, STAGE_CREATE, STAGE_TRANSFER_RBW, STAGE_TRANSFER_FINALIZED = 5, 6, 7, 8
CRC32, CRC32C, CRC_NULL = 1, 2, 0
PATIENCE = 150  # seconds for what takes less than one on an idle machine

# ---- CRCs ----
_TABLE = []
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = (_c >> 1) ^ (0x82F63B78 if _c & 1 else 0)
    _TABLE.append(_c)


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    table = _TABLE
    for b in data:
        crc = table[(crc ^ b) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


_cache = {}


def crc(kind, data):
    if kind == CRC32:
        return zlib.crc32(data)
    key = bytes(data)
    if key not in _cache:
        if len(_cache) > 100000:
            _cache.clear()
        _cache[key] = crc32c(key)
    return _cache[key]


def crcs(kind, data, bpc):
    if kind == CRC_NULL:
        return b''
    return b''.join(struct.pack('>I', crc(kind, data[i:i + bpc])) for i in range(0, len(data), bpc))


# ---- protobuf ----
def varint(v):
    out = bytearray()
    v &= (1 << 64) - 1
    while v > 0x7F:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)
    return bytes(out)


def tag(n, wire):
    return varint(n << 3 | wire)


def f_int(n, v):
    return tag(n, 0) + varint(int(v))


def f_bytes(n, v):
    v = v.encode() if isinstance(v, str) else v
    return tag(n, 2) + varint(len(v)) + v


def delim(m):
    return varint(len(m)) + m


def zigzag(v):
    return v >> 1 ^ -(v & 1)


def fields(buf):
    """{number: [values]}; bytes for length-delimited, ints for the rest."""
    out, i = {}, 0

    def vint():
        nonlocal i
        v = shift = 0
        while True:
            b = buf[i]
            i += 1
            v |= (b & 0x7F) << shift
            shift += 7
            if not b & 0x80:
                return v

    while i < len(buf):
        t = vint()
        n, wire = t >> 3, t & 7
        if wire == 0:
            v = vint()
        elif wire == 1:
            v = struct.unpack_from('<q', buf, i)[0]
            i += 8
        elif wire == 5:
            v = struct.unpack_from('<i', buf, i)[0]
            i += 4
        else:
            size = vint()
            v = buf[i:i + size]
            i += size
        out.setdefault(n, []).append(v)
    return out


# ---- messages ----
def block_proto(b):
    return f_bytes(1, b.pool) + f_int(2, b.id) + f_int(3, b.gs) + f_int(4, b.len)


signer = None  # a function of the block that gives identifier and password of its token


def token(b):
    ident, password = signer(b) if signer else (b'', b'')
    return f_bytes(1, ident) + f_bytes(2, password) + f_bytes(3, 'HDFS_BLOCK_TOKEN' if signer else '') + f_bytes(4, '')


def base_header(b):
    return f_bytes(1, block_proto(b)) + f_bytes(2, token(b))


def sign(key, key_id, b, modes, expiry_ms, types=(), ids=()):
    """A token in the form of BlockTokenSecretProto; types and ids as numbers and strings."""
    ident = (f_int(1, expiry_ms) + f_int(2, key_id) + f_bytes(3, 'alice') + f_bytes(4, b.pool) + f_int(5, b.id) +
             b''.join(f_int(6, m) for m in modes) + b''.join(f_int(7, t) for t in types) +
             b''.join(f_bytes(8, i) for i in ids))
    return ident, hmac.new(key, ident, 'sha1').digest()


def client_header(b, client):
    return f_bytes(1, base_header(b)) + f_bytes(2, client)


def datanode(port, ip='127.0.0.1', uuid=None):
    ident = (f_bytes(1, ip) + f_bytes(2, 'localhost') + f_bytes(3, uuid or 'uuid-%d' % port) + f_int(4, port) +
             f_int(5, 0) + f_int(6, 0))
    return f_bytes(1, ident)


class Block:
    def __init__(self, pool, ident, gs=1001, length=128 << 20):
        self.pool, self.id, self.gs, self.len = pool, ident, gs, length


def op(code, message, version=28):
    return struct.pack('>hB', version, code) + delim(message)


def op_write(b, client='client', targets=(), stage=STAGE_CREATE, size=None, min_bytes=0, max_bytes=0,
             new_gs=0, kind=CRC32C, bpc=512):
    m = f_bytes(1, client_header(b, client))
    for t in targets:
        m += f_bytes(2, datanode(t))
    m += (f_int(4, stage) + f_int(5, size if size is not None else len(targets) + 1) + f_int(6, min_bytes) +
          f_int(7, max_bytes) + f_int(8, new_gs) + f_bytes(9, f_int(1, kind) + f_int(2, bpc)))
    for _ in targets:
        m += f_int(12, 1)
    for _ in targets:
        m += f_bytes(17, '')
    return op(WRITE, m)


def op_read(b, off, length, client='client', send_crcs=True):
    m = f_bytes(1, client_header(b, client)) + f_int(2, off) + f_int(3, length)
    return op(READ, m if send_crcs else m + f_int(4, 0))


def packet(seq, off, data=b'', last=False, sync=False, kind=CRC32C, bpc=512, sums=None):
    sums = crcs(kind, data, bpc) if sums is None else sums
    head = (b'\x09' + struct.pack('<q', off) + b'\x11' + struct.pack('<q', seq) + b'\x18' + bytes([last]) +
            b'\x25' + struct.pack('<i', len(data)))
    if sync:
        head += b'\x28\x01'
    return struct.pack('>IH', 4 + len(sums) + len(data), len(head)) + head + sums + data


class Packet:
    pass


class Conn:
    def __init__(self, port, timeout=PATIENCE):
        self.s = socket.create_connection(('127.0.0.1', port), timeout=timeout)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self.s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.s.sendall(data)

    def take(self, n):
        out = bytearray()
        while len(out) < n:
            part = self.s.recv(n - len(out))
            if not part:
                raise EOFError('closed after %d of %d bytes' % (len(out), n))
            out += part
        return bytes(out)

    def message(self):
        size = shift = 0
        while True:
            b = self.take(1)[0]
            size |= (b & 0x7F) << shift
            shift += 7
            if not b & 0x80:
                break
        return fields(self.take(size))

    def closed(self):
        """True when the peer closes without another byte."""
        try:
            return self.s.recv(1) == b''
        except ConnectionResetError:
            return True

    def ack(self):
        m = self.message()
        return zigzag(m[1][0]), m.get(2, [])

    def packet(self):
        p = Packet()
        plen, hlen = struct.unpack('>IH', self.take(6))
        h = fields(self.take(hlen))
        p.off, p.seq, p.last, size = h[1][0], h[2][0], h[3][0], h[4][0]
        p.crcs = self.take(plen - 4 - size)
        p.data = self.take(size)
        return p


# ---- whole operations ----
def write_block(port, b, data, client='client', targets=(), chunk=64512, kind=CRC32C, bpc=512, first=0, conn=None, **kw):
    """A block as the stock client writes it, on @conn, which stays open then. Returns the acks."""
    with conn and contextlib.nullcontext(conn) or Conn(port) as c:
        c.send(op_write(b, client, targets, kind=kind, bpc=bpc, **kw))
        if client:
            m = c.message()
            assert m[1] == [SUCCESS], m
        seq, acks = first, []
        for off in range(0, len(data), chunk):
            c.send(packet(seq, off, data[off:off + chunk], kind=kind, bpc=bpc))
            seq += 1
        c.send(packet(seq, len(data), last=True))
        while client and (not acks or acks[-1][0] != seq):
            acks.append(c.ack())
        if not client:
            c.s.shutdown(socket.SHUT_WR)
            assert c.closed()
        return acks


def read_packets(c, kind=None):
    """Everything up to the empty packet: (first offset, bytes), CRCs checked."""
    m = c.message()
    if m[1] != [SUCCESS]:
        raise IOError(m.get(5, [b''])[0].decode())
    info = fields(m[4][0])
    sums = fields(info[1][0])
    kind, bpc, first = sums[1][0], sums[2][0], info[2][0]
    out, seq = bytearray(), 0
    while True:
        p = c.packet()
        assert p.seq == seq and p.off == first + len(out), (p.seq, seq, p.off)
        seq += 1
        if p.last:
            assert not p.data
            return first, bytes(out), kind
        assert p.data
        assert p.crcs == crcs(kind, p.data, bpc), 'CRC at %d' % p.off
        out += p.data


def read_block(port, b, off, length, send_crcs=True, conn=None):
    c = conn or Conn(port)
    c.send(op_read(b, off, length, send_crcs=send_crcs))
    first, data, kind = read_packets(c)
    c.send(delim(f_int(1, CHECKSUM_OK if kind else SUCCESS)))
    if not conn:
        c.close()
    return data[off - first:off - first + length]


# ---- files ----
def find(root, name):
    for d, _, files in os.walk(root):
        if name in files:
            return os.path.join(d, name)
    return None


def check_files(root, ident, gs, data, kind=CRC32C, bpc=512, state='finalized'):
    """Block and meta file hold exactly @data and its CRCs."""
    path = find(root, 'blk_%d' % ident)
    folder = 'finalized/subdir%d/subdir%d' % (ident >> 16 & 0x1F, ident >> 8 & 0x1F) if state == 'finalized' else state
    assert path and os.path.dirname(path).endswith('/' + folder), path
    with open(path, 'rb') as f:
        stored = f.read()
    assert len(stored) == len(data), (len(stored), len(data))
    assert stored == data, 'content differs'
    with open(os.path.join(os.path.dirname(path), 'blk_%d_%d.meta' % (ident, gs)), 'rb') as f:
        meta = f.read()
    assert meta[:7] == struct.pack('>HBI', 1, kind, bpc), meta[:7]
    assert meta[7:] == crcs(kind, data, bpc), 'CRCs differ'


def md5crc(data, bpc=512):
    return hashlib.md5(crcs(CRC32C, data, bpc)).digest()


def pattern(n, start=0):
    unit = bytes((i * 7 + 3) % 251 for i in range(251))
    start %= 251
    return (unit * (n // 251 + 3))[start:start + n]
