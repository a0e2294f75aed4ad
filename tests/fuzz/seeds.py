#!/usr/bin/env python3
"""seeds.py OUT VECTORS: seeds of the fuzz targets, one folder each, cut out of the recordings."""
import hashlib
import os
import pathlib
import struct
import sys

out, vectors = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def seed(target, data):
    d = out / target
    d.mkdir(parents=True, exist_ok=True)
    (d / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)


def varint(b, p):
    v = s = 0
    while True:
        v |= (b[p] & 127) << s
        p, s = p + 1, s + 7
        if b[p - 1] < 128:
            return v, p


def frames(b, p):
    while p + 4 <= len(b):
        n, = struct.unpack('>i', b[p:p + 4])
        seed('rpc_frame', b[p + 4:p + 4 + n])
        p += 4 + n


def delimited(b, p):
    """The messages from p on; stops where it no longer looks like one."""
    while p < len(b):
        try:
            n, q = varint(b, p)
        except IndexError:
            return
        if not 0 < n <= 1024 or q + n > len(b):
            return
        seed('ack', b[q:q + n])
        p = q + n


def data_transfer(up, down):
    seed('dt_op', up[:4096])
    if up[2] == 81:
        seed('read', struct.pack('>HH', 0, 1000) + down[:65536])
    n, p = varint(up, 3)
    p += n
    for stream, p in (up, p), (down, 0):
        if stream is down and down:
            n, p = varint(down, 0)
            p += n
        while p + 6 <= len(stream):
            plen, hlen = struct.unpack('>ih', stream[p:p + 6])
            if hlen not in (25, 27) or plen < 4:
                break
            seed('packet', stream[p:p + 6 + hlen])
            p += 2 + hlen + plen
    delimited(down, 0)


def tokens():  # of datanode/block/token_test.c: Writable without and with storages, protobuf
    for text in ('8a03a3529440004d00000005616c6963650000001042502d312d3132372e302e302e312d318c400000010104524541440000',
                 '8a03a35294400084499602d100000005616c6963650000001042502d312d3132372e302e302e312d318201d1694a1ffe0404'
                 '5245414405575249544504434f5059075245504c41434503044449534b03535344044449534b030000000444532d31000000'
                 '0444532d320000000444532d33',
                 '088080d194b57410aefaa7b30b1a05616c696365221042502d312d3132372e302e302e312d312881c0d7b5e9c5ffffff0130'
                 '01300230033004380138023801420444532d31420444532d32420444532d33'):
        seed('token', bytes.fromhex(text))


def capsules():
    def cap(kind, body, flags=0, rid=7, payload=b''):
        head = struct.pack('>BBHHHIQ', 1, kind, flags, 3, 20 + len(body), len(payload), rid)
        seed('capsule', (head + body).ljust(1152, b'\0') + payload if payload else head + body)
    mem = struct.pack('>QII', 4096, 17, 512)
    cap(1, b'\x0a\x02hi', 16)
    cap(1, b'', 1, payload=b'an op')
    cap(2, struct.pack('>HHH', 1, 3, 2) + b'a:1no')
    cap(3, struct.pack('>QQIIQIQI', 5, 512, 512, 4, 4096, 17, 0, 0) + b'crc!', 2 | 8)
    cap(3, struct.pack('>QQIIQIQI', 5, 512, 4, 4, 0, 0, 0, 0) + b'crc!', 3, payload=b'data')
    cap(3, struct.pack('>QQIIQIQI', 6, 0, 1 << 20, 8192, 1, 2, 3, 4))
    cap(3, struct.pack('>QQIIQIQI', 7, 0, 0, 0, 0, 0, 0, 0), 4)
    cap(4, struct.pack('>qqB', 7, 7, 3) + b'\0\0\1')
    cap(5, struct.pack('>q', 7))
    cap(6, mem + struct.pack('>QII', 4096, 17, 4) + b'\x0a\x02hi')
    cap(7, struct.pack('>HBBIQIIH', 0, 2, 0, 512, 1024, 512, 4, 2) + b'ok', 32)
    cap(8, b'')
    cap(9, struct.pack('>HH', 2, 3) + b'bad')
    cap(10, b'', rid=0)
    cap(11, struct.pack('>HH', 1, 0), rid=0)
    private = struct.pack('>IHHIHHIIBBBB16s', 0x44465352, 1, 44, 0, 64, 68, 1152, 0, 16, 1, 2, 0, b'')
    seed('capsule', private)
    seed('capsule', private + bytes(12))
    seed('capsule', struct.pack('>IHHHHI', 0x44465352, 1, 16, 2, 0, 250))


def block_reports():
    one = bytes([0x92, 0x80, 0x80, 0x80, 8, 0xe8, 7, 0xe9, 7, 0])
    for n, cut in (0, 0), (1, 0), (1, 3), (3, 15):
        seed('block_report', bytes([n, cut]) + one * n)
    longs = [1, 1, 7, 70, 3, -1, -1, -1, 8, 80, 4, 2]
    seed('block_report', struct.pack('<12q', *longs))


def confs():
    xml = '<?xml version="1.0"?>\n<configuration>%s</configuration>\n'
    prop = '<property><name>%s</name><value>%s</value>%s</property>'
    seed('conf', (xml % '').encode())
    seed('conf', (xml % (prop % ('dfs.blocksize', '128m', '<final>true</final>'))).encode())
    seed('conf', (xml % (prop % ('a', '${b}', '') + prop % ('b', '${a}${env.HOME}', ''))).encode())
    seed('conf', (xml % (prop % ('dfs.heartbeat.interval', '3s', '<!-- &amp; --><description>&lt;'
                                 '</description>'))).encode())


def namespaces():  # changes of a file of pages of 4096 bytes: heads of commits, of pages, their arrays, their nodes
    def at(offset, data):
        return struct.pack('<IB', offset, len(data)) + data
    for page in (0, 1):
        for field in (0, 8, 10, 16, 20, 40, 44, 46, 48, 56, 64, 72, 80, 88, 92, 94, 112, 120, 128, 136, 144):
            seed('namespace', at(4096 * page + field, b'\3'))
    for page in range(2, 90, 6):
        for offset in (0, 8, 10, 12, 14, 16, 20, 2000, 4000, 4090):
            seed('namespace', at(4096 * page + offset, bytes([offset & 255, page])))


def fields(b):
    """[(number, value)] of a protobuf message, bytes or int."""
    p, out = 0, []
    while p < len(b):
        key, p = varint(b, p)
        if key & 7 == 0:
            v, p = varint(b, p)
        else:
            n, p = (8, p) if key & 7 == 1 else (4, p) if key & 7 == 5 else varint(b, p)
            v, p = b[p:p + n], p + n
        out.append((key >> 3, v))
    return out


def field(b, *numbers):
    """The first field of that number in the first field of that number ...; b'' without one."""
    for n in numbers:
        b = next((v for k, v in fields(b) if k == n), b'')
    return b


def messages(frame):
    """The delimited messages of an RPC frame."""
    p, out = 0, []
    while p < len(frame):
        n, p = varint(frame, p)
        out.append(frame[p:p + n])
        p += n
    return out


def calls(up, down):
    """Of a recorded connection the answers: (method, message)."""
    methods = {}
    for stream, p in (up, 7), (down, 0):
        while p + 4 <= len(stream):
            n, = struct.unpack('>i', stream[p:p + 4])
            parts = messages(stream[p + 4:p + 4 + n])
            p += 4 + n
            if stream is up and len(parts) > 2:
                methods[field(parts[0], 3) >> 1] = field(parts[1], 1).decode()
            elif stream is down and len(parts) > 1 and field(parts[0], 1) in methods:
                yield methods[field(parts[0], 1)], parts[1]


def striped(up, down):
    for method, m in calls(up, down):
        if method == 'getBlockLocations':
            seed('located', field(m, 1))
        if method == 'sendHeartbeat':
            for number, command in fields(m):
                if number == 1 and field(command, 1) == 9:
                    seed('reconstruct', field(command, 9))


def group_checksum(op, answer):
    """An op of the recordings, and answers of the nodes that it makes ask: as it was, and without any."""
    n, p = varint(op, 3)
    question = struct.pack('>H', n) + op[p:p + n]
    n, p = varint(answer, 0)
    one = struct.pack('>BH', 0, n) + answer[p:p + n]
    for answers in b'', one, one * 16, b'\3\0\0' + one * 4, one + b'\3\0\0' + b'\x11' * 40:
        seed('group_checksum', question + answers)


def ec_records():  # rows of policies and directories, records of files
    row = bytes([70, 2, 1, 4, 2, 0, 1, 0, 0]) + bytes(7) + b'\1'
    own = bytes([1, 2, 1, 6, 3, 0, 16, 0, 0]) + bytes(8)

    def file(version, policy, *blocks):
        text = b''.join(struct.pack('>H', len(s)) + s for s in (b'name', b'owner', b'group', b'', b''))
        return struct.pack('>BBHHIQQQQ', version, 2, 0o644, 1, 0, 16385, 1, 1, 1 << 20) + policy + text + struct.pack('>I', len(blocks)) + \
            b''.join(struct.pack('>qQQB', b, 1001, 7, 1) for b in blocks)

    def entries(*all):
        return b''.join(struct.pack('>BH', table, len(v)) + v for table, v in all)
    plain, groups = file(1, b'', 1073741825, 1073741826), file(2, bytes([2, 1, 3, 2, 0, 16, 0, 0]), -1024, -1008)
    mine = file(2, row[:1] + row[2:9], -2048)
    for e in ((0, row),), ((0, own), (0, row), (1, b'\x46')), ((1, b'\1'), (2, plain)), ((2, groups), (2, plain), (2, mine)), \
            ((2, file(1, b'', -1024)),), ((2, file(2, bytes([2, 1, 3, 2, 0, 16, 0, 0]), 1024)),), ((2, file(2, b'\xff' + row[2:9], -1024)),):
        seed('ec_record', entries(*e))


def recoveries():
    def pb(*all):
        out = b''
        for number, v in all:
            number_of = lambda n: bytes([n]) if n < 128 else bytes([n & 127 | 128]) + number_of(n >> 7)
            out += number_of(number << 3 | (0 if isinstance(v, int) else 2)) + number_of(v if isinstance(v, int) else len(v))
            out += b'' if isinstance(v, int) else v
        return out
    node = pb((1, pb((1, b'127.0.0.1'), (2, b'h'), (3, b'uuid'), (4, 9866), (5, 9864), (6, 9867))))
    token = pb((1, b''), (2, b''), (3, b''), (4, b''))
    for units in b'\0\1\2\3\4', b'\4\2\0', b'\0\1\2\3\4\0\1':
        block = pb((1, pb((1, b'BP-1'), (2, (1 << 64) - 1024), (3, 1001), (4, 0))), (2, 0), *[(3, node)] * len(units), (4, 0), (5, token))
        order = pb((1, 1007), (2, block), (4, pb((1, b'RS-3-2-1024k'), (4, 2))), (5, units))
        for answers in bytes([0, 3, 20]) * 64, bytes([0, 3, 20, 5, 0, 0, 0, 1, 22]) * 21 + bytes(3), bytes([7, 0, 0, 0, 1, 63]) * 32:
            seed('group_recovery', answers + order)


def journals():
    def record(kind, step, payload):
        return bytes([kind, step, len(payload)]) + payload
    seed('journal', bytes([0]) + b''.join(record(1, 1, bytes([n]) * n) for n in range(20)))
    seed('journal', bytes([0]) + record(1, 1, b'a') + record(2, 0, b'') + record(1, 0, b'b') + record(3, 1, b'c'))
    seed('journal', bytes([0]) + record(1, 1, b'a') + record(129, 1, b'torn') + record(3, 1, b'loose'))
    seed('journal', bytes([0]) + record(1, 1, b'a') + record(129, 1, b'broken') + record(1, 1, b'behind'))
    seed('journal', bytes([1]) + bytes(100))


def overlays():
    head = b'dfs-fuse overlay 1\nof 16390 length 1000 mtime 5 uid 0 dir 16385 name 66\n'
    for tail in b'', b'w 0 100\nw 50 200\nt 150\nn 7\nc\nw 900 2000\n', b'w 10 20\nw 40 6', b't 0\nt 9223372036854775807\nw 1 9223372036854775807\n', b'w 5 5\n':
        seed('overlay', head + tail)


def disks():
    seed('disk', b'#Thu Nov 26 10:00:00 UTC 2026\nstorageID=DS-1\nclusterID=CID-1\ncTime\\=0 : 0\nlayoutVersion=-57\n a\\u0041 = b\\\n   c\n')
    for kind in range(4):
        seed('disk', struct.pack('>HBI', 1, kind, 512) + bytes(8))


for path in sorted(vectors.rglob('*.txt')):
    lines = path.read_text().split('\n')
    up, down = (b''.join(bytes.fromhex(l[2:]) for l in lines if l.startswith(k)) for k in '><')
    if up[:4] == b'hrpc':
        frames(up, 7)
        frames(down, 0)
        striped(up, down)
    elif up[2] == 90:
        group_checksum(up, down)
        data_transfer(up, down)
    else:
        data_transfer(up, down)
for path in sorted((out / 'rpc_frame').iterdir()):  # the body of each call as a message, roughly
    b = path.read_bytes()
    p = 0
    while p < len(b):
        n, q = varint(b, p)
        if q + n > len(b):
            break
        seed('message', b'\0' + bytes([n % 256]) + b[q:q + n])
        p = q + n
capsules()
ec_records()
recoveries()
tokens()
block_reports()
confs()
journals()
overlays()
disks()
namespaces()
(out / 'stamp').write_text('done\n')
