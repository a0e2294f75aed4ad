# SPDX-License-Identifier: Apache-2.0
"""What the test tools share: wrong arguments are one line and exit status 2, and one run at a time has a folder."""
import argparse
import fcntl
import os
import sys


class Arguments(argparse.ArgumentParser):
    def __init__(self, description, **kw):
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter, **kw)

    def error(self, message):
        self.exit(2, f'{self.prog}: {message}; see --help\n')


def at_least(least, kind=int):
    """The type of an argument: a number of this kind that is not less."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value < float('inf'):
            raise argparse.ArgumentTypeError(f'{text!r} is no {"whole " if kind is int else ""}number of at least {least}')
        return value
    return parse


def folder(text):
    """The type of an argument: a directory that is there."""
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f'no directory {text}')
    return text


def numbers(least):
    """The type of an argument: whole numbers that are not less, separated by commas."""
    return lambda text: [at_least(least)(word) for word in text.split(',')]


def words_of(known):
    """The type of an argument: some of these words, separated by commas."""
    def parse(text):
        strange = [w for w in text.split(',') if w not in known]
        if strange:
            raise argparse.ArgumentTypeError(f'{strange[0]!r} is none of {", ".join(known)}')
        return text
    return parse


def build_folder(text):
    """The type of an argument: a directory that meson has set up."""
    if not os.path.exists(os.path.join(text, 'meson-info/intro-tests.json')):
        raise argparse.ArgumentTypeError(f'{text} is no build directory')
    return text


def check_arguments(description, *flags):
    """Of a tests/check_*.py, which takes the build directory (most have no need of it) and these flags."""
    p = Arguments(description)
    p.add_argument('build', nargs='?', type=build_folder, help='build directory, such as build/release')
    for flag in flags:
        p.add_argument(flag, action='store_true')
    return p.parse_args()


def alone(where):
    """Only one run at a time goes on from here: a lock in the folder @where, to be kept as long as the run lasts. The second
    run says who has it, and ends with status 1."""
    os.makedirs(where, exist_ok=True)
    lock = open(os.path.join(where, 'lock'), 'a+', encoding='utf-8')  # a child that does not exec keeps it, too
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        sys.exit(f'{os.path.basename(sys.argv[0])}: process {lock.read().strip() or "?"} is running in {where}; wait for its end')
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
