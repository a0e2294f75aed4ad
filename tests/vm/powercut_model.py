# SPDX-License-Identifier: Apache-2.0
"""What must be there after a power cut, by the journal of powercut_client: docs/guarantees.md 1, 3 and 8.

A thread changes its own directory, one operation at a time. So after a cut its directory is as after the
last acknowledged operation, or as after the one that was under way, whole. Exceptions are files that were
created or closed early (DFS_CREATE_EARLY, DFS_CREATE_CLOSE_EARLY). Their creation may be undone until an
hsync or close of the file, or a change that began later, is acknowledged; the bytes that a close left may
be lost until dfs_sync_early() is. A file whose close was acknowledged is not open; after an early close,
when a change that began later, or dfs_sync_early(), has been acknowledged. (That they last after 100 ms
is not held against an emulated machine.)
"""
from dataclasses import dataclass, field

CHANGES = ('mkdir', 'rename', 'delete', 'append')


@dataclass
class File:
    kind: str           # 'n', 'e' created early, 'c' closed early, too
    least: int = 0      # promised bytes
    most: int = 0       # bytes that were handed to the client
    must: bool = True   # its creation is promised
    open: bool = True
    created: int = -1   # line of the acknowledgement of an early creation
    closed: int = -1    # line of the acknowledgement of an early close whose bytes may be lost
    closing: int = -1   # line of the acknowledgement of an early close that may be undone
    shut: bool = False  # its close is promised


@dataclass
class Thread:
    names: dict = field(default_factory=dict)  # path: id of a file, or None
    pending: list = None                       # the operation under way
    began: int = 0                             # its line


def moved(names, old, new):
    """@names after a rename; @new None: after a delete."""
    inside = {p: v for p, v in names.items() if p == old or p.startswith(old + '/')}
    rest = {p: v for p, v in names.items() if p not in inside}
    if new:
        rest.update({new + p[len(old):]: v for p, v in inside.items()})
    return rest


def changed(names, op):
    """@names when @op has been executed."""
    if op[0] == 'mkdir':
        return {**names, op[1]: None}
    if op[0] == 'create':
        return {**names, op[2]: int(op[1])}
    if op[0] in ('rename', 'delete'):
        return moved(names, op[1], op[2] if op[0] == 'rename' else None)
    return names


class Model:
    def __init__(self, lines, mark):
        """As after the acknowledgement @mark, and before the next one."""
        self.files, self.threads, self.acknowledged = {}, {}, 0
        for i, line in enumerate(lines):
            what, thread, *op = line.split()
            t = self.threads.setdefault(int(thread), Thread())
            if what == 'A':
                if int(op[0]) > mark:
                    break
                self._acknowledge(t, i)
            elif what == 'W':
                self.files[int(op[0])].most = int(op[1])
            else:
                t.pending, t.began = op, i
                if op[0] == 'create':
                    self.files[int(op[1])] = File(op[3], must=False)

    def _acknowledge(self, t, line):
        op, t.pending = t.pending, None
        self.acknowledged += 1
        t.names = changed(t.names, op)
        f = self.files[int(op[1])] if op[0] in ('create', 'hsync', 'close', 'append') else None
        lasts = op[0] in CHANGES
        if f:
            f.open = op[0] != 'close'
        if op[0] == 'create':
            f.must, f.created, lasts = f.kind == 'n', line, f.kind == 'n'
        elif op[0] == 'hsync' or op[0] == 'close' and f.kind != 'c':
            f.must, f.least = True, int(op[2])
            lasts = f.shut = op[0] == 'close'
        elif op[0] == 'close':
            f.closed = f.closing = line
        elif op[0] == 'append':
            f.kind, f.shut, f.closing = 'n', False, -1  # an append is closed in the usual way
        elif op[0] == 'syncearly':
            lasts = True
            for x in self.files.values():
                if 0 <= x.closed < t.began:
                    x.least, x.closed = max(x.least, x.most if x.kind == 'c' else 0), -1
        if lasts:
            for x in self.files.values():
                x.must |= 0 <= x.created < t.began
                x.shut |= 0 <= x.closing < t.began

    def candidates(self, thread):
        """The possible contents of the thread's directory."""
        t = self.threads[thread]
        return [t.names] + ([changed(t.names, t.pending)] if t.pending else [])

    def wanted(self):
        """(path, id, promised bytes) of all files that may be there; those that can be read at once first."""
        all_of_them = {(p, i) for k in self.threads for names in self.candidates(k) for p, i in names.items() if i is not None}
        return sorted(((p, i, self.files[i].least) for p, i in all_of_them), key=lambda x: (x[2] == 0, self.files[x[1]].open, x))

    def _faults(self, names, there, read):
        """(what, bytes) of each broken promise if the directory is to be @names."""
        for p, i in names.items():
            if p not in there:
                if i is None or self.files[i].must:
                    yield f'{p} is gone', self.files[i].least if i is not None else 0
            elif i is not None:
                f, (good, state, is_open) = self.files[i], read[p, i]
                if state == 'foreign':
                    yield f'{p}: foreign bytes at {good}', max(0, f.least - good)
                elif good < f.least:
                    yield f'{p}: {good} bytes of {f.least} promised ones ({state})', f.least - good
                elif good > f.most:
                    yield f'{p}: {good} bytes, {f.most} were written', 0
                if is_open and f.shut and i not in self._appended():
                    yield f'{p} is open, and its close was acknowledged', 0
        yield from ((f'{p} should not be there', 0) for p in there - names.keys())

    def _appended(self):
        """Files that an append under way may have opened."""
        return {int(t.pending[1]) for t in self.threads.values() if t.pending and t.pending[0] == 'append'}

    def check(self, there, read):
        """(what, bytes) of each broken promise; @there: paths; @read: (good bytes, state, is it open?) by path and id."""
        faults = []
        for k in self.threads:
            mine = {p for p in there if p == f'/t{k}' or p.startswith(f'/t{k}/')}
            faults += min((list(self._faults(n, mine, read)) for n in self.candidates(k)), key=len)
        return faults
