/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/session/request_table.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/clock.h"
#include "fuse/mount.h"

static const uint64_t LIMITS_NS[COUNTS_BUCKETS - 1] = {
	100000,    300000,    1000000,    3000000,    10000000,    30000000,
	100000000, 300000000, 1000000000, 3000000000, 10000000000,
};
static const char *const LIMITS[COUNTS_BUCKETS] = {
	"0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1", "3", "10", "+Inf"};
static const char *const KINDS[REQUEST_KINDS] = {
#define X(name) #name,
	REQUESTS(X)
#undef X
};

/* What this thread is doing. The answer to a request is given deep below the function that counts
 * it. */
static _Thread_local struct request *current;

void request_table_init(struct request_table *c)
{
	pthread_mutex_init(&c->lock, NULL);
	list_init(&c->under_way);
	list_init(&c->orphans);
}

void request_table_fini(struct request_table *c)
{
	pthread_mutex_destroy(&c->lock);
}

const char *request_table_kind(enum request_kind kind)
{
	return KINDS[kind];
}

void request_table_begin(struct request_table *c, struct request *r, enum request_kind kind,
			 const struct origin *from)
{
	*r = (struct request){.c = c, .kind = kind, .from = *from, .begin_ns = clock_mono_ns()};
	current = r;
	pthread_mutex_lock(&c->lock);
	list_add_tail(&c->under_way, &r->link);
	pthread_mutex_unlock(&c->lock);
}

static void moved_locked(const struct request_table *c, uint64_t ino, uint64_t now)
{
	list_for_each (l, &c->under_way) {
		struct request *r = container_of(l, struct request, link);

		if (r->from.ino == ino)
			r->moved_ns = now;
	}
}

void request_table_moved(void)
{
	if (!current)
		return;
	pthread_mutex_lock(&current->c->lock);
	moved_locked(current->c, current->from.ino, clock_mono_ns());
	pthread_mutex_unlock(&current->c->lock);
}

void request_table_end(struct request *r)
{
	const uint64_t now = clock_mono_ns(), ns = now - r->begin_ns;
	struct request_table *c = r->c;
	int b = 0;

	current = NULL;
	while (b < COUNTS_BUCKETS - 1 && ns > LIMITS_NS[b])
		b++;
	pthread_mutex_lock(&c->lock);
	list_del(&r->link);
	if (!r->error)
		moved_locked(c, r->from.ino, now);
	c->kind[r->kind].count++;
	c->kind[r->kind].ns += ns;
	c->kind[r->kind].bucket[b]++;
	if (r->error)
		c->kind[r->kind].error[r->error < COUNTS_ERRNOS ? r->error : 0]++;
	else if (r->kind == REQUEST_read)
		c->read_bytes += r->bytes;
	else if (r->kind == REQUEST_write)
		c->written_bytes += r->bytes;
	pthread_mutex_unlock(&c->lock);
}

static bool is_given_up_locked(const struct request_table *c, uint64_t ino)
{
	list_for_each (l, &c->under_way) {
		const struct request *r = container_of(l, struct request, link);

		if (r->given_up_ns && r->from.ino == ino)
			return true;
	}
	return false;
}

void request_table_release(struct mount *m, struct orphan *o)
{
	struct request_table *c = &m->request_table;
	bool later;

	pthread_mutex_lock(&c->lock);
	later = is_given_up_locked(c, o->ino);
	if (later)
		list_add_tail(&c->orphans, &o->link);
	pthread_mutex_unlock(&c->lock);
	if (!later)
		o->free(m, o);
}

static struct orphan *take_orphan(struct request_table *c, uint64_t ino)
{
	struct orphan *found = NULL;

	pthread_mutex_lock(&c->lock);
	if (!is_given_up_locked(c, ino))
		list_for_each (l, &c->orphans)
			if (container_of(l, struct orphan, link)->ino == ino)
				found = container_of(l, struct orphan, link);
	if (found)
		list_del(&found->link);
	pthread_mutex_unlock(&c->lock);
	return found;
}

void request_table_free_orphans(struct mount *m, const struct request *r)
{
	struct orphan *o;

	while (r->given_up_ns && (o = take_orphan(&m->request_table, r->from.ino)))
		o->free(m, o);
}

void request_table_error(int error)
{
	if (current && error)
		current->error = error;
}

void request_table_bytes(uint64_t bytes)
{
	if (current)
		current->bytes = bytes;
}

void request_table_shared(struct request_table *c, uint64_t blocks)
{
	pthread_mutex_lock(&c->lock);
	c->shared_blocks += blocks;
	pthread_mutex_unlock(&c->lock);
}

void request_table_published(struct request_table *c, int rc, uint64_t ns)
{
	pthread_mutex_lock(&c->lock);
	c->published += rc == 0;
	c->publish_errors += rc < 0;
	c->publish_ns += ns;
	pthread_mutex_unlock(&c->lock);
}

/* ---- printing ---- */

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_latencies(const struct request_table *c, FILE *f)
{
	static const char name[] = "dfs_fuse_request_seconds";

	head(f, name, "histogram", "how long requests of the kernel took, by kind");
	for (int k = 0; k < REQUEST_KINDS; k++) {
		uint64_t sum = 0;

		for (int b = 0; b < COUNTS_BUCKETS && c->kind[k].count; b++)
			fprintf(f, "%s_bucket{kind=\"%s\",le=\"%s\"} %" PRIu64 "\n", name, KINDS[k],
				LIMITS[b], sum += c->kind[k].bucket[b]);
		fprintf(f, "%s_sum{kind=\"%s\"} %.9f\n%s_count{kind=\"%s\"} %" PRIu64 "\n", name,
			KINDS[k], (double)c->kind[k].ns / (double)NS_PER_S, name, KINDS[k],
			c->kind[k].count);
	}
}

static void print_errors(const struct request_table *c, FILE *f)
{
	static const char name[] = "dfs_fuse_errors_total";

	head(f, name, "counter", "requests that were answered with an error, by kind and errno");
	for (int k = 0; k < REQUEST_KINDS; k++)
		for (int e = 0; e < COUNTS_ERRNOS; e++)
			if (c->kind[k].error[e])
				fprintf(f, "%s{kind=\"%s\",errno=\"%s\"} %" PRIu64 "\n", name,
					KINDS[k], e ? strerrorname_np(e) ?: "?" : "?",
					c->kind[k].error[e]);
}

void request_table_print(struct request_table *c, FILE *f)
{
	const uint64_t now = clock_mono_ns();
	uint64_t under_way[REQUEST_KINDS] = {0}, oldest = now;

	pthread_mutex_lock(&c->lock); /* @f is memory */
	list_for_each (l, &c->under_way) {
		const struct request *r = container_of(l, struct request, link);

		under_way[r->kind]++;
		oldest = r->begin_ns < oldest ? r->begin_ns : oldest;
	}
	print_latencies(c, f);
	print_errors(c, f);
	head(f, "dfs_fuse_requests", "gauge", "requests under way, by kind");
	for (int k = 0; k < REQUEST_KINDS; k++)
		fprintf(f, "dfs_fuse_requests{kind=\"%s\"} %" PRIu64 "\n", KINDS[k], under_way[k]);
	head(f, "dfs_fuse_oldest_request_seconds", "gauge",
	     "how long the request that began first is under way");
	fprintf(f, "dfs_fuse_oldest_request_seconds %.3f\n",
		(double)(now - oldest) / (double)NS_PER_S);
	head(f, "dfs_fuse_bytes_total", "counter",
	     "bytes that programs read and wrote, as far as the kernel did not answer itself");
	fprintf(f,
		"dfs_fuse_bytes_total{direction=\"read\"} %" PRIu64
		"\ndfs_fuse_bytes_total{direction=\"written\"} %" PRIu64 "\n",
		c->read_bytes, c->written_bytes);
	head(f, "dfs_fuse_publications_total", "counter",
	     "files that were published since something in their middle had changed");
	fprintf(f,
		"dfs_fuse_publications_total{result=\"done\"} %" PRIu64
		"\ndfs_fuse_publications_total{result=\"failed\"} %" PRIu64 "\n",
		c->published, c->publish_errors);
	head(f, "dfs_fuse_shared_blocks_total", "counter",
	     "blocks of such files that were not written again, since nothing in them had changed");
	fprintf(f, "dfs_fuse_shared_blocks_total %" PRIu64 "\n", c->shared_blocks);
	head(f, "dfs_fuse_publication_seconds_total", "counter", "time that took");
	fprintf(f, "dfs_fuse_publication_seconds_total %.9f\n",
		(double)c->publish_ns / (double)NS_PER_S);
	pthread_mutex_unlock(&c->lock);
}
