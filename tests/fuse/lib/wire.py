# SPDX-License-Identifier: Apache-2.0
"""All that a mount says to its NameNode goes through here, and the NameNode is away from a certain call on."""
import contextlib
import socket
import threading


class Wire:
    """Mount(wire): as the cluster @c, through this."""

    def __init__(self, c):
        host, port = c.rpc.rsplit(':', 1)
        self.to, self.env = (host, int(port)), c.env
        self.listening = socket.create_server(('127.0.0.1', 0))
        self.rpc = '127.0.0.1:%d' % self.listening.getsockname()[1]
        self.lock = threading.Lock()
        self.lost = set()  # connections on which nothing is passed on any more
        self.calls, self.method, self.done, self.once, self.away = 0, b'', False, False, False
        threading.Thread(target=self.accept, daemon=True).start()

    def away_at(self, call, done, once=False, method='rename2'):
        """At this @call of @method, counted from now, the NameNode goes away: after it was @done, or before. @once: for this call alone."""
        with self.lock:
            self.calls, self.method, self.done, self.once = call, method.encode(), done, once

    def back(self):
        """Connections that have missed something are closed."""
        with self.lock:
            self.calls, self.away = 0, False
            for s in self.lost:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
            self.lost.clear()

    def accept(self):
        while True:
            near, far = self.listening.accept()[0], socket.create_connection(self.to)
            for a, b, up in (near, far, True), (far, near, False):
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.run, args=(a, b, near, up), daemon=True).start()

    def passes(self, near, data, up):
        with self.lock:
            now = False
            if up and self.calls and self.method in data:
                self.calls -= 1
                now = self.calls == 0
            if now and self.once:
                return False
            self.away |= now
            if self.away:
                self.lost.add(near)
            return near not in self.lost or (now and self.done)

    def run(self, a, b, near, up):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 20):
                if self.passes(near, data, up):
                    b.sendall(data)
        for s in a, b:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
