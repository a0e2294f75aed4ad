# SPDX-License-Identifier: Apache-2.0
"""A disk that fails, on a loop device."""
import fcntl
import os
import struct

from itest import Fail, Skip, at_end, check, path, run

MI = 1 << 20
SHUTDOWN = 0x8004587d  # EXT4_IOC_SHUTDOWN: from now on every call fails with EIO, as on a disk that was pulled out
NO_FLUSH = 2


class Disk:
    """An ext4 of its own, mounted at .top."""

    def __init__(self, name, size=300 * MI):
        self.image, self.top = path(name + '.img'), path(name)
        os.makedirs(self.top)
        with open(self.image, 'wb') as f:
            f.truncate(size)
        try:
            run('mkfs.ext4', '-q', '-F', '-m', '0', self.image, rc=0)
            self.mount()
        except (OSError, Fail) as e:
            raise Skip('no ext4 on a loop device here: %s' % str(e).strip()[-200:])
        at_end(lambda: run('umount', '-l', self.top))

    def mount(self):
        run('mount', '-o', 'loop,errors=remount-ro', self.image, self.top, rc=0)

    def repair(self):
        """A copy is repaired: who ran unshare -m meanwhile has the broken file system mounted still."""
        run('umount', self.top, rc=0)
        run('cp', self.image, self.image + '.new', rc=0)
        os.rename(self.image + '.new', self.image)
        check(run('e2fsck', '-fy', self.image).rc < 4, 'e2fsck')
        self.mount()

    def pull(self):
        fd = os.open(self.top, os.O_RDONLY)
        fcntl.ioctl(fd, SHUTDOWN, struct.pack('i', NO_FLUSH))
        os.close(fd)

    def turn_read_only(self):
        """What ext4 does by itself when it meets an error in its own data."""
        device = run('findmnt', '-no', 'SOURCE', self.top, rc=0).out.decode().strip()
        with open('/sys/fs/ext4/%s/trigger_fs_error' % os.path.basename(device), 'w') as f:
            f.write('asked for by a test')

    def fill(self):
        with open(self.top + '/filler', 'wb') as f:
            try:
                while True:
                    f.write(bytes(MI))
                    f.flush()
            except OSError:
                pass
