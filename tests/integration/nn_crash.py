#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of dfs-namenode at random moments of creates, renames, deletes, replacements and changes of attributes: after the restart every
acknowledged operation is there, and of each operation in flight all or nothing. At some of the kills the machine
is made to have died too: the file that LMDB does not sync is rubbish, and the checkpoint and the journal count.

usage: nn_crash.py DFS-NAMENODE [OPERATIONS]

Each of a few threads works in a directory of its own and keeps a model of it. The call in flight at a
kill is sent again with the same client and call id, as stock clients do: the outcome must then be as if
it had been executed exactly once, which the retry cache has to see to.
"""
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))
from hrpc import Checks, NameNode, RemoteError, Rpc  # noqa: E402
from programs import program  # noqa: E402

THREADS = 4
LOST_ANSWERS = 0.05  # of the calls: the client hangs up before the answer
CONF = ['dfs.shim.redundancy.delay=1s', 'dfs.namenode.symlinks.enabled=true']


class Worker(threading.Thread):
    def __init__(self, nn, number, count, gate, seed, enough):
        super().__init__(daemon=True)
        self.nn, self.n, self.count, self.gate = nn, number, count, gate
        self.enough = enough
        self.rng = random.Random(seed * 100 + number)
        self.cid = os.urandom(16)
        self.model = {}  # path -> 'f', or where a link leads
        self.attrs, self.acls = {}, {}  # path -> name -> value
        self.closed = {}  # path -> True
        self.rpc, self.retries, self.next_id, self.error = None, 0, 0, None

    def connect(self):
        deadline = time.time() + 30
        while True:
            try:
                return Rpc(self.nn.addr, client_id=self.cid)
            except OSError:
                if time.time() > deadline:
                    raise
                time.sleep(0.005)

    def send(self, method, fields):
        """Until answered, with one call id."""
        call_id, retry = self.next_id, 0
        self.next_id += 1
        while True:
            try:
                if not self.rpc:
                    self.rpc = self.connect()
                if retry == 0 and self.rng.random() < LOST_ANSWERS:
                    self.rpc.call_and_hang_up(method, fields, call_id)
                    raise ConnectionError
                return self.rpc.call(method, fields, call_id=call_id, retry=retry)
            except (OSError, AssertionError) as e:
                if isinstance(e, AssertionError):
                    raise
                self.rpc = None
                self.retries += 1
                retry += 1
            except RemoteError as e:
                if e.short != 'SafeModeException':
                    raise
                time.sleep(0.005)

    def path(self, used):
        mine = list(self.model)
        if used and mine:
            return self.rng.choice(mine)
        return f'/w{self.n}/{self.rng.choice("ab")}/n{self.rng.randrange(10**9)}'

    def step_attr(self, path):
        """Done twice, either change of an attribute fails."""
        attrs = self.attrs.setdefault(path, {})
        if len(attrs) < 3:
            name, value = f'n{self.rng.randrange(10**9)}', os.urandom(self.rng.choice([0, 10, 9000]))
            self.send('setXAttr', {1: path, 2: {1: 0, 2: name, 3: value}, 3: 1})
            attrs[name] = value
        else:
            name = self.rng.choice(list(attrs))
            self.send('removeXAttr', {1: path, 2: {1: 0, 2: name}})
            del attrs[name]

    def step_acl(self, path):
        name, perm = self.rng.choice('abcd'), self.rng.randrange(8)
        self.send('modifyAclEntries', {1: path, 2: {1: 0, 2: 0, 3: perm, 4: name}})
        self.acls.setdefault(path, {})[name] = perm

    def create(self, path):
        early = self.rng.randrange(2)  # answered before it is on the disk: a kill of the process loses it no more than the others
        st = self.send('create', {1: path, 2: {1: 0o644}, 3: f'c{self.n}', 4: 1, 5: 1, 6: 1, 7: 1 << 20, 1001: early}).sub(1)
        self.model[path] = 'f'
        return st[13]

    def step_replace(self):
        """A file with an attribute is replaced by another one, whose id it has afterwards."""
        p = self.path(False)
        ids = []
        for name in (p, p + '.new'):
            ids.append(self.create(name))
            assert self.send('complete', {1: name, 2: f'c{self.n}', 4: ids[-1]})[1] == 1
        self.step_attr(p)
        self.send('replaceBlocks', {1: f'/.reserved/.inodes/{ids[0]}', 2: ids[0], 3: 0, 6: p + '.new', 8: 0})
        del self.model[p + '.new']
        assert self.send('getFileInfo', {1: p}).sub(1)[13] == ids[1]

    def step(self):
        what = self.rng.choice('cccrrdlxxa' * 4 + 'p')
        files = [p for p in self.model if self.model[p] == 'f']
        if what in 'xa':
            if files:
                (self.step_attr if what == 'x' else self.step_acl)(self.rng.choice(files))
            return
        if what == 'c':
            p = self.path(False)
            file_id = self.create(p)
            if self.rng.random() < 0.5:
                ok = self.send('complete', {1: p, 2: f'c{self.n}', 4: file_id, 1001: self.rng.randrange(2)})
                self.closed[p] = True
                assert ok[1] == 1
        elif what == 'p':
            self.step_replace()
        elif what == 'l':
            p = self.path(False)
            self.send('createSymlink', {1: p + '.', 2: p, 3: {1: 0o777}, 4: 1})
            self.model[p] = p + '.'
        elif what == 'r':
            a, b = self.path(True), self.path(False)
            ok = self.send('rename', {1: a, 2: b})[1]
            parent = b.rsplit('/', 1)[0]
            want = a in self.model and any(p.startswith(parent + '/') for p in self.made)
            assert ok == want, ('rename', a, b, ok, want)
            if ok:
                for kept in (self.model, self.attrs, self.acls, self.closed):
                    if a in kept:
                        kept[b] = kept.pop(a)
        else:
            a = self.path(True)
            ok = self.send('delete', {1: a, 2: 1})[1]
            assert ok == (a in self.model), ('delete', a, ok)
            for kept in (self.model, self.attrs, self.acls, self.closed):
                kept.pop(a, None)
        self.made |= set(self.model)

    def run(self):
        self.made = set()
        try:
            steps = 0
            while steps < self.count or (not self.enough.is_set() and steps < 20 * self.count):
                self.gate.wait()
                self.step()
                steps += 1
        except Exception as e:  # shown by the main thread
            self.error = f'{type(e).__name__} {e}'


def tree(c, path):
    out = {}
    for name in c.ls(path) or []:
        p = f'{path.rstrip("/")}/{name}'
        st = c.call('getFileLinkInfo', {1: p}).sub(1)
        if st[1] == 1:
            out.update(tree(c, p))
        else:
            out[p] = st[9].decode() if st[1] == 3 else 'f'
    return out


def attributes(c, files):
    """What is there of @files, as Worker.attrs and .acls have it."""
    attrs, acls = {}, {}
    for p in files:
        x = c.call('getXAttrs', {1: p}).subs(1)
        attrs[p] = {m[2].decode(): m[3] or b'' for m in x}
        acl = c.call('getAclStatus', {1: p}).sub(1).subs(4)
        acls[p] = {m[4].decode(): m[3] for m in acl if m[4]}
    return attrs, acls


def lose_power(name_dir):
    """What a machine that stopped may leave, where data.mdb is not synced."""
    mark = f'{name_dir}/current/unsynced'
    if not os.path.exists(mark):
        return 0
    with open(f'{name_dir}/current/data.mdb', 'r+b') as f:
        size = os.fstat(f.fileno()).st_size
        f.write(os.urandom(size))
    return 1


def main():
    namenode = program('namenode-shim/dfs-namenode')
    ops = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seed = int(os.environ.get('SEED', random.randrange(10**6)))
    print(f'seed {seed}')
    rng = random.Random(seed)
    C = Checks()
    with tempfile.TemporaryDirectory(prefix='nn-crash-') as directory:
        nn = NameNode(namenode, directory, CONF).format().start()
        gate = threading.Event()
        gate.set()
        enough = threading.Event()
        workers = [Worker(nn, i, ops // THREADS, gate, seed, enough) for i in range(THREADS)]
        for w in workers:
            w.start()
        kills = losses = 0
        try:
            while any(w.is_alive() for w in workers):
                time.sleep(rng.uniform(0.02, 0.35))
                nn.kill()
                kills += 1
                if kills % 2:
                    losses += lose_power(directory + '/name')
                nn.start()
                if losses > 0 and sum(w.retries for w in workers) > 0:
                    enough.set()  # else the workers go on: what is to be shown must have taken place
            for w in workers:
                C.check(f'thread {w.n} saw each call executed exactly once', not w.error, w.error)
            C.check('kills hit calls in flight', sum(w.retries for w in workers) > 0)
            C.check('some kills took the machine too', losses > 0)
            nn.kill()
            lose_power(directory + '/name')
            nn.start()
            c = Rpc(nn.addr)
            for w in workers:
                have, want = tree(c, f'/w{w.n}'), w.model
                C.check(f'namespace of thread {w.n} is what was acknowledged', have == want,
                        f'missing {sorted(set(want.items()) - set(have.items()))[:5]}, '
                        f'too much {sorted(set(have.items()) - set(want.items()))[:5]}')
                files = [p for p in have if have[p] == 'f']
                attrs, acls = attributes(c, files)
                C.check(f'attributes of thread {w.n}', attrs == {p: w.attrs.get(p, {}) for p in files})
                C.check(f'access control lists of thread {w.n}', acls == {p: w.acls.get(p, {}) for p in files})
                still = [p for p in w.closed if c.call('isFileClosed', {1: p})[1] != 1]
                C.check(f'what thread {w.n} has closed is closed', not still, still[:5])
            print(f'{ops} operations, {kills} kills, {losses} of the machine, {sum(w.retries for w in workers)} calls sent again')
            C.check('SIGTERM ends with status 0', nn.stop() == 0)
        finally:
            if nn.proc.poll() is None:
                nn.kill()
            if C.failed:
                print(open(directory + '/log').read()[-3000:])
    return 1 if C.failed else 0


if __name__ == '__main__':
    sys.exit(main())
