/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/striped/striped_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/src/read/block_locations.h"
#include "client/src/striped/stripe.h"
#include "common/base/clock.h"

#define SUSPECT_NS (60 * NS_PER_S) /* how long a node that failed is asked last */
#define SLOW_NS (10 * NS_PER_S)    /* how long one that was slow is */

struct striped {
	struct reader *r;                /* borrowed: its file */
	struct stretch *stretch;         /* counted; NULL: none */
	const Hd__LocatedBlockProto *lb; /* in stretch */
	struct stripe *stripe;           /* owned; NULL: none; of lb */
	struct ec_coder *coder;          /* owned; while there is no stripe that has it */
	uint32_t rounds;                 /* of bad luck, since the last bytes that came */
	bool renewed;                    /* fresh tokens were asked for since then */
	uint64_t next;                   /* in the file: where a reader in sequence goes on */
	uint8_t *row; /* owned; NULL until needed: bytes that were decoded together */
	size_t row_cap;
	uint64_t row_at; /* in the file */
	size_t row_len;
};

/* ---- what a struct stripe wants to know of the handle ---- */

static void on_failed(struct dfs *fs, const struct group_unit *unit, size_t node,
		      const struct err *err)
{
	const uint64_t ns = err->rc == -ETIME ? SLOW_NS : SUSPECT_NS;
	char text[NET_TEXT_MAX];

	if (err->rc != -ETIME)
		count_add(&fs->count.read_failovers, 1);
	if (err->rc == -EBADMSG) {
		count_add(&fs->count.checksum_errors, 1);
		locate_report_bad(fs, &unit->lb, node);
	} else {
		node_table_put(&fs->suspects, node_text(unit->locs[node]->id, text), err->text,
			       clock_mono_ns() + ns);
	}
}

static bool is_suspect(struct dfs *fs, const Hd__DatanodeInfoProto *node)
{
	char text[NET_TEXT_MAX];

	return node_table_get(&fs->suspects, node_text(node->id, text), clock_mono_ns(), NULL, 0);
}

static const struct stripe_ops real_ops = {
	.start = stream_start_read,
	.failed = on_failed,
	.suspect = is_suspect,
	.now = clock_mono_ns,
	.poll = poll,
};

/* ---- one group after the other ---- */

static void leave(struct striped *f)
{
	if (f->stripe)
		stripe_close(f->stripe, &f->coder);
	f->stripe = NULL;
	stretch_put(f->stretch);
	f->stretch = NULL;
}

/* The group of @pos: f->stripe. */
static int enter(struct striped *f, uint64_t pos, struct err *err)
{
	int rc;

	if (f->stripe) {
		const struct group *g = stripe_group(f->stripe);

		if (pos >= g->offset && pos - g->offset < g->length)
			return 0;
		leave(f);
	}
	rc = reader_locate(f->r, pos, &f->stretch, &f->lb, err);
	if (rc == 0)
		rc = stripe_open(f->r->fs, f->lb, &f->r->policy, &real_ops, f->coder, &f->stripe,
				 err);
	if (rc < 0) {
		leave(f);
		return rc;
	}
	f->coder = NULL; /* the stripe's until leave() */
	return 0;
}

/* What follows asks the NameNode anew. */
static int drop_locations(struct striped *f)
{
	reader_forget(f->r, f->stretch);
	leave(f);
	return 0;
}

/* Too few units are left, and waiting does not help any more. */
static int out_of_units(struct striped *f, struct err *err)
{
	char text[380]; /* behind the path */

	if (reader_confirm(f->r, stripe_group(f->stripe)->offset, err) < 0)
		return err->rc;
	stripe_explain(f->stripe, text, sizeof(text));
	return err_set(err, stripe_is_away(f->stripe) ? -ETIMEDOUT : -EIO, "%.120s: %s", f->r->path,
		       text);
}

/* A read of the group ended with @rc. 0: again. */
static int after_failure(struct striped *f, int rc, struct err *err)
{
	if (rc == -ENODATA && !reader_wait_for_others(f->r, &f->rounds))
		return out_of_units(f, err);
	if (rc == -ENODATA)
		return drop_locations(f);
	if (rc == -EACCES && !f->renewed) { /* the token has expired, most likely */
		f->renewed = true;
		return drop_locations(f); /* with fresh locations come fresh tokens */
	}
	return rc;
}

/* All of [@pos, @pos + @len). */
static int read_range(struct striped *f, uint8_t *dst, uint64_t len, uint64_t pos,
		      enum stripe_mode mode, struct err *err)
{
	while (len > 0) {
		int rc = enter(f, pos, err);
		const struct group *g;
		uint64_t n;

		if (rc < 0)
			return rc;
		g = stripe_group(f->stripe);
		n = g->offset + g->length - pos;
		n = n < len ? n : len;
		rc = stripe_read(f->stripe, pos - g->offset, n, dst, mode, f->renewed, err);
		if (rc < 0) {
			rc = after_failure(f, rc, err);
			if (rc < 0)
				return rc;
			continue;
		}
		reader_gave(f->r, f->stretch, f->lb);
		f->rounds = 0;
		f->renewed = false;
		pos += n;
		dst += n;
		len -= n;
	}
	return 0;
}

/* ---- in sequence ---- */

/* What the kept bytes have of @pos. */
static size_t from_row(const struct striped *f, uint8_t *dst, size_t len, uint64_t pos)
{
	size_t n;

	if (pos < f->row_at || pos - f->row_at >= f->row_len)
		return 0;
	n = f->row_len - (size_t)(pos - f->row_at);
	n = n < len ? n : len;
	memcpy(dst, f->row + (pos - f->row_at), n);
	return n;
}

static int row_room(struct striped *f, size_t len, struct err *err)
{
	if (f->row_cap >= len)
		return 0;
	free(f->row);
	f->row = malloc(len);
	f->row_cap = f->row ? len : 0;
	f->row_len = 0;
	return f->row ? 0 : err_set(err, -ENOMEM, "out of memory for a degraded read");
}

/* Is what follows @pos better read up to its row's end, *@ret_len bytes, and kept? */
static bool wants_row(const struct striped *f, size_t len, uint64_t pos, size_t *ret_len)
{
	const struct group *g = stripe_group(f->stripe);
	const uint64_t row = ec_row_bytes(g->policy), at = pos - g->offset;
	uint64_t left = row - at % row;

	left = left < g->length - at ? left : g->length - at;
	*ret_len = (size_t)left;
	return len < left && row <= STRIPED_ROW_MAX && stripe_degraded(f->stripe, at);
}

/* What is best read at one go at @pos: some of @len bytes. */
static ssize_t read_piece(struct striped *f, uint8_t *dst, size_t len, uint64_t pos, bool ahead,
			  struct err *err)
{
	const struct group *g;
	size_t n = from_row(f, dst, len, pos), row_len;
	uint64_t left;
	int rc;

	if (n > 0)
		return (ssize_t)n;
	rc = enter(f, pos, err);
	if (rc < 0)
		return rc;
	g = stripe_group(f->stripe);
	if (ahead && wants_row(f, len, pos, &row_len)) {
		rc = row_room(f, row_len, err);
		f->row_len = 0;
		rc = rc ?: read_range(f, f->row, row_len, pos, STRIPE_AHEAD, err);
		if (rc < 0)
			return rc;
		f->row_at = pos;
		f->row_len = row_len;
		return (ssize_t)from_row(f, dst, len, pos);
	}
	/* not the first call, or a long one */
	if (ahead && (f->next == pos || len > g->policy->cell))
		stripe_prefetch(f->stripe, pos - g->offset);
	left = g->offset + g->length - pos;
	n = len < left ? len : (size_t)left;
	/* only whole rows, and what is before one */
	if (len >= ec_row_bytes(g->policy) && n > ec_row_bytes(g->policy))
		n -= (size_t)((pos - g->offset + n) % ec_row_bytes(g->policy));
	rc = read_range(f, dst, n, pos, ahead ? STRIPE_AHEAD : STRIPE_EXACT, err);
	return rc < 0 ? rc : (ssize_t)n;
}

ssize_t striped_read(struct reader *r, struct striped **state, void *buf, size_t len, uint64_t pos,
		     bool ahead, struct err *err)
{
	struct striped *f = *state ?: calloc(1, sizeof(*f));
	size_t done = 0;

	if (!f)
		return err_set(err, -ENOMEM, "out of memory for a read");
	f->r = r;
	*state = f;
	f->rounds = 0;
	while (done < len) {
		ssize_t n =
			read_piece(f, (uint8_t *)buf + done, len - done, pos + done, ahead, err);

		if (n < 0) {
			leave(f);
			return n;
		}
		done += (size_t)n;
		f->next = pos + done;
	}
	return (ssize_t)done;
}

ssize_t striped_pread(struct reader *r, void *buf, size_t len, uint64_t pos, struct err *err)
{
	struct striped f = {.r = r};
	int rc;

	pthread_mutex_lock(&r->lock); /* the file's spare coder, if nobody else has it now */
	f.coder = r->coder;
	r->coder = NULL;
	pthread_mutex_unlock(&r->lock);
	rc = read_range(&f, buf, len, pos, STRIPE_EXACT, err);
	leave(&f);
	pthread_mutex_lock(&r->lock);
	if (!r->coder) {
		r->coder = f.coder;
		f.coder = NULL;
	}
	pthread_mutex_unlock(&r->lock);
	ec_coder_free(f.coder);
	return rc < 0 ? rc : (ssize_t)len;
}

bool striped_give_back(struct striped *f)
{
	return !f || !f->stripe || stripe_give_back(f->stripe);
}

bool striped_has_streams(const struct striped *f)
{
	return f && f->stripe && stripe_has_streams(f->stripe);
}

void striped_free(struct striped *f)
{
	if (!f)
		return;
	leave(f);
	ec_coder_free(f->coder);
	free(f->row);
	free(f);
}
