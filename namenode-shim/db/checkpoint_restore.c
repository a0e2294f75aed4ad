/* SPDX-License-Identifier: Apache-2.0 */
/* What a start does with what is beside data.mdb: which file counts, whether it and the journal are
 * whole, the checkpoint put in data.mdb's place, the journal's records applied to it. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/log.h"
#include "common/base/sync_dir.h"
#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/db/checkpoint_internal.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/db/db_check.h"
#include "namenode-shim/db/journal.h"

bool checkpoint_counts(const char *current)
{
	char path[PATH_LEN + sizeof(MARK)];

	snprintf(path, sizeof(path), "%s/" MARK, current);
	return !access(path, F_OK) || errno != ENOENT; /* what cannot be seen may be there */
}

/* Where the file system has no copy of its own. */
static int copy_bytes(int in, int out)
{
	_cleanup_free_ uint8_t *buf = malloc(COPY_BYTES);
	off_t at = 0;
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	while ((n = pread(in, buf, COPY_BYTES, at)) > 0)
		for (ssize_t done = 0, m; done < n; done += m, at += m) {
			m = pwrite(out, buf + done, (size_t)(n - done), at);
			if (m <= 0)
				return m ? neg_errno() : -EIO;
		}
	return n < 0 ? neg_errno() : 0;
}

static int copy_file(const char *from, const char *to)
{
	_cleanup_close_ int in = ret_errno(open(from, O_RDONLY | O_CLOEXEC));
	_cleanup_close_ int out = -1;
	ssize_t n;
	int rc = 0;

	if (in < 0)
		return in;
	out = ret_errno(open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
	if (out < 0)
		return out;
	do {
		n = copy_file_range(in, NULL, out, NULL, 1u << 30, 0);
	} while (n > 0);
	if (n < 0)
		rc = errno == ENOSPC ? -ENOSPC : copy_bytes(in, out);
	return rc < 0 ? rc : ret_errno(fsync(out));
}

static int pass_over(void *arg, uint64_t seq, const uint8_t *buf, size_t len)
{
	(void)arg, (void)seq, (void)buf, (void)len;
	return 0;
}

int checkpoint_check(const char *current, struct db_check_sum *ret, struct err *err)
{
	const bool counts = checkpoint_counts(current);
	char file[PATH_LEN];
	uint64_t seq = 0;
	int rc, segments;

	snprintf(file, sizeof(file), "%s/%s", current, counts ? CHECKPOINT : "data.mdb");
	rc = db_check_file(file, ret, err);
	if (rc < 0) {
		if (counts)
			err_prefix(err, "%s/" MARK " says that the checkpoint counts", current);
		return rc;
	}
	segments = journal_segments(current);
	if (segments < 0)
		return err_sys(err, segments, "cannot list %s", current);
	if (counts && !segments)
		return err_set(err, -EBADMSG,
			       "%s/" MARK
			       " says that the journal counts, but no journal.N is there",
			       current);
	if (!segments)
		return 0;
	rc = checkpoint_seq_of(file, &seq);
	return rc < 0 ? err_sys(err, rc, "cannot read %s", file)
		      : journal_each(current, seq, pass_over, NULL, err);
}

int checkpoint_restore(const char *current, struct err *err)
{
	char from[PATH_LEN], tmp[PATH_LEN], to[PATH_LEN];
	int rc;

	snprintf(from, sizeof(from), "%s/" CHECKPOINT, current);
	snprintf(tmp, sizeof(tmp), "%s/" DATA_TMP, current);
	snprintf(to, sizeof(to), "%s/data.mdb", current);
	log_info("op=restore file=%s from=%s", to, from);
	rc = copy_file(from, tmp);
	if (rc == -ENOSPC && !truncate(to, 0)) /* it does not count */
		rc = copy_file(from, tmp);
	rc = rc < 0 ? rc : ret_errno(rename(tmp, to));
	rc = rc < 0 ? rc : sync_dir_at(AT_FDCWD, current);
	return rc < 0 ? err_sys(err, rc, "cannot copy %s to %s", from, to) : 0;
}

static int apply_ops(struct txn *t, const uint8_t *buf, size_t len)
{
	struct rd r = rd_init(buf, len);

	while (rd_left(&r) && !r.bad) {
		const uint8_t op = rd_u8(&r);
		const MDB_dbi *dbi = db_table(t->db, rd_u8(&r));
		const size_t klen = rd_be16(&r), vlen = rd_be32(&r);
		const uint8_t *key = rd_bytes(&r, klen), *val = rd_bytes(&r, vlen);
		int rc;

		if (r.bad || !dbi || !klen || (op != OP_PUT && op != OP_DEL))
			return -EBADMSG;
		rc = op == OP_PUT ? txn_put(t, *dbi, key, klen, val, vlen)
				  : txn_del(t, *dbi, key, klen);
		if (rc < 0 && (op == OP_PUT || rc != -ENOENT))
			return rc;
	}
	return r.bad ? -EBADMSG : 0;
}

struct replay {
	struct db *db;
	uint64_t records;
};

static int replay_one(void *arg, uint64_t seq, const uint8_t *buf, size_t len)
{
	struct replay *p = arg;
	struct txn t;
	int rc;

	(void)seq; /* the record puts it */
	do {
		rc = txn_write_begin(p->db, &t);
		if (rc < 0)
			return rc;
		rc = apply_ops(&t, buf, len);
		if (rc < 0)
			txn_write_abort(&t);
		else
			rc = txn_write_commit(&t);
	} while (rc == -EXFULL && !db_grow(p->db));
	p->records += rc >= 0;
	return rc;
}

int checkpoint_replay(struct db *db, struct err *err)
{
	const uint64_t start = clock_mono_ns();
	struct replay p = {db, 0};
	char dir[PATH_LEN];
	bool counts;
	int rc;

	checkpoint_current_dir(dir, sizeof(dir), db);
	counts = checkpoint_counts(dir);
	/* Without the mark it is data.mdb that counts, and stays whole at any time. */
	(void)mdb_env_set_flags(db->env, MDB_NOSYNC, counts);
	rc = journal_each(dir, db->seq, replay_one, &p, err);
	if (rc >= 0 && counts) {
		do {
			rc = db_skip_ids(db);
		} while (rc == -EXFULL && !db_grow(db));
		if (rc < 0)
			err_sys(err, rc, "cannot write the counters in %s", dir);
	}
	(void)mdb_env_set_flags(db->env, MDB_NOSYNC, 0);
	if (rc < 0)
		return rc;
	rc = db_rc(mdb_env_sync(db->env, 1));
	rc = rc < 0 ? rc : checkpoint_mark_remove(db);
	rc = rc < 0 ? rc : checkpoint_remove_rest(db);
	if (rc < 0)
		return err_sys(err, rc, "cannot sync %s", dir);
	if (p.records)
		log_info("op=replay records=%" PRIu64 " ms=%llu", p.records,
			 (clock_mono_ns() - start) / NS_PER_MS);
	return 0;
}
