/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/list.h"

/* One thread's counters. Only that thread writes, so a relaxed load and store is an increment;
 * relaxed because a reader needs each number whole, not in order with anything. */
struct shard {
	_Atomic uint64_t v[METRIC_COUNT];
	struct list link;
};

static const struct {
	const char *name, *labels, *type, *help;
} metric_table[METRIC_COUNT] = {
#define METRIC(id, name, labels, type, help) [METRIC_##id] = {name, labels, type, help},
#include "common/base/metrics.def"
#undef METRIC
};

static pthread_mutex_t shards_lock = PTHREAD_MUTEX_INITIALIZER; /* shards and shards_key */
static struct list shards = {&shards, &shards};
static _Atomic uint64_t rest[METRIC_COUNT]; /* gauges, and the counts of threads that ended */
static _Thread_local struct shard *mine;
static pthread_key_t shards_key;
static bool have_key;

static void shard_retire(void *arg)
{
	struct shard *s = (struct shard *)arg;

	pthread_mutex_lock(&shards_lock);
	list_del(&s->link);
	for (int m = 0; m < METRIC_COUNT; m++)
		atomic_fetch_add_explicit(&rest[m], s->v[m], memory_order_relaxed);
	mine = NULL;
	pthread_mutex_unlock(&shards_lock);
	free(s);
}

static struct shard *shard_new(void)
{
	size_t size = (sizeof(struct shard) + 63) & ~(size_t)63;
	struct shard *s = (struct shard *)aligned_alloc(64, size); /* no shared cache line */

	if (!s)
		return NULL;
	memset(s, 0, size);
	pthread_mutex_lock(&shards_lock);
	if (!have_key)
		have_key = !pthread_key_create(&shards_key, shard_retire);
	if (!have_key || pthread_setspecific(shards_key, s)) {
		pthread_mutex_unlock(&shards_lock);
		free(s);
		return NULL;
	}
	list_add_tail(&shards, &s->link);
	pthread_mutex_unlock(&shards_lock);
	return mine = s;
}

void metric_add(enum metric m, uint64_t n)
{
	struct shard *s = mine ? mine : shard_new();

	if (!s) { /* out of memory: slower, still right */
		atomic_fetch_add_explicit(&rest[m], n, memory_order_relaxed);
		return;
	}
	atomic_store_explicit(&s->v[m], atomic_load_explicit(&s->v[m], memory_order_relaxed) + n,
			      memory_order_relaxed);
}

void metric_set(enum metric m, uint64_t v)
{
	atomic_store_explicit(&rest[m], v, memory_order_relaxed);
}

uint64_t metric_get(enum metric m)
{
	uint64_t sum;

	pthread_mutex_lock(&shards_lock);
	sum = atomic_load_explicit(&rest[m], memory_order_relaxed);
	list_for_each (l, &shards)
		sum += atomic_load_explicit(&container_of(l, struct shard, link)->v[m],
					    memory_order_relaxed);
	pthread_mutex_unlock(&shards_lock);
	return sum;
}

static bool is_wanted(const char *name, const char *const *prefixes)
{
	if (!prefixes)
		return true;
	for (; *prefixes; prefixes++)
		if (!strncmp(name, *prefixes, strlen(*prefixes)))
			return true;
	return false;
}

/* The rows of a histogram differ behind its name: _bucket, _sum, _count. */
static size_t family_len(int m)
{
	const char *name = metric_table[m].name, *end = strrchr(name, '_');

	return strncmp(metric_table[m].type, "histogram", 9) || !end ? strlen(name)
								     : (size_t)(end - name);
}

static void put_family(FILE *f, int m)
{
	const int len = (int)family_len(m);

	fprintf(f, "# HELP %.*s %s\n# TYPE %.*s %.9s\n", len, metric_table[m].name,
		metric_table[m].help, len, metric_table[m].name, metric_table[m].type);
}

static bool same_family(int a, int b)
{
	const size_t len = family_len(a);

	return len == family_len(b) && !strncmp(metric_table[a].name, metric_table[b].name, len);
}

char *metrics_format(const char *const *prefixes)
{
	int last = -1;
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	bool ok;

	if (!f)
		return NULL;
	for (int m = 0; m < METRIC_COUNT; m++) {
		const char *name = metric_table[m].name, *labels = metric_table[m].labels;
		/* a gauge counted down may be caught between two threads' shards */
		int64_t v = (int64_t)metric_get((enum metric)m);

		if (!is_wanted(name, prefixes))
			continue;
		if (last < 0 || !same_family(last, m))
			put_family(f, m);
		last = m;
		fprintf(f, "%s%s%s%s ", name, *labels ? "{" : "", labels, *labels ? "}" : "");
		if (!strcmp(metric_table[m].type, "histogram_ns"))
			fprintf(f, "%.9f\n", (double)v / 1e9);
		else
			fprintf(f, "%lld\n", (long long)v);
	}
	ok = !ferror(f);
	if (fclose(f) || !ok) {
		free(text);
		return NULL;
	}
	return text;
}
