# SPDX-License-Identifier: Apache-2.0
"""A router (Router-based federation) over several NameNodes, as far as ClientProtocol by path goes.

A path goes to the name space that the mount table has for it, every other path, "/.reserved" included, to the default one.
What the stock router does not know it does not pass on: the fields of dfs-rdma, 1000 and above. Protocols beside
ClientProtocol are unknown.
"""
import os
import socket
import struct
import threading

from hrpc import CLIENT, Msg, dec, enc, get_varint, varint

EVERYWHERE = {'renewLease', 'enableErasureCodingPolicy', 'disableErasureCodingPolicy'}
NO_PROTOCOL = 'org.apache.hadoop.ipc.RpcNoSuchProtocolException'


def read(s, n):
    b = b''
    while len(b) < n:
        part = s.recv(n - len(b))
        if not part:
            raise ConnectionError('closed')
        b += part
    return b


def read_frame(s):
    return read(s, struct.unpack('>I', read(s, 4))[0])


def send_frame(s, *parts):
    body = b''.join(varint(len(p)) + p for p in parts)
    s.sendall(struct.pack('>I', len(body)) + body)


def parts_of(frame):
    out, i = [], 0
    while i < len(frame):
        n, i = get_varint(frame, i)
        out.append(frame[i:i + n])
        i += n
    return out


def stock(message):
    """Without our own fields."""
    return enc({k: v for k, v in dec(message).items() if k < 1000})


class Connection:
    """Of one client, with one connection to each name space that it speaks to."""

    def __init__(self, router, s):
        self.router, self.s, self.to = router, s, {}

    def serve(self):
        try:
            self.hello = read(self.s, 7)
            self.context = read_frame(self.s)
            while True:
                self.answer(*parts_of(read_frame(self.s)))
        except OSError:
            pass  # one of the two has closed
        finally:
            for s in [self.s, *self.to.values()]:
                s.close()

    def answer(self, head, call, message):
        call = Msg(call)
        method = call[1].decode()
        if call[2].decode() != CLIENT:
            self.throw(head, NO_PROTOCOL, 'Unknown protocol: ' + call[2].decode())
        elif method in self.router.refused:
            self.throw(head, *self.router.refused[method])
        else:
            for address in self.router.targets(method, message):
                reply = self.ask(address, head, enc(call.f), message)
            send_frame(self.s, *reply)

    def throw(self, head, cls, text):
        head = Msg(head)
        call_id = (head[3] >> 1) ^ -(head[3] & 1)
        send_frame(self.s, enc({1: call_id, 2: 1, 4: cls, 5: '%s: %s' % (cls, text), 7: head[4]}))

    def ask(self, address, head, call, message):
        if address not in self.to:
            host, port = address.rsplit(':', 1)
            self.to[address] = socket.create_connection((host, int(port)))
            self.to[address].sendall(self.hello + struct.pack('>I', len(self.context)) + self.context)
        send_frame(self.to[address], head, call, stock(message))
        reply = parts_of(read_frame(self.to[address]))
        return reply if Msg(reply[0])[2] else [reply[0], stock(reply[1]) if len(reply) > 1 else b'']


class Router:
    def __init__(self, default, mounts):
        """Name spaces are HOST:PORT; @mounts: {path: name space}."""
        self.default, self.mounts = default, mounts
        self.refused = {}  # method: (class, text) of the exception
        self.listening = socket.create_server(('127.0.0.1', 0))
        self.uri = 'hdfs://127.0.0.1:%d' % self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        try:
            while True:
                s = self.listening.accept()[0]
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=Connection(self, s).serve, daemon=True).start()
        except OSError:
            pass  # closed

    def close(self):
        self.listening.close()

    def targets(self, method, message):
        if method in EVERYWHERE:
            return [self.default, *self.mounts.values()]
        path = dec(message).get(1, [b''])[0] if message else b''
        path = os.fsdecode(path) if isinstance(path, bytes) else ''
        return [next((ns for at, ns in self.mounts.items() if (path + '/').startswith(at + '/')), self.default)]
