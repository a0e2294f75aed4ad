/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/admin/outliers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "common/base/clock.h"

#define WINDOWS 36
#define WINDOW_NS (300 * NS_PER_S)
#define DEVIATION_LIMIT 3.0
#define MAD_SCALE 1.4826 /* of normally distributed samples: MAD to standard deviation */

struct window {
	uint64_t epoch, ns, samples; /* epoch: time / WINDOW_NS */
};

struct entry {
	char name[OUTLIER_NAME_MAX];
	struct window windows[WINDOWS];
	uint64_t last; /* epoch of the newest sample */
	UT_hash_handle hh;
};

struct outliers {
	pthread_mutex_t lock;
	struct entry *names[OUTLIER_KINDS];
};

struct outliers *outliers_new(void)
{
	struct outliers *o = calloc(1, sizeof(*o));

	if (o)
		pthread_mutex_init(&o->lock, NULL);
	return o;
}

void outliers_free(struct outliers *o)
{
	if (!o)
		return;
	for (int k = 0; k < OUTLIER_KINDS; k++) {
		struct entry *e, *next;

		HASH_ITER(hh, o->names[k], e, next)
		{
			HASH_DEL(o->names[k], e);
			free(e);
		}
	}
	pthread_mutex_destroy(&o->lock);
	free(o);
}

static struct entry *oldest(struct entry *all)
{
	struct entry *e, *next, *old = NULL;

	HASH_ITER(hh, all, e, next)
	if (!old || e->last < old->last)
		old = e;
	return old;
}

static struct entry *find_or_add_locked(struct outliers *o, enum outlier_kind kind,
					const char *name)
{
	char key[OUTLIER_NAME_MAX];
	struct entry *e, *old;

	(void)snprintf(key, sizeof(key), "%s", name);
	HASH_FIND_STR(o->names[kind], key, e);
	if (e)
		return e;
	if (HASH_COUNT(o->names[kind]) >= OUTLIER_NAMES_MAX) {
		old = oldest(o->names[kind]);
		HASH_DEL(o->names[kind], old);
		free(old);
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	memcpy(e->name, key, sizeof(key));
	HASH_ADD_STR(o->names[kind], name, e);
	return e;
}

void outliers_add(struct outliers *o, enum outlier_kind kind, const char *name, uint64_t total_ns,
		  uint64_t samples)
{
	uint64_t epoch = clock_mono_ns() / WINDOW_NS;
	struct window *w;
	struct entry *e;

	if (!o || !samples)
		return;
	pthread_mutex_lock(&o->lock);
	e = find_or_add_locked(o, kind, name);
	if (e) { /* out of memory: a statistic less */
		w = &e->windows[epoch % WINDOWS];
		if (w->epoch != epoch)
			*w = (struct window){.epoch = epoch};
		w->ns += total_ns;
		w->samples += samples;
		e->last = epoch;
	}
	pthread_mutex_unlock(&o->lock);
}

static void sum_up(const struct entry *e, uint64_t epoch, struct outlier *ret)
{
	uint64_t ns = 0, samples = 0;

	for (int i = 0; i < WINDOWS; i++) {
		if (e->windows[i].epoch + WINDOWS <= epoch)
			continue;
		ns += e->windows[i].ns;
		samples += e->windows[i].samples;
	}
	*ret = (struct outlier){.samples = samples};
	memcpy(ret->name, e->name, sizeof(ret->name));
	if (samples)
		ret->mean_ms = (double)ns / (double)samples / (double)NS_PER_MS;
}

size_t outliers_all(struct outliers *o, enum outlier_kind kind, struct outlier *list, size_t max)
{
	uint64_t epoch = clock_mono_ns() / WINDOW_NS;
	struct entry *e, *next;
	size_t n = 0;

	if (!o)
		return 0;
	pthread_mutex_lock(&o->lock);
	HASH_ITER(hh, o->names[kind], e, next)
	{
		if (n == max)
			break;
		sum_up(e, epoch, &list[n]);
		n += list[n].samples != 0;
	}
	pthread_mutex_unlock(&o->lock);
	return n;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of @n > 0 values; sorts them. */
static double median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double max2(double a, double b)
{
	return a > b ? a : b;
}

/* Keep those of @list that are above the limit. */
static size_t keep_outliers(struct outlier *list, size_t n, double *values, uint64_t low_ms)
{
	double med, mad, limit;
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		values[i] = list[i].mean_ms;
	med = median(values, n);
	for (size_t i = 0; i < n; i++)
		values[i] = list[i].mean_ms > med ? list[i].mean_ms - med : med - list[i].mean_ms;
	mad = median(values, n) * MAD_SCALE;
	limit = max2((double)low_ms, max2(med * DEVIATION_LIMIT, med + DEVIATION_LIMIT * mad));
	for (size_t i = 0; i < n; i++) {
		if (list[i].mean_ms <= limit)
			continue;
		list[kept] = list[i];
		list[kept].median_ms = med;
		list[kept].mad_ms = mad;
		list[kept++].limit_ms = limit;
	}
	return kept;
}

size_t outliers_find(struct outliers *o, enum outlier_kind kind, const struct outlier_limits *l,
		     struct outlier *list, size_t max)
{
	struct outlier *all = o ? calloc(OUTLIER_NAMES_MAX, sizeof(*all)) : NULL;
	double *values = calloc(OUTLIER_NAMES_MAX, sizeof(*values));
	size_t n = 0, seen;

	if (all && values) {
		seen = outliers_all(o, kind, all, OUTLIER_NAMES_MAX);
		for (size_t i = 0; i < seen; i++)
			if (all[i].samples >= l->samples_min)
				all[n++] = all[i];
		n = n && n >= l->names_min ? keep_outliers(all, n, values, l->low_ms) : 0;
		n = n < max ? n : max;
		if (n)
			memcpy(list, all, n * sizeof(*list));
	}
	free(values);
	free(all);
	return n;
}
