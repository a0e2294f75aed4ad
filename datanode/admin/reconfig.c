/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/admin/reconfig.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "datanode/live_settings.h"

#define CHANGES_MAX 1024 /* keys named in one run */

struct reconfig {
	struct dn *dn; /* borrowed */
	pthread_mutex_t lock;
	struct conf *in_force;           /* owned */
	struct reconfig_change *changes; /* owned */
	size_t count;
	int64_t start_ms, end_ms;
};

struct copy {
	struct conf *to;
	int rc;
};

static void copy_one(void *arg, const char *key, const char *value)
{
	struct copy *c = arg;

	if (!c->rc)
		c->rc = conf_set(c->to, key, value);
}

int reconfig_new(struct dn *dn, struct reconfig **ret)
{
	struct reconfig *r = calloc(1, sizeof(*r));
	struct copy c = {0};

	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	r->dn = dn;
	c.to = r->in_force = conf_new();
	c.rc = c.to ? 0 : -ENOMEM;
	if (!c.rc)
		conf_each(dn->conf, copy_one, &c);
	if (c.rc) {
		reconfig_free(r);
		return c.rc;
	}
	*ret = r;
	return 0;
}

static void drop_changes(struct reconfig *r)
{
	for (size_t i = 0; i < r->count; i++) {
		free(r->changes[i].name);
		free(r->changes[i].old_value);
		free(r->changes[i].new_value);
		free(r->changes[i].error);
	}
	free(r->changes);
	r->changes = NULL;
	r->count = 0;
}

void reconfig_free(struct reconfig *r)
{
	if (!r)
		return;
	drop_changes(r);
	conf_free(r->in_force);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* ---- one run ---- */

struct run {
	struct reconfig *r;
	struct conf *fresh;
};

static bool differs(const char *a, const char *b)
{
	return !a != !b || (a && strcmp(a, b));
}

/* One key; what is in force is not changed here, conf_each() walks over it. */
static void compare_one(void *arg, const char *key, const char *value)
{
	struct run *run = arg;
	struct reconfig *r = run->r;
	const char *old = conf_get(r->in_force, key), *new = conf_get(run->fresh, key);
	struct reconfig_change *c = &r->changes[r->count];
	struct err err = ERR_INIT;
	int rc;

	(void)value;
	if (!differs(old, new) || r->count == CHANGES_MAX)
		return;
	for (size_t i = 0; i < r->count; i++)
		if (!strcmp(r->changes[i].name, key))
			return; /* seen in the other pass */
	rc = live_settings_change(&r->dn->live, run->fresh, key, &err);
	*c = (struct reconfig_change){strdup(key), strdup(old ? old : ""), new ? strdup(new) : NULL,
				      rc ? strdup(err.text) : NULL};
	if (!c->name || !c->old_value || (new && !c->new_value) || (rc && !c->error)) {
		free(c->name);
		free(c->old_value);
		free(c->new_value);
		free(c->error);
		return;
	}
	r->count++;
	log_info("op=reconfigure key=%s%s%s", key, rc ? ": refused: " : ": in force",
		 rc ? err.text : "");
}

static int run_locked(struct reconfig *r, struct err *err)
{
	struct run run = {.r = r};
	int rc = conf_reload(r->dn->conf, &run.fresh, err);

	if (rc)
		return rc;
	drop_changes(r);
	r->start_ms = (int64_t)clock_wall_ms();
	r->changes = calloc(CHANGES_MAX, sizeof(*r->changes));
	if (r->changes) {
		conf_each(r->in_force, compare_one, &run);
		conf_each(run.fresh, compare_one, &run);
	}
	for (size_t i = 0; i < r->count; i++) {
		const struct reconfig_change *c = &r->changes[i];

		/* Every live setting has a default, so there is a value. Out of memory: the next
		 * run finds it different again and repeats itself. */
		if (!c->error && c->new_value)
			(void)conf_set(r->in_force, c->name, c->new_value);
	}
	r->end_ms = (int64_t)clock_wall_ms();
	conf_free(run.fresh);
	return r->changes ? 0 : err_sys(err, -ENOMEM, "reconfiguration");
}

int reconfig_run(struct reconfig *r, struct err *err)
{
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = run_locked(r, err);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void reconfig_show(struct reconfig *r, void (*fn)(void *arg, const struct reconfig_status *s),
		   void *arg)
{
	struct reconfig_status s;

	pthread_mutex_lock(&r->lock);
	s = (struct reconfig_status){r->start_ms, r->end_ms, r->changes, r->count};
	fn(arg, &s);
	pthread_mutex_unlock(&r->lock);
}
