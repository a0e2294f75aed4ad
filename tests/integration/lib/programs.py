# SPDX-License-Identifier: Apache-2.0
"""The program that a suite tests by itself: meson gives it as an argument, a person gives DFS_BUILD, as for any other suite."""
import os
import sys


def program(path):
    """The next argument, which is taken away, when that is a file; else @path in the build directory (itest.py)."""
    if len(sys.argv) > 1 and os.path.isfile(sys.argv[1]):
        return sys.argv.pop(1)
    from itest import BUILD
    if not os.path.isfile(os.path.join(BUILD, path)):
        sys.exit(f'{os.path.basename(sys.argv[0])}: no {path} in {BUILD}; build it, or set DFS_BUILD')
    return os.path.join(BUILD, path)


def cases(known):
    """The names of cases that are asked for: the arguments, else all."""
    unknown = [name for name in sys.argv[1:] if name not in known]
    if unknown:
        sys.exit(f'{os.path.basename(sys.argv[0])}: no case {unknown[0]}; there are: {" ".join(known)}')
    return sys.argv[1:] or list(known)
