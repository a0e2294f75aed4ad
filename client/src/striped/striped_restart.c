/* SPDX-License-Identifier: Apache-2.0 */
/* striped_restart - a group that lost more units than it can do without is begun again;
 * striped_writer.h
 *
 * The NameNode is told that the group has no nodes, and gives it out again, with others or with
 * those that are back. What was written of it lies in packets, in the order of the file, and is
 * written as if it came from the caller. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/src/striped/striped_writer.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define KEEP_REGISTERED 6u /* packets, when they lie in memory for RDMA */
#define PAUSE_FIRST_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS (1000 * NS_PER_MS)
#define TELL_NS (2 * NS_PER_S) /* who waits so long wants to know for what */

struct again {
	struct packet **packet; /* owned, and a reference to each */
	uint32_t count;
	uint32_t done; /* so many are in groups that ended well */
};

static uint32_t row_packets(const struct striped_writer *w)
{
	return w->policy.k * w->columns;
}

/* Registered memory is scarce, and packets in flight need it more. */
static bool has_room(const struct striped_writer *w)
{
	const uint32_t n = row_packets(w);

	return w->rows_kept < w->keep_rows &&
	       !(w->row[0]->buf && (w->rows_kept + 1) * n > KEEP_REGISTERED);
}

void striped_keep_row(struct striped_writer *w)
{
	const uint32_t n = row_packets(w);

	if (!w->all_kept || !has_room(w)) {
		w->all_kept = false;
		striped_release(w);
		return;
	}
	memcpy(w->kept + w->rows_kept++ * n, w->row, n * sizeof(w->row[0]));
	memset(w->row, 0, n * sizeof(w->row[0]));
	w->coded = 0;
}

/* Those being filled end here. */
static void drop_current(struct striped_writer *w)
{
	for (unsigned u = 0; u < w->policy.k; u++) {
		if (w->unit[u].cur)
			pipeline_drop_packet(&w->unit[u].pipe, w->unit[u].cur);
		w->unit[u].cur = NULL;
	}
}

/* All bytes of the group: rows, what is held of the last one, and what is being filled. */
static int take_all(struct striped_writer *w, struct again *a)
{
	const uint32_t n = row_packets(w), rows = w->rows_kept * n;

	a->packet = calloc(rows + n + w->policy.k, sizeof(a->packet[0]));
	if (!a->packet)
		return -ENOMEM;
	for (uint32_t i = 0; i < rows; i++)
		a->packet[a->count++] = packet_hold(w->kept[i]);
	for (uint32_t i = 0; i < n; i++)
		if (w->row[i])
			a->packet[a->count++] = packet_hold(w->row[i]);
	for (unsigned u = 0; u < w->policy.k; u++)
		if (w->unit[u].cur)
			a->packet[a->count++] = packet_hold(w->unit[u].cur);
	return 0;
}

static void free_all(struct striped_writer *w, struct again *a)
{
	for (uint32_t i = 0; i < a->count; i++)
		packet_put(&w->f.fs->packets, a->packet[i]);
	free(a->packet);
}

static int write_packet(struct striped_writer *w, const struct packet *p, struct err *err)
{
	for (uint32_t at = 0; at < p->len;) {
		const ssize_t n = striped_take(w, p->data + at, p->len - at, err);

		if (n < 0)
			return (int)n;
		at += (uint32_t)n;
	}
	return 0;
}

/* Groups end where packets do. */
static int write_all(struct striped_writer *w, struct again *a, struct err *err)
{
	int rc = 0;

	for (uint32_t i = a->done; rc == 0 && i < a->count; i++) {
		rc = write_packet(w, a->packet[i], err);
		if (rc == 0 && !w->lb)
			a->done = i + 1;
	}
	return rc;
}

static int attempt(struct striped_writer *w, struct again *a, bool finish, bool sync,
		   struct err *err)
{
	int rc = 0;

	err_reset(err);
	drop_current(w);
	striped_release(w);
	if (w->lb)
		rc = striped_group_undo(w, err);
	rc = rc ?: write_all(w, a, err);
	return rc < 0 || !finish ? rc : striped_finish(w, sync, err);
}

/* Something that can be better at the next attempt. */
static bool is_passing(const struct striped_writer *w, int rc)
{
	return rc == -ENOSPC || (w->lost && w->all_kept);
}

/* Once: why it takes so long. */
static void tell(struct striped_writer *w, uint64_t since_ns, uint64_t until_ns,
		 const struct err *why)
{
	const uint64_t now = clock_mono_ns();

	if (w->told || now - since_ns < TELL_NS || now > until_ns)
		return;
	w->told = true;
	log_warn("op=group_again path=%s: waiting for data nodes, for %llu s at most: %s",
		 w->f.path, (unsigned long long)((until_ns - now) / NS_PER_S), why->text);
}

/* All nodes may be tried then: they may be back. */
static void pause_for_nodes(struct striped_writer *w, uint64_t *pause_ns)
{
	sleep_ns(*pause_ns);
	*pause_ns = *pause_ns * 2 < PAUSE_MAX_NS ? *pause_ns * 2 : PAUSE_MAX_NS;
	suspect_nodes_forgive(&w->f.blamed);
}

int striped_try_again(struct striped_writer *w, int rc, bool finish, bool sync, struct err *err)
{
	const uint64_t since = clock_mono_ns(),
		       deadline = since + w->f.fs->set.socket_timeout_ms * NS_PER_MS;
	const struct err first = *err;
	uint64_t pause = PAUSE_FIRST_NS;
	struct again a = {.packet = NULL};
	int now;

	if (!w->lost || !w->all_kept || w->offset == 0 || take_all(w, &a) < 0)
		return rc;
	log_debug("op=group_again group=%lld bytes=%llu", (long long)w->group.id,
		  (unsigned long long)w->offset);
	w->trying = true;
	for (;;) {
		now = attempt(w, &a, finish, sync, err);
		if (now == 0 || !is_passing(w, now) || clock_mono_ns() >= deadline)
			break;
		tell(w, since, deadline, &first);
		pause_for_nodes(w, &pause);
	}
	w->trying = false;
	free_all(w, &a);
	if (now == 0) {
		err_reset(err);
		return 0;
	}
	*err = first;
	w->f.refused = false; /* what was taken is lost */
	return rc;
}

int striped_group_open_patiently(struct striped_writer *w, struct err *err)
{
	const uint64_t patience = w->f.fs->set.socket_timeout_ms * NS_PER_MS;
	uint64_t pause = PAUSE_FIRST_NS;

	for (;;) {
		const uint64_t now = clock_mono_ns();
		int rc = striped_group_open(w, err);

		if (rc != -ENOSPC || !w->f.blamed.count || w->trying)
			return rc;
		if (!w->bare_since_ns)
			w->bare_since_ns = now;
		if (now - w->bare_since_ns >= patience)
			return rc;
		tell(w, w->bare_since_ns, w->bare_since_ns + patience, err);
		err_reset(err);
		w->f.refused = false;
		rc = w->lb ? striped_group_undo(w, err) : 0;
		if (rc < 0)
			return rc;
		pause_for_nodes(w, &pause);
	}
}
