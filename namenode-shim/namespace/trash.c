/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/trash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

#define TRASH ".Trash"
#define CURRENT "Current"
#define SUFFIX_MAX 1000  /* checkpoints of one second */
#define CENTURY_AHEAD 20 /* years: two digits are at most so far in the future */

/* ---- names of checkpoints ---- */

static int two_digits(const char *s)
{
	return (s[0] - '0') * 10 + s[1] - '0';
}

bool trash_checkpoint_ms(const char *name, uint64_t now_ms, uint64_t *ret)
{
	const size_t digits = strspn(name, "0123456789");
	const time_t now = (time_t)(now_ms / 1000);
	struct tm tm = {.tm_isdst = -1}, today;
	time_t t;

	if (digits != 12 && digits != 10) /* the seconds were not always there */
		return false;
	tm.tm_year = 100 + two_digits(name);
	tm.tm_mon = two_digits(name + 2) - 1;
	tm.tm_mday = two_digits(name + 4);
	tm.tm_hour = two_digits(name + 6);
	tm.tm_min = two_digits(name + 8);
	tm.tm_sec = digits == 12 ? two_digits(name + 10) : 0;
	if (tm.tm_mon < 0 || tm.tm_mon > 11 || !tm.tm_mday || tm.tm_mday > 31 || tm.tm_hour > 23 ||
	    tm.tm_min > 59 || tm.tm_sec > 59 || !localtime_r(&now, &today))
		return false;
	if (tm.tm_year > today.tm_year + CENTURY_AHEAD)
		tm.tm_year -= 100;
	t = mktime(&tm);
	if (t < 0)
		return false;
	*ret = (uint64_t)t * 1000;
	return true;
}

/* ---- one trash ---- */

struct entries {
	struct ns *n;
	const char *name[TRASH_ENTRIES];
	uint32_t count;
};

static int add_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct entries *e = arg;

	(void)id;
	e->name[e->count++] = arena_strndup(e->n->a, name, len);
	return e->count == TRASH_ENTRIES;
}

/* A refusal is the trash's own affair: the rest goes on. */
static int go_on(struct ns *n, int rc, const char *path)
{
	if (n->t->failed)
		return rc;
	if (rc < 0)
		log_warn("op=trash path=%s rc=%s text=\"%s\"", path, err_name(rc),
			 n->x->cls ? n->x->text : "");
	n->x->cls = NULL;
	return 0;
}

static int remove_entry(struct ns *n, const char *path)
{
	/* nothing is refused to the NameNode itself: a large tree is gone at once, too */
	struct tree_check *none = NULL;
	bool done = false;
	int rc = ns_delete_some(n, path, true, &none, &done);

	tree_check_free(none);
	if (!rc && done)
		log_info("op=trash deleted=%s", path);
	return go_on(n, rc, path);
}

static int remove_expired(struct ns *n, const char *path, const struct ns_path *w,
			  const struct trash_rules *r)
{
	struct entries *e = arena_new(n->a, struct entries);
	const char *from = r->clean ? "" : "/"; /* the digits come behind the slash */
	int rc;

	e->n = n;
	rc = dirent_each(n->t, w->last->id, from, strlen(from), add_entry, e);
	if (rc < 0)
		return ns_io(n, rc);
	rc = 0;
	for (uint32_t i = 0; i < e->count && !rc; i++) {
		const char *name = e->name[i];
		uint64_t made;

		if (!strcmp(name, CURRENT))
			continue;
		if (trash_checkpoint_ms(name, n->now_ms, &made) ? made + r->keep_ms < n->now_ms
								: r->clean)
			rc = remove_entry(n, arena_printf(n->a, "%s/%s", path, name));
	}
	return rc;
}

static int make_checkpoint(struct ns *n, const char *path, const struct ns_path *w)
{
	const time_t now = (time_t)(n->now_ms / 1000);
	const char *current = arena_printf(n->a, "%s/" CURRENT, path), *to = "";
	char stamp[80];
	struct tm tm;
	uint64_t id;
	int rc = dirent_get(n->t, w->last->id, CURRENT, strlen(CURRENT), &id);

	if (rc < 0)
		return rc == -ENOENT ? 0 : ns_io(n, rc);
	(void)localtime_r(&now, &tm);
	snprintf(stamp, sizeof(stamp), "%02d%02d%02d%02d%02d%02d", tm.tm_year % 100, tm.tm_mon + 1,
		 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
	rc = -EEXIST;
	for (int i = 0; i < SUFFIX_MAX && rc == -EEXIST && !n->t->failed; i++) {
		to = i ? arena_printf(n->a, "%s/%s-%d", path, stamp, i)
		       : arena_printf(n->a, "%s/%s", path, stamp);
		rc = ns_rename2(n, current, to, false);
	}
	if (!rc)
		log_info("op=trash checkpoint=%s", to);
	return go_on(n, rc, current);
}

int trash_empty(struct ns *n, const char *path, const struct trash_rules *r)
{
	struct ns_path w;
	int rc = ns_resolve(n, path, &w);

	if (rc < 0 || !w.last || w.last->type != INODE_DIR)
		return go_on(n, rc, path);
	rc = remove_expired(n, path, &w, r);
	return rc ? rc : make_checkpoint(n, path, &w);
}

/* ---- rounds ---- */

/* Is @path HOMES/somebody/.Trash? It may have moved since it was found. */
static bool is_trash(const char *path, const char *homes)
{
	const size_t len = strcmp(homes, "/") ? strlen(homes) : 0;
	const char *user = path + len + 1;

	return !strncmp(path, homes, len) && path[len] == '/' &&
	       !strcmp(user + strcspn(user, "/"), "/" TRASH);
}

static int empty_one(struct req *q, const void *in)
{
	const struct trash_rules *r = &q->nn->set.trash;
	struct inode *n;
	char *path;
	int rc = inode_get(q->ns.t, q->arg, &q->mem, &n);

	(void)in;
	rc = rc ? rc : inode_path(q->ns.t, n, &q->mem, &path);
	if (rc < 0)
		return rc == -ENOENT ? 0 : ns_io(&q->ns, rc);
	return is_trash(path, r->homes) ? trash_empty(&q->ns, path, r) : 0;
}

static const struct method empty_method = {
	.name = "emptyTrash", .kind = REQ_CHANGE, .run = empty_one};

struct step {
	struct nn *nn;
	struct txn *t;
	uint32_t homes, changes;
};

static int on_home(void *arg, const char *name, size_t len, uint64_t id)
{
	struct step *s = arg;
	uint64_t trash;
	int rc = dirent_get(s->t, id, TRASH, strlen(TRASH), &trash);

	if (rc < 0 && rc != -ENOENT)
		return rc;
	if (!rc) {
		struct req *q = req_new(s->nn, &empty_method, NULL);

		q->arg = trash;
		nn_submit(s->nn, q);
		s->changes++;
	}
	snprintf(s->nn->trash.after, sizeof(s->nn->trash.after), "%.*s", (int)len, name);
	return ++s->homes == TRASH_HOMES || s->changes == TRASH_CHANGES;
}

/* True: the round is through. */
static bool make_step(struct nn *nn)
{
	struct step s = {.nn = nn, .t = &nn->look};
	struct trash_round *t = &nn->trash;
	struct arena a = {0};
	struct exception_info x = {.a = &a};
	struct ns n = {.t = &nn->look,
		       .a = &a,
		       .x = &x,
		       .users = nn->users,
		       .user = users_self(nn->users),
		       .host = "",
		       .now_ms = clock_wall_ms(),
		       .super = true,
		       .limits = &nn->set.limits};
	struct ns_path w;
	int rc = ns_resolve(&n, nn->set.trash.homes, &w);

	if (!rc && w.last && w.last->type == INODE_DIR)
		rc = dirent_each(&nn->look, w.last->id, t->after, strlen(t->after), on_home, &s);
	if (rc < 0)
		log_warn(
			"op=trash path=%s rc=%s: the homes of users cannot be listed; their trash stays until "
			"the next round",
			nn->set.trash.homes, err_name(rc));
	arena_free(&a);
	return rc <= 0;
}

void trash_tick(struct nn *nn)
{
	const uint64_t now = clock_wall_ms(), every = nn->set.trash.every_ms;
	struct trash_round *t = &nn->trash;
	bool due;

	if (!nn->set.trash.keep_ms)
		return;
	due = t->next_ms && now >= t->next_ms;
	/* the start, or the clock was put back */
	if (due || !t->next_ms || t->next_ms > now + every)
		t->next_ms = (now / every + 1) * every;
	if (due && !t->running) {
		t->running = true;
		t->after[0] = 0;
	}
	if (!t->running || txn_read_begin(&nn->look) < 0)
		return;
	t->running = !make_step(nn);
	txn_read_end(&nn->look);
}
