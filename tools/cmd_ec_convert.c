/* SPDX-License-Identifier: Apache-2.0 */
/* ec convert: rewrite a file under another erasure-coding policy, or replicated.
 *
 * The new file grows beside the old one under a name that says whose it is and what it becomes
 * (.NAME.ec-convert.FILEID.POLICY), so that who is interrupted goes on where he was: what is there
 * is compared from its start, and the rest appended in new blocks. When it is whole it is read
 * again and compared, its units are checked against each other, the old one's rights as they are
 * now, its times and attributes are copied, and one rename puts it in the old one's place, unless
 * that has changed meanwhile. For this last step the old file's lease is taken, so that nobody
 * opens it for append in between. The storage policy is the old one's from the first block on.
 * Who converts a file that somebody else converts cannot know whether that one still lives, and
 * takes the new file over: the other one notices, and leaves it alone. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/err.h"
#include "common/erasure/policy.h"
#include "tools/copy.h"

#define PART (4u << 20)
#define XATTR_NAMES (64u << 10)
#define XATTR_VALUE (64u << 10)
#define TMP_BASE_MAX 140   /* bytes of the file's name that show in that of the new file */
#define WAIT_MS 30000      /* for the lease of who was killed; then his work is thrown away */
#define OTHERS_PATIENCE 20 /* times 100 ms, for somebody else's last step */
#define FENCE_PATIENCE 90  /* seconds; a NameNode lets go of a file whose writer is silent for 60 */
#define TMP_MARK ".ec-convert."

struct convert {
	struct cli *c;
	const char *path, *policy;
	char *tmp;          /* owned */
	struct dfs_stat st; /* of the file, at first */
	uint64_t tmp_id;    /* file id of the new one */
	uint8_t *a, *b;     /* owned; PART bytes each */
	struct progress progress;
	uint64_t kept; /* bytes of an earlier attempt */
	bool said;     /* err is our sentence, not the library's */
	struct dfs_err err;
};

static int say(struct convert *v, int rc, const char *text)
{
	v->said = true;
	snprintf(v->err.text, sizeof(v->err.text), "%s", text);
	return rc;
}

/* Exactly @len bytes of @f. */
static int read_all(struct convert *v, struct dfs_file *f, uint8_t *buf, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = dfs_read(f, buf + got, len - got, &v->err);

		if (n <= 0)
			return n < 0 ? (int)n
				     : say(v, -ESTALE,
					   "the file became shorter meanwhile; run the command again");
		got += (size_t)n;
	}
	return 0;
}

/* Are the first @len bytes of both files equal? 1, 0. */
static int same_bytes(struct convert *v, uint64_t len)
{
	struct dfs_file *x = NULL, *y = NULL;
	int rc = dfs_open(v->c->fs, v->path, &x, &v->err);
	bool same = true;

	if (rc == 0)
		rc = dfs_open(v->c->fs, v->tmp, &y, &v->err);
	for (uint64_t at = 0; at < len && rc == 0 && same; at += PART) {
		const size_t n = len - at < PART ? (size_t)(len - at) : PART;

		rc = read_all(v, x, v->a, n);
		rc = rc ?: read_all(v, y, v->b, n);
		same = rc == 0 && memcmp(v->a, v->b, n) == 0;
		if (copy_interrupted())
			rc = say(v, -EINTR, "interrupted; the same command goes on from here");
	}
	dfs_close(x, NULL);
	dfs_close(y, NULL);
	return rc < 0 ? rc : same;
}

/* The rest of the file, from @at on. Takes @to. */
static int copy_rest(struct convert *v, struct dfs_file *to, uint64_t at)
{
	struct dfs_file *from = NULL;
	struct dfs_err closing = {0};
	int rc = dfs_open(v->c->fs, v->path, &from, &v->err), closed;

	if (rc == 0)
		rc = dfs_seek(from, at, &v->err);
	while (rc == 0 && at < v->st.length && !copy_interrupted()) {
		const size_t n = v->st.length - at < PART ? (size_t)(v->st.length - at) : PART;
		ssize_t put;

		rc = read_all(v, from, v->a, n);
		put = rc == 0 ? dfs_write(to, v->a, n, &v->err) : 0;
		rc = put < 0 ? (int)put : rc;
		progress_add(&v->progress, n);
		at += n;
	}
	if (rc == 0 && at < v->st.length)
		rc = say(v, -EINTR, "interrupted; the same command goes on from here");
	dfs_close(from, NULL);
	/* also after an interruption: what is there can be continued */
	closed = dfs_close(to, &closing);
	if (rc == 0 && closed < 0)
		rc = (v->err = closing, closed);
	return rc;
}

static bool has_policy(struct convert *v, const char *path)
{
	struct dfs_ec_policy p;
	int rc = dfs_get_ec_policy(v->c->fs, path, &p, &v->err);

	return rc > 0 ? strcmp(p.name, v->policy) == 0
		      : rc == 0 && strcasecmp(v->policy, EC_REPLICATION_NAME) == 0;
}

/* Its name can be guessed: who made it could have it open, or open it before it has its owner, and
 * write into the file that it becomes. */
static int check_whose(struct convert *v, const struct dfs_stat *tmp)
{
	if (strcmp(tmp->owner, dfs_user(v->c->fs)) == 0 || strcmp(tmp->owner, v->st.owner) == 0)
		return 0;
	v->said = true;
	snprintf(v->err.text, sizeof(v->err.text),
		 "%.200s, left by an earlier conversion as it seems, belongs to %.60s and is not "
		 "used; delete it first",
		 v->tmp, tmp->owner);
	return -EPERM;
}

/* What an earlier attempt left: opened at its end, *@ret_at bytes that are good. 0: there is
 * nothing to go on from. */
static int resume(struct convert *v, struct dfs_file **ret, uint64_t *ret_at)
{
	struct dfs_stat st;
	bool closed = false;
	int rc = dfs_stat(v->c->fs, v->tmp, &st, &v->err);

	if (rc == -ENOENT)
		return 0;
	rc = rc ?: check_whose(v, &st);
	rc = rc ?: dfs_recover_lease(v->c->fs, v->tmp, &closed, &v->err);
	v->said = rc == -EBUSY; /* later, it says */
	if (rc == 0 && !closed)
		closed = dfs_wait_closed(v->c->fs, v->tmp, WAIT_MS, &v->err) == 0;
	rc = rc ?: dfs_stat(v->c->fs, v->tmp, &st, &v->err);
	rc = rc ?: check_whose(v, &st);
	if (rc < 0)
		return rc;
	if (!closed || st.length > v->st.length || !has_policy(v, v->tmp) ||
	    (rc = same_bytes(v, st.length)) == 0) {
		rc = dfs_delete(v->c->fs, v->tmp, false, &v->err);
		return rc < 0 ? rc : 0;
	}
	if (rc < 0)
		return rc;
	*ret_at = st.length;
	v->tmp_id = st.file_id;
	rc = dfs_append(v->c->fs, v->tmp, DFS_APPEND_NEW_BLOCK, ret, &v->err);
	return rc < 0 ? rc : 1;
}

/* What holds for a file may come from its directory, and be the same for both files then. Apache's
 * NameNode takes every policy for an erasure-coded file, and goes by few of them: what it says
 * afterwards counts. */
static int keep_storage_policy(struct convert *v)
{
	char old[DFS_STORAGE_POLICY_MAX], new[DFS_STORAGE_POLICY_MAX], text[200];
	struct dfs *fs = v->c->fs;
	int rc = dfs_get_storage_policy(fs, v->path, old, sizeof(old), &v->err);

	rc = rc ?: dfs_get_storage_policy(fs, v->tmp, new, sizeof(new), &v->err);
	if (rc < 0 || strcmp(old, new) == 0)
		return rc;
	rc = dfs_set_storage_policy(fs, v->tmp, old, &v->err);
	rc = rc ?: dfs_get_storage_policy(fs, v->tmp, new, sizeof(new), &v->err);
	if (rc < 0 || strcmp(old, new) == 0)
		return rc;
	snprintf(
		text, sizeof(text),
		"its storage policy %s would be lost: HDFS has only some for erasure-coded files; set one of "
		"those first (HOT, COLD, ALL_SSD)",
		old);
	return say(v, -ENOTSUP, text);
}

static int write_new(struct convert *v)
{
	struct dfs_stat made;
	const struct dfs_create_opts o = {.size = sizeof(o),
					  .block_size = v->st.block_size,
					  .mode = 0600,
					  .flags = DFS_CREATE_NO_PARENTS,
					  .ec_policy = v->policy,
					  /* 0: dfs.replication */
					  .replication =
						  v->st.erasure_coded ? 0 : v->st.replication,
					  .ret_stat = &made};
	struct dfs_file *to = NULL;
	uint64_t at = 0;
	int rc = resume(v, &to, &at);

	if (rc == 0) {
		rc = dfs_create(v->c->fs, v->tmp, &o, &to, &v->err);
		v->tmp_id = rc == 0 ? made.file_id : 0;
	}
	if (rc < 0)
		return rc;
	rc = keep_storage_policy(v);
	if (rc < 0) {
		dfs_close(to, NULL);
		return rc;
	}
	v->kept = at;
	progress_add(&v->progress, at);
	return copy_rest(v, to, at);
}

static void on_finding(void *arg, const struct dfs_ec_finding *f)
{
	bool *missing = arg; /* and nothing worse */

	*missing = *missing && f->fault == DFS_EC_UNIT_MISSING;
}

/* A file that had all its copies is not replaced by one that lacks units. */
static int too_few_nodes(struct convert *v, uint64_t units)
{
	struct dfs_ec_policy p;

	if (dfs_get_ec_policy(v->c->fs, v->tmp, &p, NULL) != 1)
		p = (struct dfs_ec_policy){0};
	snprintf(v->err.text, sizeof(v->err.text),
		 "%" PRIu64 " units of what was written are missing: %s wants %u data nodes "
		 "(dfs admin report says how many there are); the file was left as it is",
		 units, v->policy, p.data_units + p.parity_units);
	return -EIO;
}

static int verify_new(struct convert *v)
{
	struct dfs_ec_summary s = {0};
	bool missing = true;
	int rc = same_bytes(v, v->st.length);

	if (rc == 0)
		return say(
			v, -EIO,
			"the new file differs from the old one when it is read back; the old one was left as it is; "
			"run the command again");
	if (rc < 0 || strcasecmp(v->policy, EC_REPLICATION_NAME) == 0)
		return rc < 0 ? rc : 0;
	rc = dfs_verify_ec(v->c->fs, v->tmp, on_finding, &missing, &s, &v->err);
	if (rc == 0 && s.findings && missing)
		rc = too_few_nodes(v, s.findings);
	else if (rc == 0 && s.findings)
		rc = say(
			v, -EIO,
			"some units of the new file are missing or wrong; the old one was left as it is; run the command "
			"again");
	return rc;
}

/* The new file must be the one that was verified, the old one what it was at first, but for its
 * rights. */
static int still_the_same(struct convert *v, struct dfs_stat *ret_now, struct dfs_stat *ret_tmp)
{
	int rc = dfs_stat(v->c->fs, v->tmp, ret_tmp, &v->err);

	rc = rc ?: dfs_stat(v->c->fs, v->path, ret_now, &v->err);
	if (rc < 0)
		return rc;
	if (ret_tmp->file_id != v->tmp_id || ret_tmp->length != v->st.length)
		return say(v, -EBUSY, "another process converts this file; wait for its end");
	if (ret_now->file_id != v->st.file_id || ret_now->length != v->st.length ||
	    ret_now->mtime_ms != v->st.mtime_ms)
		return say(
			v, -ESTALE,
			"the file was changed meanwhile and left as it is; run the command again");
	return 0;
}

/* Extended attributes, of those namespaces that the caller may see. */
static int copy_xattrs(struct convert *v)
{
	struct dfs *fs = v->c->fs;
	char *names = (char *)v->b;
	ssize_t n = dfs_list_xattrs(fs, v->path, names, XATTR_NAMES, &v->err), len;
	int rc = 0;

	if (n == -EOPNOTSUPP)
		return 0;
	for (ssize_t at = 0; rc == 0 && at < n; at += (ssize_t)strlen(names + at) + 1) {
		len = dfs_get_xattr(fs, v->path, names + at, v->a, XATTR_VALUE, &v->err);
		rc = len < 0 ? (int)len
			     : dfs_set_xattr(fs, v->tmp, names + at, v->a, (size_t)len, 0, &v->err);
	}
	return n < 0 ? (int)n : rc;
}

/* The new file may have got a list from its directory. */
static int copy_acl(struct convert *v, bool has_acl)
{
	struct dfs *fs = v->c->fs;
	struct dfs_acl *acl;
	struct dfs_stat tmp;
	int rc = dfs_stat(fs, v->tmp, &tmp, &v->err);

	if (rc == 0 && has_acl) {
		rc = dfs_get_acl(fs, v->path, &acl, &v->err);
		if (rc < 0)
			return rc;
		rc = dfs_set_acl(fs, v->tmp, acl->entry, acl->count, &v->err);
		dfs_acl_free(acl);
	} else if (rc == 0 && tmp.has_acl) {
		rc = dfs_remove_acl(fs, v->tmp, &v->err);
	}
	return rc;
}

static int copy_owner(struct convert *v, const struct dfs_stat *now)
{
	struct dfs_stat tmp;
	int rc = dfs_set_owner(v->c->fs, v->tmp, now->owner, now->group, &v->err);

	if (rc != -EACCES)
		return rc;
	/* who is no superuser owns both files anyway, or must not replace the old one */
	rc = dfs_stat(v->c->fs, v->tmp, &tmp, &v->err);
	if (rc == 0 && (strcmp(tmp.owner, now->owner) || strcmp(tmp.group, now->group)))
		rc = say(
			v, -EACCES,
			"only the superuser can give the new file the same owner and group; run the command as that user");
	return rc;
}

static bool acl_equal(const struct dfs_acl *x, const struct dfs_acl *y)
{
	bool same = x->count == y->count;

	for (size_t i = 0; same && i < x->count; i++)
		same = x->entry[i].scope == y->entry[i].scope &&
		       x->entry[i].type == y->entry[i].type &&
		       x->entry[i].perm == y->entry[i].perm &&
		       !strcmp(x->entry[i].name ?: "", y->entry[i].name ?: "");
	return same;
}

/* 1: both files have the same list; 0; -errno. */
static int same_acl(struct convert *v)
{
	struct dfs_acl *x = NULL, *y = NULL;
	int rc = dfs_get_acl(v->c->fs, v->path, &x, &v->err);

	rc = rc ?: dfs_get_acl(v->c->fs, v->tmp, &y, &v->err);
	rc = rc ?: acl_equal(x, y);
	dfs_acl_free(x);
	dfs_acl_free(y);
	return rc;
}

/* It has its owner and mode now: nobody opens it any more who could not write to the old one. */
static int check_closed(struct convert *v)
{
	struct dfs_blocks *b;
	int rc = dfs_blocks(v->c->fs, v->tmp, 0, 1, &b, &v->err);

	if (rc < 0)
		return rc;
	rc = b->under_construction
		     ? say(v, -EBUSY,
			   "another client writes to the new file; the old one is left as it is; run the command again")
		     : 0;
	dfs_blocks_free(b);
	return rc;
}

/* The new file gets all that the old one has beside its bytes, as it is now: who closed it to
 * others while it was copied must not find it open again. */
static int copy_rights(struct convert *v)
{
	struct dfs *fs = v->c->fs;
	struct dfs_stat now, tmp;
	int rc = still_the_same(v, &now, &tmp), same;

	if (rc < 0)
		return rc;
	rc = copy_owner(v, &now);
	rc = rc ?: copy_xattrs(v);
	rc = rc ?: copy_acl(v, now.has_acl);
	rc = rc ?: dfs_set_permission(fs, v->tmp, now.mode, &v->err);
	rc = rc ?: dfs_set_times(fs, v->tmp, v->st.mtime_ms, v->st.atime_ms, &v->err);
	rc = rc ?: check_closed(v);
	rc = rc ?: still_the_same(v, &now, &tmp);
	if (rc < 0)
		return rc;
	same = now.mode == tmp.mode && now.has_acl == tmp.has_acl &&
	       !strcmp(now.owner, tmp.owner) && !strcmp(now.group, tmp.group);
	if (same && now.has_acl)
		same = same_acl(v);
	return same > 0 ? 0 : same ?: say(v, -ESTALE, "the rights of the file were changed meanwhile; it is left as it is; run the command again");
}

/* Somebody has the old file open for append: for the last step of another conversion, or to write
 * to it. */
static int somebody_writes(struct convert *v)
{
	const struct timespec pause = {0, 100000000};
	struct dfs_stat now;

	for (int i = 0; i < OTHERS_PATIENCE; i++) {
		if (dfs_stat(v->c->fs, v->path, &now, NULL) == 0 && now.file_id != v->st.file_id)
			return say(v, -EBUSY, "another process has converted this file meanwhile");
		(void)nanosleep(&pause, NULL); /* an early end is fine */
	}
	return say(v, -ESTALE,
		   "another client writes to the file; it is left as it is; run the command again");
}

/* While the old file is open for append here, nobody else can write to it. Who may replace a file
 * but not write to it must do without. */
static int replace_old(struct convert *v)
{
	struct dfs *fs = v->c->fs;
	struct dfs_file *fence = NULL;
	struct dfs_stat now;
	int rc = dfs_append(fs, v->path, DFS_APPEND_NEW_BLOCK, &fence, &v->err);

	if (rc == -EBUSY)
		return somebody_writes(v);
	if (rc < 0 && rc != -EACCES)
		return rc;
	rc = copy_rights(v);
	rc = rc ?: dfs_rename(fs, v->tmp, v->path, true, &v->err);
	if (rc == 0 || !fence || dfs_stat(fs, v->path, &now, NULL) < 0 ||
	    now.mtime_ms != v->st.mtime_ms) {
		dfs_close(fence, NULL); /* after the rename there is nothing left to close */
		return rc;
	}
	dfs_close(fence, NULL);
	/* a close counts as a change */
	(void)dfs_set_times(fs, v->path, v->st.mtime_ms, DFS_TIME_KEEP, NULL);
	return rc;
}

/* There is no such file at the path any more. */
static bool is_gone(struct convert *v)
{
	struct dfs_stat now;
	const int rc = dfs_stat(v->c->fs, v->path, &now, NULL);

	return rc == -ENOENT || (rc == 0 && now.file_id != v->st.file_id);
}

/* Why it failed, where the library's sentence would not tell: the new file was taken from us, or
 * put in place, by somebody who converts the same file; or the old one is gone. */
static int explain(struct convert *v, int rc)
{
	const bool taken = rc == -ENOENT || rc == -ESTALE || rc == -EEXIST || rc == -EBUSY;
	struct dfs_stat tmp;
	bool gone;

	if (rc == 0 || v->said)
		return rc;
	gone = is_gone(v); /* that shows as anything: another policy, blocks that no node has */
	if (gone && dfs_stat(v->c->fs, v->tmp, &tmp, NULL) == 0 && tmp.file_id == v->tmp_id)
		return say(v, -ESTALE, "the file was deleted, renamed or replaced meanwhile");
	return taken || gone
		       ? say(v, -EBUSY, "another process converts this file and goes on with it")
		       : rc;
}

static void drop(struct convert *v, const char *tmp)
{
	struct dfs_err err = {0};
	const int rc = dfs_delete(v->c->fs, tmp, false, &err);

	if (rc < 0 && rc != -ENOENT)
		copy_left(v->c, v->path, tmp, &err);
}

/* What is of no use to the next attempt goes, but not what another one makes. */
static void clean_up(struct convert *v, int rc)
{
	const bool useless = rc == -ESTALE || rc == -EIO || rc == -EACCES || rc == -ENOTSUP;
	struct dfs_stat tmp;

	if (rc < 0 && (useless || is_gone(v)) && dfs_stat(v->c->fs, v->tmp, &tmp, NULL) == 0 &&
	    tmp.file_id == v->tmp_id)
		drop(v, v->tmp);
}

/* The old file is open. A conversion that was killed in its last step left it so, and the new file
 * beside it: as soon as the NameNode sees that the writer is silent it lets us have it. A writer
 * who lives keeps it. */
static int lift_fence(struct convert *v)
{
	const struct timespec pause = {1, 0};
	struct dfs *fs = v->c->fs;
	struct dfs_file *f = NULL;
	struct dfs_stat now, tmp;
	int rc = dfs_stat(fs, v->tmp, &tmp, &v->err) == 0 ? -EAGAIN : -EBUSY;

	for (int i = 0; rc == -EAGAIN && i < FENCE_PATIENCE && !copy_interrupted(); i++) {
		rc = dfs_append(fs, v->path, DFS_APPEND_NEW_BLOCK, &f, &v->err);
		if (rc == -EBUSY) {
			rc = -EAGAIN;
			(void)nanosleep(&pause, NULL); /* an early end is fine */
		}
	}
	if (rc == -EAGAIN || rc == -EBUSY)
		return say(v, -EBUSY, "somebody is writing it");
	if (rc < 0)
		return rc;
	dfs_close(f, NULL);
	rc = dfs_stat(fs, v->path, &now, &v->err);
	/* nothing was written: only the close counted as a change */
	if (rc == 0 && now.length == v->st.length)
		rc = dfs_set_times(fs, v->path, v->st.mtime_ms, v->st.atime_ms, &v->err);
	return rc ?: dfs_stat(fs, v->path, &v->st, &v->err);
}

static int convert(struct convert *v)
{
	struct dfs_blocks *b;
	int rc = dfs_blocks(v->c->fs, v->path, 0, INT64_MAX, &b, &v->err);
	bool open;

	if (rc < 0)
		return rc;
	open = b->under_construction;
	dfs_blocks_free(b);
	if (open)
		rc = lift_fence(v);
	if (rc < 0)
		return rc;
	progress_start(&v->progress, v->st.length, 1, !v->c->quiet && !v->c->json);
	rc = write_new(v);
	rc = rc ?: verify_new(v);
	rc = rc ?: replace_old(v);
	progress_end(&v->progress);
	rc = explain(v, rc);
	clean_up(v, rc);
	return rc;
}

static char *tmp_name(const char *path, uint64_t id, const char *policy)
{
	char *dir = cli_parent(path), *base = cli_base(path), *name, *full;
	size_t n = strlen(base);

	if (n > TMP_BASE_MAX) /* not in the middle of a character */
		for (n = TMP_BASE_MAX; n && ((uint8_t)base[n] & 0xc0) == 0x80; n--)
			;
	if (asprintf(&name, ".%.*s" TMP_MARK "%" PRIu64 ".%.60s", (int)n, base, id, policy) < 0)
		name = cli_strdup(".ec-convert"); /* out of memory is told by the next one */
	full = cli_join(dir, name);
	free(dir);
	free(base);
	free(name);
	return full;
}

/* What attempts to give the file another policy left: it has another id now, and nobody would find
 * them again. */
static void drop_other_attempts(struct convert *v)
{
	struct dfs_ec_policies *l;
	struct dfs_stat tmp;

	if (dfs_ec_policies(v->c->fs, &l, NULL) < 0)
		return;
	for (size_t i = 0; i <= l->count; i++) {
		char *name = tmp_name(v->path, v->st.file_id,
				      i < l->count ? l->policy[i].name : EC_REPLICATION_NAME);

		if (dfs_stat(v->c->fs, name, &tmp, NULL) == 0 && check_whose(v, &tmp) == 0)
			drop(v, name);
		free(name);
	}
	dfs_ec_policies_free(l);
}

static void convert_one(struct cli *c, const char *path, const char *policy)
{
	struct convert v = {
		.c = c, .path = path, .policy = policy, .a = malloc(PART), .b = malloc(PART)};
	int rc = v.a && v.b ? dfs_stat(c->fs, path, &v.st, &v.err)
			    : say(&v, -ENOMEM, "out of memory");
	bool already = false;

	if (rc == 0 && v.st.type != DFS_FILE)
		rc = say(&v, -EISDIR,
			 v.st.type == DFS_DIR ? "is a directory; use -r" : "is no file");
	if (rc == 0)
		already = has_policy(&v, path);
	if (rc == 0 && !already) {
		v.tmp = tmp_name(path, v.st.file_id, policy);
		rc = convert(&v);
		if (rc == 0)
			drop_other_attempts(&v);
	}
	if (rc < 0)
		cli_fail(c, path, v.err.text);
	else if (c->json) {
		cli_json_item(c, path);
		printf(", \"bytes\": %" PRIu64 ", \"kept\": %" PRIu64 ", \"converted\": %s}",
		       v.st.length, v.kept, already ? "false" : "true");
	}
	free(v.tmp);
	free(v.a);
	free(v.b);
}

/* What another conversion is making, or left. */
static bool is_tmp(const char *path)
{
	const char *base = strrchr(path, '/');

	return base && base[1] == '.' && strstr(base, TMP_MARK);
}

/* Of a file that is not there any more, or was converted since. A router looks the file's id up in
 * one of its name spaces. */
static void warn_if_left(struct cli *c, const char *tmp)
{
	char by_id[64];
	struct dfs_stat st;
	struct dfs_err err = {0};
	char text[512];
	bool router;
	const int rc = dfs_is_router(c->fs, &router, &err);

	if (rc < 0 || router) {
		snprintf(
			text, sizeof(text),
			"a conversion made this file; nothing tells whether it still runs%s%.200s. Delete the file when no "
			"conversion runs and the original is gone",
			rc < 0 ? ": " : " behind a router", rc < 0 ? err.text : "");
		cli_warn(c, tmp, text);
		return;
	}
	snprintf(by_id, sizeof(by_id), "/.reserved/.inodes/%" PRIu64,
		 (uint64_t)strtoull(strstr(strrchr(tmp, '/'), TMP_MARK) + strlen(TMP_MARK), NULL,
				    10));
	if (dfs_stat(c->fs, by_id, &st, NULL) == -ENOENT)
		cli_warn(c, tmp, "a conversion left this file and the original is gone; delete it");
}

static void convert_entry(struct cli *c, const char *path, const struct dfs_stat *st, void *policy)
{
	if (st->type == DFS_FILE && is_tmp(path))
		warn_if_left(c, path);
	if (st->type == DFS_DIR)
		cli_list(c, path, convert_entry, policy);
	else if (st->type == DFS_FILE && !copy_interrupted() && !is_tmp(path))
		convert_one(c, path, policy);
}

int ec_convert(struct cli *c)
{
	char *policy = c->argv[c->argc - 1];

	copy_catch_signals();
	for (int i = 1; i + 1 < c->argc && !copy_interrupted(); i++) {
		struct dfs_stat st;

		if (c->recursive && dfs_stat(c->fs, c->argv[i], &st, NULL) == 0 &&
		    st.type == DFS_DIR)
			cli_list(c, c->argv[i], convert_entry, policy);
		else
			convert_one(c, c->argv[i], policy);
	}
	return cli_json_end(c);
}
