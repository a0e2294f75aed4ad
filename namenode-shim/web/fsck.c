/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/web/fsck.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/client_protocol_admin.h"
#include "namenode-shim/web/fsck_internal.h"

/* ---- the text in between ---- */

static const char *now_text(char buf[64])
{
	const time_t now = time(NULL);
	struct tm tm;

	strftime(buf, 64, "%a %b %d %H:%M:%S %Z %Y", localtime_r(&now, &tm));
	return buf;
}

static void ended(struct fsck *f)
{
	char when[64];

	fprintf(f->out, "FSCK ended at %s in %llu milliseconds\n", now_text(when),
		(unsigned long long)((clock_mono_ns() - f->start_ns) / NS_PER_MS));
}

static void failed(struct fsck *f, const char *why)
{
	ended(f);
	fprintf(f->out, "%s\n\n\nFsck on path '%s' FAILED", why, f->opts.path);
	f->phase = FSCK_END;
}

/* ---- the walk ---- */

static void push_dir(struct fsck *f, uint64_t id, const char *path)
{
	struct fsck_dir *d = xcalloc(1, sizeof(*d));

	d->id = id;
	d->path = xstrdup(path);
	d->last = xstrdup("");
	d->up = f->dir;
	f->dir = d;
	f->dirs++;
	if (f->opts.files)
		fprintf(f->out, "%s <dir>\n", path);
}

static void pop_dir(struct fsck *f)
{
	struct fsck_dir *d = f->dir;

	f->dir = d->up;
	free(d->path);
	free(d->last);
	free(d);
}

/* A sign of life for the tool, every so often. */
static void alive(struct fsck *f)
{
	if ((f->dirs + f->res.files) % 1000 == 0)
		fputc('\n', f->out);
}

static int enter(struct fsck *f, struct inode *n, const char *path)
{
	int rc = 0;

	alive(f);
	if (n->type == INODE_DIR) {
		push_dir(f, n->id, path);
		return ns_check(&f->ns, n, ACCESS_R | ACCESS_X, path);
	}
	if (n->type == INODE_LINK) {
		f->links++;
		if (f->opts.files)
			fprintf(f->out, "%s <symlink>\n", path);
		return 0;
	}
	rc = ns_check(&f->ns, n, ACCESS_R, path);
	if (!rc)
		fsck_file(f, n, path);
	return rc;
}

/* One entry of the directory on top; stops the listing when another directory is entered. */
static int on_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct fsck *f = arg;
	struct fsck_dir *d = f->dir;
	struct inode *n;
	char *path;
	int rc = inode_get(f->ns.t, id, f->ns.a, &n);

	if (rc < 0)
		return ns_io(&f->ns, rc);
	free(d->last);
	d->last = strndup(name, len);
	if (!d->last)
		return -ENOMEM;
	path = arena_printf(f->ns.a, "%s/%s", d->path[1] ? d->path : "", d->last);
	rc = enter(f, n, path);
	if (rc < 0)
		return rc;
	return f->dir != d || ++f->step_count >= FSCK_STEP;
}

static int walk_some(struct fsck *f)
{
	int rc = 0;

	f->step_count = 0;
	while (f->dir && f->step_count < FSCK_STEP) {
		struct fsck_dir *d = f->dir;

		rc = dirent_each(f->ns.t, d->id, d->last, strlen(d->last), on_entry, f);
		if (rc < 0)
			return f->exception.cls ? rc : ns_io(&f->ns, rc);
		f->step_count++;
		if (!rc)
			pop_dir(f);
	}
	return 0;
}

/* ---- the phases ---- */

static int need_super(struct fsck *f, const char *operation)
{
	return !f->ns.enforce || f->ns.super
		       ? 0
		       : exception_throw(
				 &f->exception, EXC_ACCESS,
				 "Access denied for user %s. Superuser privilege is required for operation %s",
				 f->opts.user, operation);
}

static int begin_ids(struct fsck *f)
{
	char when[64];
	int rc = need_super(f, "fsck");

	f->phase = FSCK_END;
	if (rc < 0)
		return rc;
	fprintf(f->out, "FSCK started by %s (auth:SIMPLE) from /%s at %s\n", f->opts.user,
		f->opts.from, now_text(when));
	fsck_block_ids(f);
	return 0;
}

static int begin(struct fsck *f)
{
	char when[64];
	struct ns_path w;
	int rc;

	f->racks = datanodes_racks(&f->nn->dns);
	if (f->opts.block_ids)
		return begin_ids(f);
	fprintf(f->out, "FSCK started by %s (auth:SIMPLE) from /%s for path %s at %s\n",
		f->opts.user, f->opts.from, f->opts.path, now_text(when));
	if (f->opts.move)
		return exception_throw(
			&f->exception, EXC_UNSUPPORTED,
			"-move is not supported by this NameNode: copy what is left of the "
			"files yourself, then use -delete");
	rc = f->opts.remove ? need_super(f, "fsck") : 0;
	if (rc < 0)
		return rc;
	rc = ns_resolve(&f->ns, f->opts.path, &w);
	if (rc == -ENOTDIR || (!rc && !w.last)) {
		f->exception.cls = NULL;
		fprintf(f->out, "\n\nPath '%s' does not exist", f->opts.path);
		f->phase = FSCK_END;
		return 0;
	}
	if (rc < 0)
		return rc;
	if (f->opts.list_corrupt) {
		f->phase = FSCK_END;
		rc = need_super(f, "listCorruptFileBlocks");
		return rc ? rc : fsck_list_corrupt(f);
	}
	f->phase = FSCK_WALK;
	return enter(f, w.last, f->opts.path);
}

static void finish(struct fsck *f)
{
	fsck_summary(f, datanodes_live(&f->nn->dns));
	ended(f);
	fprintf(f->out, "\n\nThe filesystem under path '%s' is %s", f->opts.path,
		fsck_is_healthy(f) ? "HEALTHY" : "CORRUPT");
	f->phase = FSCK_END;
}

static void step(struct fsck *f)
{
	int rc;

	/* The files are looked at under the lock of the blocks: a list of files older than the
	 * blocks would miss some that are gone rightly. */
	txn_read_lock(&f->txn);
	pthread_rwlock_rdlock(&f->nn->mem_lock);
	rc = txn_read_open(&f->txn);
	if (rc < 0) {
		pthread_rwlock_unlock(&f->nn->mem_lock);
		failed(f, err_name(rc));
		return;
	}
	if (f->phase == FSCK_BEGIN)
		rc = begin(f);
	else
		rc = walk_some(f);
	if (rc < 0)
		failed(f, f->exception.cls ? f->exception.text : err_name(rc));
	else if (f->phase == FSCK_WALK && !f->dir)
		finish(f);
	pthread_rwlock_unlock(&f->nn->mem_lock);
	txn_read_end(&f->txn);
	arena_free(&f->arena);
}

/* ---- outside ---- */

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

int fsck_new(struct nn *nn, const struct fsck_opts *o, struct fsck **ret)
{
	struct fsck *f = xcalloc(1, sizeof(*f));
	int rc;

	f->nn = nn;
	f->opts = *o;
	f->opts.user = copy(o->user);
	f->opts.from = copy(o->from);
	f->opts.path = copy(o->path && *o->path ? o->path : "/");
	f->opts.block_ids = copy(o->block_ids);
	f->opts.start_after = copy(o->start_after);
	f->start_ns = clock_mono_ns();
	f->exception.a = &f->arena;
	f->caller = users_ask(nn->users, f->opts.user);
	f->ns = (struct ns){.t = &f->txn,
			    .a = &f->arena,
			    .x = &f->exception,
			    .users = nn->users,
			    .user = f->opts.user,
			    .host = f->opts.from,
			    .now_ms = clock_wall_ms(),
			    .enforce = nn->set.permissions,
			    .super = users_is_super(nn->users, f->opts.user)};
	f->out = open_memstream(&f->text, &f->len);
	rc = f->out ? txn_reader_new(nn->db, &f->txn) : -ENOMEM;
	if (rc < 0) {
		fsck_free(f);
		return rc;
	}
	log_info("op=fsck user=%s from=%s path=%s", o->user, o->from, f->opts.path);
	*ret = f;
	return 0;
}

size_t fsck_read(struct fsck *f, char *buf, size_t max)
{
	size_t n;

	while (f->sent == f->len && f->phase != FSCK_END) {
		rewind(f->out);
		f->sent = 0;
		step(f);
		if (fflush(f->out))
			return 0;
	}
	n = f->len - f->sent < max ? f->len - f->sent : max;
	memcpy(buf, f->text + f->sent, n);
	f->sent += n;
	return n;
}

void fsck_free(struct fsck *f)
{
	if (!f)
		return;
	while (f->dir)
		pop_dir(f);
	users_let_go(f->caller);
	if (f->out)
		fclose(f->out);
	free(f->text);
	txn_reader_free(&f->txn);
	arena_free(&f->arena);
	free((char *)(uintptr_t)f->opts.user);
	free((char *)(uintptr_t)f->opts.from);
	free((char *)(uintptr_t)f->opts.path);
	free((char *)(uintptr_t)f->opts.block_ids);
	free((char *)(uintptr_t)f->opts.start_after);
	free(f);
}
