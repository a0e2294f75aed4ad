/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a file that was written: flushed, synced, closed, published, given up; and writes that
 * were lost, until each descriptor was told. */
#include "fuse/content/content_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "common/base/err.h"
#include "fuse/content/overlay.h"

/* ---- writes that were lost ---- */

void note_lost(struct inode *in, int rc)
{
	in->error = rc;
	in->error_told = false;
	in->errors++;
}

/* The cause stands in the line of the write that was lost, which may have been another process's.
 */
static void say_lost(const struct inode *in, struct dfs_err *err)
{
	snprintf(err->text, sizeof(err->text),
		 "/.reserved/.inodes/%" PRIu64
		 ": bytes of an earlier write were lost: %s; the line of "
		 "that write has the cause",
		 in->id, err_name(in->error));
}

/* May @h write on? Until somebody was told, what comes next would hide that something is missing
 * before it. */
int refusal(const struct handle *h, struct dfs_err *err)
{
	if (h->errors == h->in->errors || h->in->error_told)
		return 0;
	say_lost(h->in, err);
	return h->in->error;
}

/* To the descriptor @h, by a call that has the result @rc. */
static int tell_lost(struct handle *h, int rc, struct dfs_err *err)
{
	struct inode *in = h->in;

	if (h->errors == in->errors)
		return rc;
	h->errors = in->errors;
	in->error_told = true;
	if (rc == 0)
		say_lost(in, err);
	return in->error;
}

/* A close that failed need not have lost anything: the data nodes may have it all, and only the
 * NameNode was out of reach. Then the lease is ended now, and the length tells. */
int heal_locked(struct mount *m, struct inode *in, struct dfs_err *err)
{
	struct user *owner;
	char path[ID_PATH_MAX];
	struct dfs_stat st;
	bool closed;
	int rc;

	if (!in->unclosed)
		return 0;
	id_path(path, in->id);
	owner = users_owner(&m->users);
	rc = dfs_recover_lease(in->w_user->fs, path, &closed, err);
	/* who has made a file that nobody may write (git, tar) may write it all the same, until it
	 * is closed */
	if (rc == -EACCES)
		rc = dfs_recover_lease(owner->fs, path, &closed, err);
	users_put(&m->users, owner);
	if (rc == 0 && !closed)
		rc = dfs_wait_closed(in->w_user->fs, path, m->opt.timeout_s * 1000, err);
	rc = rc ?: stat_file(m, in, in->w_user, &st, err);
	if (rc < 0)
		return rc;
	in->unclosed = false;
	state_unmark(&m->state, &in->w_mark);
	mark_changed(m, in);
	if (in->unclosed_length == UINT64_MAX || st.length == in->unclosed_length)
		return 0;
	snprintf(err->text, sizeof(err->text), "%s has %llu bytes, %llu were written", path,
		 (unsigned long long)st.length, (unsigned long long)in->unclosed_length);
	note_lost(in, -EIO);
	return -EIO;
}

/* ---- closing ---- */

/* Everything to HDFS, whole and closed. */
int settle_locked(struct mount *m, struct inode *in, struct dfs_err *err)
{
	int rc = heal_locked(m, in, err);

	if (rc == 0 && !in->ov && in->w_user) { /* a stream, or one that was just healed */
		rc = close_stream(m, in, err);
		if (rc == 0)
			done_writing(m, in);
	} else if (rc == 0 && in->ov) {
		rc = publish_locked(m, in, err);
		if (rc == 0) {
			overlay_free(in->ov);
			in->ov = NULL;
			mark_changed(m, in);
			done_writing(m, in);
		}
	}
	if (in->w_user)
		rc = what_failed(m, in, in->w_user, rc);
	return rc;
}

int content_flush(struct mount *m, struct handle *h, enum closer who, struct dfs_err *err)
{
	struct inode *in = h->in;
	int rc = 0;

	if (who == CLOSER_OTHER)
		return 0;
	pthread_mutex_lock(&in->content);
	/* Nothing was written: a shell has moved the descriptor. It is closed with its last copy.
	 */
	if (in->w && !in->w_written) {
		rc = tell_lost(h, 0, err);
		pthread_mutex_unlock(&in->content);
		return rc;
	}
	/* A descriptor that several processes write to is closed by each of them: then it is enough
	 * that everybody can read the bytes; the opener, or the last one, closes the file. */
	if (in->w && (in->w_reopened || who == CLOSER_WRITER)) {
		rc = dfs_sync(in->w, DFS_SYNC_UPDATE_LENGTH, err);
		in->w_unflushed = rc < 0;
		rc = what_failed(m, in, in->w_user, rc);
	} else if (!in->hidden) {
		rc = settle_locked(m, in, err);
		in->hopeless = rc < 0 && in->ov && !fail_is_passing(rc);
	}
	h->flushed = true;
	rc = tell_lost(h, rc, err);
	pthread_mutex_unlock(&in->content);
	return rc;
}

/* What is in HDFS already may have been closed early. */
static int sync_closed(struct mount *m, const struct handle *h, struct dfs_err *err)
{
	const uint64_t by = h->in->early_by;
	const uid_t asker = h->user->uid;

	return by == BY_ANYBODY ? users_sync_file(&m->users, h->in->id, asker, err)
				: users_sync(&m->users, by, asker, err);
}

int content_sync(struct mount *m, struct handle *h, struct dfs_err *err)
{
	struct inode *in = h->in;
	int rc = 0;

	pthread_mutex_lock(&in->content);
	if (in->w) {
		rc = dfs_sync(in->w, DFS_SYNC_DISK | DFS_SYNC_UPDATE_LENGTH, err);
		in->w_unflushed = rc < 0;
		if (rc == 0 && in->w_appended)
			rc = sync_closed(m, h, err); /* what was there before */
		in->w_appended = in->w_appended && rc < 0;
		rc = what_failed(m, in, in->w_user, rc);
	} else if (!in->hidden) {
		rc = settle_locked(m, in, err);
		rc = rc ?: sync_closed(m, h, err);
	}
	if (!in->error_told && h->errors == in->errors && in->errors > 0)
		h->errors--; /* it came later, and nobody else has asked */
	rc = tell_lost(h, rc, err);
	pthread_mutex_unlock(&in->content);
	return rc;
}

/* What is not in HDFS is no more. */
static void give_up_locked(struct mount *m, struct inode *in)
{
	struct dfs_err err;

	(void)close_stream(m, in, &err);
	state_unmark(&m->state, &in->w_mark);
	overlay_free(in->ov);
	in->ov = NULL;
	in->has_times = in->unclosed = false;
	users_put(&m->users, in->w_user);
	in->w_user = NULL;
	mark_changed(m, in);
	pthread_mutex_lock(&m->inodes.lock);
	in->dirty = in->atime_set = false;
	pthread_mutex_unlock(&m->inodes.lock);
}

/* Nobody is left who could try again. */
int settle_last_locked(struct mount *m, struct inode *in, struct dfs_err *err)
{
	int rc;

	if (in->hopeless) { /* close(2) has told */
		give_up_locked(m, in);
		return 0;
	}
	if (pending_is_over(m)) {
		rc = -ETIMEDOUT;
		if (err)
			snprintf(
				err->text, sizeof(err->text),
				"/.reserved/.inodes/%llu is left to the next mount: the time to close "
				"files is over, or the NameNode is away",
				(unsigned long long)inode_id(&m->inodes, in));
	} else {
		rc = settle_locked(m, in, err);
	}
	if (!in->w_user)
		return rc;
	if (fail_is_passing(rc)) {
		pending_failed(m);
		pending_add(m, in);
	} else {
		give_up_locked(m, in);
	}
	return rc;
}

int content_close(struct mount *m, struct inode *in, struct dfs_err *err)
{
	int rc;

	pthread_mutex_lock(&in->content);
	rc = in->hidden || !in->w_user ? 0 : settle_last_locked(m, in, err);
	in->error_told = true; /* or nobody is left who has written */
	in->w_reopened = false;
	pthread_mutex_unlock(&in->content);
	return rc;
}

int content_heal(struct mount *m, struct inode *in, struct dfs_err *err)
{
	bool written;
	int rc = 0;

	pthread_mutex_lock(&in->content);
	pthread_mutex_lock(&m->inodes.lock);
	written = in->writers > 0;
	pthread_mutex_unlock(&m->inodes.lock);
	if (!in->w) /* somebody else writes it again, and closes it */
		rc = settle_locked(m, in, err);
	if (rc < 0 && !fail_is_passing(rc) && !written && in->w_user)
		give_up_locked(m, in);
	pthread_mutex_unlock(&in->content);
	return rc;
}

void content_leave(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&in->content);
	overlay_leave(in->ov);
	in->ov = NULL;
	in->w_mark = in->hidden_mark = 0; /* not taken back */
	users_put(&m->users, in->w_user);
	in->w_user = NULL;
	pthread_mutex_unlock(&in->content);
}

void content_discard(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&in->content);
	give_up_locked(m, in);
	pthread_mutex_unlock(&in->content);
}
