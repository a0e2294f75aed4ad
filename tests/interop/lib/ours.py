#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libdfsclient in a process of its own, its handles kept open: the counterpart of Stock.java.

As a module: class Ours, with op('append', h='w', path='/f') and kill(). As a program: the other end, which takes one
JSON object a line and answers with one, calling the library by ctypes."""
import base64
import ctypes
import errno
import json
import os
import subprocess
import sys


class DfsError(Exception):
    """A failed call: .rc is the -errno, .text the sentence, .remote the Java class."""

    def __init__(self, op, rc, text, remote):
        super().__init__('%s: %s: %s %s' % (op, errno.errorcode.get(-rc, rc), text, remote))
        self.rc, self.text, self.remote = rc, text, remote


class Ours:
    def __init__(self, build, env, log, conf=()):
        env = dict(os.environ, **env)
        if os.path.basename(build) == 'asan':  # the library wants its runtime loaded first
            env['LD_PRELOAD'] = subprocess.run(['gcc', '-print-file-name=libasan.so'], capture_output=True, text=True).stdout.strip()
            env['ASAN_OPTIONS'] = 'detect_leaks=0:exitcode=99'
        self.log = open(log, 'ab')
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), build + '/client/libdfsclient.so', *conf], env=env,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)

    def op(self, op, **args):
        if isinstance(args.get('data'), bytes):
            args['data'] = base64.b64encode(args['data']).decode()
        self.p.stdin.write(json.dumps(dict(args, op=op)).encode() + b'\n')
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise AssertionError('libdfsclient has ended in %s' % op)
        a = json.loads(line)
        if a['rc'] < 0:
            raise DfsError(op, a['rc'], a['text'], a['remote'])
        return base64.b64decode(a['data']) if 'data' in a else a['rc']

    def kill(self):
        """kill -9: what a writer that crashed leaves behind."""
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        self.log.close()


# ---- the program ----
class Err(ctypes.Structure):
    _fields_ = [('rc', ctypes.c_int), ('text', ctypes.c_char * 512), ('remote', ctypes.c_char * 128)]


class Opts(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('uri', ctypes.c_char_p), ('conf_dir', ctypes.c_char_p), ('user', ctypes.c_char_p),
                ('conf', ctypes.POINTER(ctypes.c_char_p))]


class Library:
    def __init__(self, path, conf):
        self.lib = ctypes.CDLL(path)
        for name in ('dfs_write', 'dfs_pread', 'dfs_read'):
            getattr(self.lib, name).restype = ctypes.c_ssize_t
        self.err, self.fs, self.files = Err(), ctypes.c_void_p(), {}
        keys = (ctypes.c_char_p * (len(conf) + 1))(*[c.encode() for c in conf], None)
        opts = Opts(size=ctypes.sizeof(Opts), conf=keys)
        if self.lib.dfs_connect(ctypes.byref(opts), ctypes.byref(self.fs), ctypes.byref(self.err)) < 0:
            sys.exit(self.err.text.decode())

    def new(self, fn, h, path, *args):
        f = ctypes.c_void_p()
        rc = getattr(self.lib, fn)(self.fs, path.encode(), *args, ctypes.byref(f), ctypes.byref(self.err))
        if rc >= 0:
            self.files[h] = f
        return rc

    def boolean(self, fn, path, *args):
        yes = ctypes.c_bool()
        rc = getattr(self.lib, fn)(self.fs, path.encode(), *args, ctypes.byref(yes), ctypes.byref(self.err))
        return rc if rc < 0 else int(yes.value)

    def read(self, q):
        buf = ctypes.create_string_buffer(q['length'])
        args = (self.files[q['h']], buf, ctypes.c_size_t(q['length']))
        if 'position' in q:
            n = self.lib.dfs_pread(*args, ctypes.c_uint64(q['position']), ctypes.byref(self.err))
        else:
            n = self.lib.dfs_read(*args, ctypes.byref(self.err))
        return n, buf.raw[:max(n, 0)]

    def op(self, q):
        op, err = q['op'], ctypes.byref(self.err)
        if op == 'create':
            return self.new('dfs_create', q['h'], q['path'], None)
        if op == 'append':
            return self.new('dfs_append', q['h'], q['path'], ctypes.c_uint32(q.get('flags', 0)))
        if op == 'open':
            return self.new('dfs_open', q['h'], q['path'])
        if op == 'write':
            data = base64.b64decode(q['data'])
            return self.lib.dfs_write(self.files[q['h']], data, ctypes.c_size_t(len(data)), err)
        if op == 'sync':
            return self.lib.dfs_sync(self.files[q['h']], ctypes.c_uint32(q.get('flags', 0)), err)
        if op == 'close':
            return self.lib.dfs_close(self.files.pop(q['h']), err)
        if op == 'recover_lease':
            return self.boolean('dfs_recover_lease', q['path'])
        if op == 'is_closed':
            return self.boolean('dfs_is_closed', q['path'])
        if op == 'truncate':
            return self.boolean('dfs_truncate', q['path'], ctypes.c_uint64(q['length']))
        raise ValueError(op)

    def serve(self):
        for line in sys.stdin:
            q, a = json.loads(line), {}
            if q['op'] == 'read':
                a['rc'], data = self.read(q)
                a['data'] = base64.b64encode(data).decode()
            else:
                a['rc'] = self.op(q)
            if a['rc'] < 0:
                a.update(text=self.err.text.decode(), remote=self.err.remote.decode())
            print(json.dumps(a), flush=True)


if __name__ == '__main__':
    Library(sys.argv[1], sys.argv[2:]).serve()
