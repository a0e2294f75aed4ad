#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dfs-namenode is asked well-formed nonsense: every method of ClientProtocol with fields by chance. Each call is answered
or refused, no connection is closed, the process goes on and ends with status 0.

usage: nn_nonsense.py DFS-NAMENODE
"""
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))
import pbtext  # noqa: E402
from hrpc import Checks, NameNode, RemoteError, Rpc  # noqa: E402
from programs import program  # noqa: E402

CALLS = 12000
TEXTS = ['/', '/a', '/a/b', '/a/f', '/b', '/.reserved', '/.reserved/raw/a', '/.reserved/.inodes/16386',
         '/.reserved/.inodes/16386/..', '/.reserved/.inodes/16386/b/c', '', 'rel', '/a//b', '/a/../b', '/' + 'x' * 300,
         '/a/' * 500, '/.snapshot', '/a/.snapshot', '/.reserved/.inodes/-1', '/.reserved/.inodes/99999999999999999999',
         '%s%n%d', '/\u00fc', '/a b', 'c1', 'c2', 'HDFS_NameNode', 'c' * 2000, 'HOT', 'COLD', 'alice', 'bob']
IDS = [16385, 16386, 16387, 1 << 30, (1 << 30) + 1, 1001]
SPECIAL = {'GetFsStatusRequestProto': 'getFsStats', 'HAServiceStateRequestProto': 'getHAServiceState'}


def main():
    c, seed = Checks(), int(os.environ.get('DFS_TEST_SEED', random.randrange(1 << 30)))
    random.seed(seed)
    print('DFS_TEST_SEED=%d' % seed)
    methods = {m: SPECIAL.get(m, m[0].lower() + m[1:-len('RequestProto')]) for m in pbtext.requests()}
    answers = {'answered': 0}
    with tempfile.TemporaryDirectory(prefix='nn-nonsense-') as directory:
        nn = NameNode(program('namenode-shim/dfs-namenode'), directory, ['hadoop.log.dir=' + directory]).format().start()
        conns = {u: Rpc(nn.addr, user=u) for u in ('root', 'alice', 'bob')}
        for _ in range(CALLS):
            message = random.choice(list(methods))
            fields = pbtext.made_up(message, TEXTS, IDS)
            try:
                random.choice(list(conns.values())).call(methods[message], fields)
                answers['answered'] += 1
            except RemoteError as e:
                answers[e.short] = answers.get(e.short, 0) + 1
                if e.short == 'SafeModeException':
                    conns['root'].call('setSafeMode', {1: 1})
            except (OSError, AssertionError) as e:
                c.check('every call is answered', False, '%s %s: %r' % (methods[message], str(fields)[:500], e))
                break
        c.check('calls are answered and refused in many ways', answers['answered'] > 1000 and len(answers) > 10, answers)
        c.check('SIGTERM ends with status 0', nn.proc.poll() is None and nn.stop() == 0)
        if c.failed:
            print(open(directory + '/log').read()[-3000:])
            if nn.proc.poll() is None:
                nn.kill()
    return 1 if c.failed else 0


if __name__ == '__main__':
    sys.exit(main())
