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
    seed('dt_session', struct.pack('>BBH', 0, 3, min(len(up), 60000)) + up[:60000])
    n, p = varint(up, 3)
    if up[2] in DT_OPS:
        seed('dt_session', struct.pack('>BBBH', 0, 1, DT_OPS.index(up[2]), n) + up[p:p + n] + struct.pack('>BH', 3, len(up[p + n:p + n + 60000])) + up[p + n:p + n + 60000])
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


DT_OPS = [80, 81, 85, 84, 86, 83, 87, 88, 89, 126, 90]


def made_data_sessions():
    """Every operation, its message made of a few bytes; writes with packets, and what the next node says to them."""
    def op(code, data):
        return struct.pack('>BBH', 0, DT_OPS.index(code), len(data)) + data

    def packet(how, seq, at, n):
        return struct.pack('>BBbH', 2, how, seq, at) + (b'' if how & 1 else struct.pack('>H', n))

    def hop(how, said):
        return struct.pack('>BBH', 4, how, len(said)) + said
    for code in DT_OPS:
        for pattern in range(3):
            seed('dt_session', bytes([pattern]) + op(code, bytes(k * pattern % (3, 5, 7)[pattern % 3] for k in range(60))))
    good, acks = b'\x05\x08\0\x22\1x', b''.join(b'\5\x08' + bytes([2 * n]) + b'\x12\1\0' for n in range(4))
    for message in bytes(50), b'\0\1' * 25, bytes(20) + b'\1' * 30:
        for hops in b'', hop(0, good + acks), hop(1, good):
            seed('dt_session', b'\0' + hops + op(80, message) + packet(0, 0, 0, 700) + packet(2, 1, 512, 3000) + packet(0, -1, 0, 0) + packet(1, 2, 3512, 0))

    def must(*which):
        return b''.join(bytes([0, w]) for w in which)

    def base(block):  # numbers 1 and 2 are replicas that are there, 5 is none
        return b'\0\0' + must(0, block, 6) + b'\0\0\0'
    node = b'\0' + must(3, 5, 6, 16, 16, 16) + bytes(20)

    def write(block, stage, gs, length, targets):
        return op(80, b'\0' + base(block) + must(1) + (b'\1' + node if targets else b'\0') + b'\0' + must(stage, 1 + targets, length, length, gs) + b'\0' + must(2, 9))
    packets = packet(0, 0, 0, 700) + packet(2, 1, 512, 3000) + packet(0, -1, 0, 0) + packet(0, 2, 3072, 60000) + packet(1, 3, 65000, 0)
    tail = packet(16, 0, 600, 900) + packet(1, 1, 1500, 0)
    read = op(81, b'\0' + base(1) + must(1, 0, 12)) + struct.pack('>BH', 3, 3) + b'\2\x08\6'
    for how in 0, 1, 3, 4, 9:
        for row in (write(5, 6, 6, 0, False) + packets, hop(0, good + acks) + write(5, 6, 6, 0, True) + packets, hop(1, good) + write(5, 6, 6, 0, True) + packets,
                    write(2, 3, 7, 11, False) + tail, write(2, 5, 7, 11, False), write(1, 0, 7, 12, False) + packet(16, 0, 3000, 500) + packet(1, 1, 3500, 0),
                    read + read, op(81, b'\0' + base(2) + must(1, 9, 1)), op(85, base(1)) + op(85, base(2)) + op(84, base(1)),
                    hop(0, good) + op(86, b'\0' + base(1) + must(1) + b'\1' + node), hop(0, good + b'x' * 100) + op(83, base(5) + must(9) + b'\0' + node)):
            seed('dt_session', bytes([how]) + row)


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


def method_hash(name):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xffffffff
    return (h ^ h >> 16) & 0xffff


def a_call(made, hash_of_name, data, how=0):
    return struct.pack('>BHBH', 0 if made else 1, hash_of_name, how, len(data)) + data


def recorded_session(up):
    """The calls of a recorded connection to a NameNode, and the bytes of all of it."""
    p, row = 7, b''
    while p + 4 <= len(up):
        n, = struct.unpack('>i', up[p:p + 4])
        parts = messages(up[p + 4:p + 4 + n])
        p += 4 + n
        if len(parts) > 2:
            row += a_call(False, method_hash(field(parts[1], 1).decode()), parts[2])
    seed('nn_session', b'\0' + row)
    seed('nn_session', b'\xf0' + b''.join(struct.pack('>BH', 2, len(up[i:i + 60000])) + up[i:i + 60000] for i in range(0, min(len(up), 300000), 60000)))


def good_sessions():
    """Calls that succeed: for each field of a message a byte that it is there, then which text or number of the target."""
    def must(*which):
        return b''.join(bytes([0, w]) for w in which)
    c, f, new, opened = 6, 0, 4, 2
    create = ('create', must(new) + b'\0' + must(6, c, 1, 1, 2, 21))
    block = b'\1' + must(14, 26, 17) + b'\1\4'  # the first new one, of 7 bytes
    node = b'\0\0' + must(15, 15, 10, 35, 35, 35) + b'\0\0' + must(36, 34, 28, 37) + b'\0' + must(0, 0, 0) + b'\0' + must(0, 0) + b'\0\0' + must(26)
    beat = ('sendHeartbeat', node + b'\1' + must(12) + b'\0\1\x16\0\1\x16\0\0\0\0' + bytes(6) + b'\1\1')
    received = ('blockReceivedAndDeleted', node + must(14) + b'\1' + must(12) + b'\1\0' + must(26, 17) + b'\1\4\0' + must(1) + b'\0')
    replicas = bytes([0x81, 0x80, 0x80, 0x80, 4, 7, 0xe9, 7, 0])
    report = ('blockReport', node + must(14) + b'\1\0' + must(12) + b'\0\0\0\1\1\1' + bytes([0xe0, len(replicas)]) + replicas + b'\1' + must(1, 0, 1) + b'\0')
    add, locations = ('addBlock', must(new, c)), ('getBlockLocations', must(new, 0, 31))
    complete, later, much_later = ('complete', must(new, c) + block), b'\3\3', b'\3\6'
    yield [create, add, received, complete, locations, beat]
    yield [beat, report, later, beat, ('getBlockLocations', must(f, 0, 31))]
    yield [create, add, ('updateBlockForPipeline', b'\0' + must(14, 26, 17) + b'\0' + must(c)), later, ('recoverLease', must(new, c)), beat, later, beat]
    yield [('append', must(f, c)), beat, ('addBlock', must(f, c) + b'\1' + must(14, 23, 14) + b'\1\4'), ('complete', must(f, c)), beat]
    yield [('truncate', must(f, 3, c)), beat, later, beat, ('commitBlockSynchronization', b'\0' + must(14, 23, 14) + b'\0' + must(17, 3, 1, 0))]
    yield [('setReplication', must(f, 3)), later, beat, ('delete', must(f, 1)), later, beat, beat]
    yield [('setErasureCodingPolicy', must(1) + b'\1\x10'), create, add, beat, ('getBlockLocations', must(new, 0, 31)), much_later, beat]
    yield [('recoverLease', must(opened, c)), beat, much_later, beat, ('getFileInfo', must(opened))]
    yield [('setStoragePolicy', must(f, 19)), ('satisfyStoragePolicy', must(f)), later, beat, ('getListing', must(1) + b'\0\x09\0\1')]
    yield [('delete', must(1, 1)), later, ('mkdirs', must(4) + b'\0' + must(6, 1)), ('rename2', must(4, 3, 1)), ('getContentSummary', must(5))]


def made_sessions():
    """Every method, its message made of a few bytes, at every kind of connection; time that passes."""
    for pattern in range(24):
        row = b''.join(a_call(True, i * 331 & 0xffff, bytes((k * pattern + i) % (2, 8, 200)[pattern % 3] for k in range(60)), i & 15) +
                       (struct.pack('>BB', 3, i & 7) if i % 11 == 0 else b'') for i in range(pattern * 9, pattern * 9 + 20))
        seed('nn_session', bytes([pattern * 5]) + row)
    for how in range(0, 1024, 37):
        seed('nn_session', struct.pack('>BBH', 0, 5, how) + bytes([how & 255, (0, 226, 33)[how % 3]]) + b'\0\x1eblk_1073741825 blk_-1024 blk_x' + b'\0\0')
    for row in good_sessions():
        seed('nn_session', b'\0' + b''.join(a_call(True, method_hash(c[0]), c[1]) if isinstance(c, tuple) else c for c in row))


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


def replica_indexes():
    """Headers and records; the target mends the CRCs."""
    def head(n, count, stamp=5):
        return struct.pack('>IIIIQQQ16sII', 0x72706c64, 0, n, count, 1000 + n, stamp, stamp, bytes(range(16)), 0, 0)

    def record(n, ids, length=512):
        return head(n, len(ids)) + b''.join(struct.pack('>qQQ', i, 1001, length) for i in ids)

    header = (b'dfsreplx' + struct.pack('>II', 1, 0) + b'DS-1'.ljust(64, b'\0') + b'BP-1'.ljust(128, b'\0')).ljust(256, b'\0')
    for mode in 1, 3, 7:
        for tail in (b'', record(0, [1, 2, 3]), record(77, [2 << 16 | 13 << 8]) + record(1023, [-1]) + record(77, [2 << 16 | 13 << 8 | 1], 1 << 63),
                     record(0, [2, 1]), record(0, [256]), head(1024, 0), head(3, 1 << 18), head(3, (1 << 18) + 1), head(3, 1 << 31),
                     head(5, 0) + bytes(64) + record(0, [1]), record(0, [1])[:-1]):
            seed('replica_index', bytes([mode]) + header + tail)
    seed('replica_index', b'\0' + header)


def small_files():
    seed('digest', b'realm="default",nonce="abcDEF0123",qop="auth",charset=utf-8,algorithm=md5-sess')
    seed('digest', b'rspauth=0123456789abcdef0123456789abcdef')
    seed('disk', b'{\n  "lastSavedMs" : 1700000000000,\n  "iterStartMs" : 1700000000000,\n  "curFinalizedDir" : "subdir1",\n'
         b'  "curFinalizedSubDir" : "subdir31",\n  "curEntry" : "blk_1073741825",\n  "atEnd" : true\n}')
    for kind, text in ((0, b'h1 h2:9866 # comment\n10.0.0.1\n'), (1, b'[{"hostName": "10.0.0.1", "port": 9866, "adminState": "IN_MAINTENANCE", '
                       b'"maintenanceExpireTimeInMS": "1700000000000", "upgradeDomain": "d1"}, {"hostName": "h"}]'),
                       (1, b'{"hostName": "h", "adminState": "DECOMMISSIONED"} {"hostName": "127.0.0.1", "port": null}'),
                       (2, b'10.0.0.1 /rack1\n# no\n10.0.0.2 rack2\n'), (3, b'RULE:[2:$1@$0](nn@REALM)s/@.*//\nRULE:[1:$1](.*)s/a/b/gL\nDEFAULT\nnn/h@REALM'),
                       (3, b'DEFAULT\nu@REALM'), (4, b'u1,u2 g1,g2\nx\n10.0.0.0/8,h\n10.0.0.2\n*\n'), (4, b'*\n \n*'),
                       (5, b'# x\n[libdefaults]\n default_realm = REALM\n[realms]\n')):
        seed('nn_files', bytes([kind]) + text)
    seed('mount_state', b'\0dfs-fuse 1\ncluster\n01234567-89ab\n')
    seed('mount_state', b'\1' + struct.pack('<QII', 16390, 0, 1) * 3)
    seed('mount_state', b'\1' + struct.pack('<QII', 16390, 0, 1) + b'x')
    seed('mount_state', b'\2' + b'name\0' * 60)
    seed('mount_state', b'\x03' + b'16390 16385 6e616d65\n')


def mount_requests():
    """Each request after a look-up and an open, with a few patterns of arguments and answers."""
    def step(which, data):
        return struct.pack('>BH', which, len(data)) + data
    for pattern in range(6):
        def some(n, first=b''):
            return first + bytes((k * (pattern + 1) + pattern) % (1, 2, 3, 5, 7, 11)[pattern] for k in range(n))
        found = step(0, b'\0\0\0\0\0\0\0' + b'\0\1' + some(90))
        made = step(19, b'\0\0\0\2\1\1\1' + b'\0' + some(200))
        for which in range(31):
            seed('mount_requests', found + step(which, some(120)))
            seed('mount_requests', found + made + step(which, some(160)) + step(20, some(40)) + step(23, some(40)) + step(which, some(60)))


def starts():  # changes of tables of a NameNode: their values, of its own format, by keys of inodes
    for table in range(14):
        for key in range(7):
            seed('nn_start', struct.pack('>BBHB', table, 1, 9, key) + bytes([1, 2, 1, 0, 0, 0, 0, 0, 1]))
        seed('nn_start', struct.pack('>BBHB', 0x80 | table, 1, 0, 4) + b'-')
    text = b''.join(struct.pack('>H', len(s)) + s for s in (b'f', b'root', b'supergroup', b'', b''))
    for kind in 1, 2, 3:
        for blocks in 0, 1, 3:
            value = struct.pack('>BBHHIQQQQ', 1, kind, 0o644, 1, 0, 16386, 1, 1, 1 << 20) + text + struct.pack('>I', blocks) + \
                b''.join(struct.pack('>qQQB', 1073741830 + b, 1001, 7, 1) for b in range(blocks))
            seed('nn_start', b''.join(struct.pack('>BBHB', table, 1, len(value), 4) + value for table in (1,)))


for path in sorted(vectors.rglob('*.txt')):
    lines = path.read_text().split('\n')
    up, down = (b''.join(bytes.fromhex(l[2:]) for l in lines if l.startswith(k)) for k in '><')
    if up[:4] == b'hrpc':
        frames(up, 7)
        frames(down, 0)
        striped(up, down)
        recorded_session(up)
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
replica_indexes()
namespaces()
small_files()
mount_requests()
starts()
made_sessions()
made_data_sessions()
(out / 'stamp').write_text('done\n')
