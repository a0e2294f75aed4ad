# SPDX-License-Identifier: Apache-2.0
"""The table of each benchmark, from its record (record.py): the scripts print it, tests/bench/draw puts it on the page."""
from record import cell, middle, ratio


def table(head, lines):
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in [head, ['---'] * len(head), *lines]).replace('| --- ', '|---').replace('--- |', '---|')


def times(row, slow, fast, digits=1):
    """How many times as fast, or as much: as the rounds say, or of the medians."""
    value = row.get('times', ratio(row.get(slow), row.get(fast)))
    return f'{value:.0f}' if isinstance(value, (int, float)) and value >= 100 else cell(value, digits)


def share(row, conditions):
    """Of what fio does on the same disk: each replica is written, one is read."""
    reads = row['op'] in ('get', 'cat')
    disk = conditions.get('fio_read_mb_s' if reads else 'fio_write_mb_s')
    if row['op'] == 'ls' or not disk or not row.get('ours_s'):
        return ''
    return f'{conditions["size_bytes"] / 1e6 * (1 if reads else row["replication"]) / middle(row["ours_s"]) / disk:.2f}'


def vs_apache(record):
    lines = []
    for r in record['rows']:
        digits = 3 if r['op'] == 'ls' else 2
        less = ratio(r.get('apache_cpu_s'), r.get('ours_cpu_s'))
        lines.append([r['op'], str(r['replication']), cell(r.get('ours_s'), digits), cell(r.get('apache_s'), digits), times(r, 'apache_s', 'ours_s'),
                      share(r, record['conditions']), cell(r.get('ours_cpu_s'), 2), cell(r.get('apache_cpu_s'), 2), cell(less, 1)])
    return table(['', 'replicas', 'dfs-rdma s', 'Apache s', 'times faster', 'of fio', 'CPU s, dfs-rdma', 'CPU s, Apache', 'times less CPU'], lines)


def latency(record):
    """A row for each number of streams, both nodes side by side."""
    rows = {(r['streams'], r['node']): r for r in record['rows']}
    lines = []
    for streams in dict.fromkeys(r['streams'] for r in record['rows']):
        pair = [rows.get((streams, node), {}) for node in ('dfs-datanode', 'Java')]
        line = [str(streams)]
        for name, digits in (('p50_ms', 2), ('p99_ms', 2), ('p999_ms', 2), ('reads_per_s', 0)):
            line += [cell(r.get(name), digits) for r in pair]
            if name == 'p99_ms':
                line.append(cell(ratio(pair[1].get(name), pair[0].get(name)), 1))
        for r in pair:
            left = ratio(r.get('streams_beside_mb_s'), r.get('streams_mb_s'))
            line.append('' if left is None else f'{max(0, 100 * (1 - left)):.0f} %')
        lines.append(line)
    return table(['streams', 'p50 ms', 'Java', 'p99 ms', 'Java', 'times', 'p99.9 ms', 'Java', 'reads/s', 'Java', 'streams lose', 'Java'], lines)


def small_reads(record):
    """A row for each way to read: both nodes and fio side by side."""
    rows = {(r['row'], r['node']): r for r in record['rows']}
    lines = []
    for row in dict.fromkeys(r['row'] for r in record['rows']):
        ours, java, fio = (rows.get((row, node), {}) for node in ('dfs-datanode', 'Java', 'fio'))
        rates = [x.get('reads_per_s') for x in (ours, java, fio)]
        lines.append([row, *(cell(x) for x in rates), cell(ratio(rates[0], rates[1]), 1), cell(ratio(rates[0], rates[2]), 2),
                      *(cell(x.get('mean_us')) for x in (ours, java, fio)), *(cell(x.get(name), 1) for name in ('node_cpu_us', 'client_cpu_us') for x in (ours, java))])
    return table(['under way', 'reads/s', 'Java', 'fio', 'times Java', 'of fio', 'mean us', 'Java', 'fio', 'node CPU us', 'Java', 'client CPU us', 'Java'], lines)


def start(record):
    return table(['', 'first read s', 'full report s', 'CPU s', 'directories from the index', 'listed', 'load'],
                 [[r['row'], cell(r['read_s'], 2), cell(r['report_s'], 2), cell(r['cpu_s'], 2), cell(r['indexed']), cell(r['listed']), cell(r['load'])]
                  for r in record['rows']])


def cost(part):
    """What one part of tests/bench/cost has counted."""
    def make(record):
        digits = 2 if part == 'calls' else 0
        rows = [r for r in record['rows'] if r['part'] == part]
        return table(['for each', 'node', 'client'], [[r['each'], *(counted(r[side], digits) for side in ('node', 'client'))] for r in rows])
    return make


def counted(figure, digits):
    """As cell(), with the commas that large counts need."""
    values = figure if isinstance(figure, list) else [figure]
    ends = f' ({min(values):,.{digits}f} to {max(values):,.{digits}f})' if len(values) > 1 else ''
    return f'{middle(figure):,.{digits}f}{ends}'


def namenode(record):
    return table(['operation', 'driver', 'dfs-namenode /s', 'Apache /s', 'times'],
                 [[r['op'], r['driver'], cell(r.get('ours_per_s')), cell(r.get('apache_per_s')), times(r, 'ours_per_s', 'apache_per_s', 2)]
                  for r in record['rows']])


MOUNT = ('ext4', 'library', 'dfs-fuse', 'hdfs dfs', 'glusterfs')


def mount(record):
    return table(['', *MOUNT, 'dfs-fuse / library', 'dfs-fuse / glusterfs'],
                 [[r['row'], *(cell(r.get(c)) for c in MOUNT), cell(r.get('of_library'), 2), cell(r.get('of_glusterfs'), 2)] for r in record['rows']])


def ec_files(record):
    size = record['conditions'].get('size_bytes')
    lines = []
    for r in record['rows']:
        if r['part'] == 'files':
            rate = size / 1e6 / middle(r['ours_s']) if size and r.get('ours_s') else None
            lines.append([r['op'], r['policy'], cell(r.get('ours_s'), 2), cell(r.get('apache_s'), 2), times(r, 'apache_s', 'ours_s'), cell(rate),
                          cell(r.get('ours_cpu_s'), 2), cell(r.get('apache_cpu_s'), 2)])
    return table(['', 'policy', 'dfs-rdma s', 'Apache s', 'times faster', 'dfs-rdma MB/s', 'CPU s, dfs-rdma', 'CPU s, Apache'], lines)


def ec_rebuild(record):
    return table(['policy', 'lost MB', 's', 'MB/s made again'],
                 [[r['policy'], cell(r['ours_mb']), cell(r['ours_s'], 2), cell(ratio(r['ours_mb'], r['ours_s']))]
                  for r in record['rows'] if r['part'] == 'rebuild'])


def ec_coder(record):
    return table(['', 'policy', 'buffers', 'dfs-rdma MB/s', 'erasure_code_perf MB/s', 'ratio', 'ec_encode_data() MB/s', 'ratio'],
                 [[r['op'], r['policy'], r['size'], cell(r['ours_mb_s']), cell(r['perf_mb_s']), times(r, 'ours_mb_s', 'perf_mb_s', 2),
                   cell(r['calls_mb_s']), cell(ratio(r['ours_mb_s'], r['calls_mb_s']), 2)]
                  for r in record['rows'] if r['part'] == 'coder'])


def conditions(record):
    """One line: what else a reader of the table must know, in words of the record."""
    words = []
    for key, value in record['conditions'].items():
        if key == 'size_bytes':
            words.append(f'{value / (1 << 30):g} GiB' if value >= 1 << 30 else f'{value / (1 << 20):g} MiB')
        elif key == 'rounds':
            words.append(f'{value} round{"s" if value != 1 else ""}')
        elif key == 'fio_write_mb_s':
            words.append(f'fio writes {value:.0f} MB/s')
        elif key == 'fio_read_mb_s':
            words.append(f'fio reads {value:.0f} MB/s')
        elif key == 'fdatasync_ms':
            words.append(f'fdatasync {value[0]:.2f} to {value[1]:.2f} ms')
        elif key == 'load':
            words.append(f'load {value:.0f} before')
        elif key == 'note':
            words.append(value)
        else:
            words.append(f'{value} {key}')
    return ', '.join(words)
