# SPDX-License-Identifier: Apache-2.0
"""The log of device-mapper's log-writes target: what a disk holds when its power goes.

The format is that of Documentation/admin-guide/device-mapper/log-writes.rst: a superblock, then for
each entry a sector of header and its data. The target logs a write of the disk's cache right before
the flush that makes it last, a FUA write and a mark when they are complete. So everything in front of
a position lasts, and of the writes right before the next flush any may be on the disk already.
"""
import mmap
import os
import random
import struct
from dataclasses import dataclass

MAGIC, VERSION = 0x6a736677736872, 1
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
SECTOR = 512
KINDS = ('flush', 'fua', 'none', 'subset', 'torn')


@dataclass
class Entry:
    sector: int
    count: int  # sectors
    flags: int
    at: int     # byte of the log where its data begins
    mark: int   # number of a mark, else -1

    def lasts(self):
        """It is on the disk by itself, or orders that, or is no write."""
        return bool(self.flags & (FLUSH | FUA | MARK))


@dataclass
class Cut:
    kind: str
    end: int    # entries before this one last
    batch: int  # those from end to here are in the disk's cache
    mark: int   # the last one before the cut
    seed: int


class Log:
    @staticmethod
    def is_at(path):
        try:
            with open(path, 'rb') as f:
                return struct.unpack('<QQ', f.read(16)) == (MAGIC, VERSION)
        except (OSError, struct.error):
            return False

    def __init__(self, path):
        if not self.is_at(path):
            raise ValueError(f'{path} is no log of dm-log-writes')
        with open(path, 'rb') as f:
            self.data = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        _, _, count, self.size = struct.unpack_from('<QQQI', self.data, 0)
        self.entries = list(self._read(count))

    def _read(self, count):
        at = self.size
        for _ in range(count):
            sector, sectors, flags, length = struct.unpack_from('<QQQQ', self.data, at)
            text = self.data[at + 32:at + 32 + length] if flags & MARK else b''
            unit = self.size // SECTOR
            yield Entry(sector * unit, sectors * unit, flags, at + self.size, int(text) if text.isdigit() else -1)
            at += self.size + (0 if flags & (DISCARD | MARK) else sectors * self.size)

    def apply(self, fd, entry, sectors=None):
        """Write what @entry writes, or only these sectors of it."""
        if entry.flags & (DISCARD | MARK):
            return
        for i in [None] if sectors is None else sectors:
            first, n = (0, entry.count) if i is None else (i, 1)
            at = entry.at + first * SECTOR
            os.pwrite(fd, memoryview(self.data)[at:at + n * SECTOR], (entry.sector + first) * SECTOR)

    def cuts(self, count, seed):
        """@count cuts at random places behind the first mark, by kind in turns, in the order of the log."""
        choice = random.Random(seed)
        places, mark, start = {k: [] for k in KINDS}, -1, 0
        for i, e in enumerate(self.entries):
            mark = max(mark, e.mark)
            if mark >= 0 and e.lasts():
                if e.flags & FLUSH and i > start:  # a batch: the cut is before its flush is complete
                    for k in 'none', 'subset', 'torn':
                        places[k].append((start, i, mark))
                if e.flags & (FLUSH | FUA):
                    places['flush' if e.flags & FLUSH else 'fua'].append((i + 1, i + 1, mark))
            if e.lasts():
                start = i + 1
        kinds = [k for k in KINDS if places[k]]
        found = [Cut(k, *choice.choice(places[k]), choice.getrandbits(32)) for k in (kinds[i % len(kinds)] for i in range(count))]
        return sorted(found, key=lambda c: c.end)

    def apply_cache(self, fd, cut):
        """Of the writes in the disk's cache those that it has taken by chance to what lasts, some of them in part."""
        choice = random.Random(cut.seed)
        share = choice.choice((0.1, 0.5, 0.9, 1))
        for e in self.entries[cut.end:cut.batch]:
            if cut.kind == 'torn' and choice.random() < 0.3:
                self.apply(fd, e, [i for i in range(e.count) if choice.random() < share])
            elif cut.kind in ('subset', 'torn') and choice.random() < share:
                self.apply(fd, e)
