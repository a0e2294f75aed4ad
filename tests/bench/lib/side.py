# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks that run two clusters side by side have in common: times and CPU of commands, the disk's own figures, a cold page cache."""
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
APACHE = ROOT / 'tests/interop/apache-hdfs'
sys.path.insert(0, str(ROOT / 'tests'))
TICK = os.sysconf('SC_CLK_TCK')


def parse_size(text):
    shift = {'k': 10, 'm': 20, 'g': 30}.get(text[-1:].lower())
    return int(text[:-1]) << shift if shift else int(text)


def size_text(text):
    """The type of an argument: a size, which stays a text."""
    if parse_size(text) < 1:
        raise ValueError
    return text


def cpu_of(pids):
    """User and system seconds so far of processes, their ended children included."""
    total = 0
    for pid in pids:
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
        total += sum(int(x) for x in fields[11:15])
    return total / TICK


def drop_caches():
    os.sync()
    pathlib.Path('/proc/sys/vm/drop_caches').write_text('3')


def touch_memory(path, size):
    """Write and remove a file of that size in memory: a virtual machine's host takes free pages back, and
    handing them out again would be most of what a get costs."""
    block = bytes(1 << 20)
    with open(path, 'wb') as f:
        for _ in range((size >> 20) + 1):
            f.write(block)
    os.unlink(path)


def timed(cmd, pids):
    """(seconds, client CPU, server CPU) of a command that must succeed."""
    servers, before = cpu_of(pids), resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    subprocess.run(cmd, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    client = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, client, cpu_of(pids) - servers


def make_source(path, size):
    """A file of random bytes."""
    with open(path, 'wb') as f:
        for _ in range(size >> 20):
            f.write(os.urandom(1 << 20))
        f.write(os.urandom(size & ((1 << 20) - 1)))


def fio(directory, size):
    """Sequential MB/s of the disk: O_DIRECT, 1 MiB, write with fsync at the end, then read."""
    rates = {}
    path = directory / 'fio.bin'
    for rw in ('write', 'read'):
        drop_caches()
        done = subprocess.run(['fio', '--name=seq', f'--filename={path}', f'--rw={rw}', '--bs=1m', f'--size={size}',
                               '--direct=1', '--ioengine=io_uring', '--iodepth=8', '--end_fsync=1',
                               '--output-format=json'], check=True, capture_output=True, text=True)
        job = json.loads(done.stdout[done.stdout.index('{'):])['jobs'][0][rw]
        rates[rw] = job['bw_bytes'] / 1e6
    path.unlink()
    return rates
