/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/striped/striped_writer.h"

#include <stdlib.h>

#include "common/wire/pb.h"

#define WINDOW_MIN 4u                    /* packets of a unit */
#define STRIPED_WINDOW_BYTES (24u << 20) /* of packets in flight, all units together */
/* of a group: as long as it is no longer it can be begun again, */
#define STRIPED_KEEP_BYTES (8u << 20)
/* and has no more packets than so many; and the row being written, in any case */
#define STRIPED_KEEP_PACKETS 256u
/* a packet's payload is at least so long, if cells are */
#define STRIPED_PACKET_BYTES (128u << 10)

/* ---- rows ---- */

static struct striped_writer *writer_of(struct output *f)
{
	return container_of(f, struct striped_writer, f);
}

static uint64_t row_bytes(const struct striped_writer *w)
{
	return ec_row_bytes(&w->policy);
}

/* Where in its unit the row that is being written begins. */
static uint64_t row_at(const struct striped_writer *w)
{
	return w->offset / row_bytes(w) * w->policy.cell;
}

static uint32_t column_len(const struct striped_writer *w, uint32_t column)
{
	const uint32_t at = column * w->packet_cap;

	return w->policy.cell - at < w->packet_cap ? w->policy.cell - at : w->packet_cap;
}

static struct packet **held(const struct striped_writer *w, unsigned unit, uint32_t column)
{
	return &w->row[unit * w->columns + column];
}

static void release(struct striped_writer *w, struct packet **held, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		packet_put(&w->f.fs->packets, held[i]);
		held[i] = NULL;
	}
}

void striped_release(struct striped_writer *w)
{
	const uint32_t n = w->policy.k * w->columns;

	release(w, w->row, n);
	release(w, w->kept, w->rows_kept * n);
	w->rows_kept = w->coded = 0;
}

/* Until another packet of the unit may be made. */
static int await_window(struct striped_writer *w, unsigned u, struct err *err)
{
	int rc = 0;

	while (rc == 0 && striped_is_good(w, u) && w->unit[u].pipe.in_window >= w->window)
		rc = striped_turn(w, true, err);
	return rc;
}

/* The parity of one column of the row that begins at @at of the units, from what is held of it. */
static int code_column(struct striped_writer *w, uint64_t at, uint32_t column, struct err *err)
{
	const unsigned k = w->policy.k, m = w->policy.m;
	const uint32_t len = (*held(w, 0, column))->len;
	struct packet *parity[EC_UNITS_MAX];
	uint8_t *out[EC_UNITS_MAX] = {NULL};
	struct ec_src src[EC_UNITS_MAX] = {0};
	int rc = 0;

	for (unsigned r = 0; rc == 0 && r < m; r++)
		rc = await_window(w, k + r, err);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < k; i++) {
		const struct packet *p = *held(w, i, column);

		src[i] = p ? (struct ec_src){p->data, p->len} : (struct ec_src){0};
	}
	for (unsigned r = 0; r < m; r++) {
		parity[r] = pipeline_new_packet(&w->unit[k + r].pipe, at + column * w->packet_cap,
						w->packet_cap);
		if (!parity[r])
			rc = err_set(err, -ENOMEM, "out of memory for a packet");
		else
			out[r] = parity[r]->data;
	}
	if (rc == 0)
		ec_encode(w->coder, src, out, len);
	for (unsigned r = 0; r < m; r++) {
		struct pipeline *pipe = &w->unit[k + r].pipe;

		if (rc < 0 && parity[r]) {
			pipeline_drop_packet(pipe, parity[r]);
		} else if (rc == 0) {
			packet_fill(parity[r], pipe->crc_type, pipe->bpc, len);
			rc = striped_queue(w, k + r, parity[r], err);
		}
	}
	w->coded = column + 1;
	return rc;
}

/* What was filled of a unit's packet goes to its node, and is held for the parity. */
static int push_cur(struct striped_writer *w, unsigned u, uint32_t column, struct err *err)
{
	struct packet *p = w->unit[u].cur;

	*held(w, u, column) = packet_hold(p);
	w->unit[u].cur = NULL;
	return striped_queue(w, u, p, err);
}

/* All rows are whole but perhaps the last one, whose parity is made here. */
static int flush_row(struct striped_writer *w, struct err *err)
{
	const uint64_t in_row = w->offset % row_bytes(w);
	const uint64_t at = row_at(w);
	const uint32_t parity_len = in_row < w->policy.cell ? (uint32_t)in_row : w->policy.cell;
	const unsigned u = (unsigned)(in_row / w->policy.cell);
	int rc = 0;

	if (in_row == 0)
		return 0;
	if (u < w->policy.k && w->unit[u].cur)
		rc = push_cur(w, u, (uint32_t)(in_row % w->policy.cell) / w->packet_cap, err);
	for (uint32_t c = w->coded; rc == 0 && c * w->packet_cap < parity_len; c++)
		rc = code_column(w, at, c, err);
	return rc;
}

/* ---- writing ---- */

/* A packet with room for the byte at `offset`, within the unit's window. */
static int need_cur(struct striped_writer *w, unsigned u, uint64_t unit_at, struct err *err)
{
	struct striped_unit *unit = &w->unit[u];
	int rc;

	if (unit->cur)
		return 0;
	rc = await_window(w, u, err);
	if (rc < 0)
		return rc;
	unit->cur = pipeline_new_packet(&unit->pipe, unit_at, w->packet_cap);
	return unit->cur ? 0 : err_set(err, -ENOMEM, "out of memory for a packet");
}

int striped_finish(struct striped_writer *w, bool sync, struct err *err)
{
	int rc;

	w->ending = w->lb != NULL;
	rc = w->lb ? flush_row(w, err) : 0;
	if (rc == 0 && w->lb)
		rc = striped_group_finish(w, sync, err);
	if (rc == 0)
		striped_release(w);
	return rc;
}

/* A row is whole: failures are told now, and a group may be full, or better ended. */
static int end_row(struct striped_writer *w, struct err *err)
{
	int rc = 0;

	striped_keep_row(w);
	if (w->offset == w->policy.k * w->unit_max)
		return striped_finish(w, !w->f.no_hsync, err);
	if (w->untold)
		rc = striped_repair(w, err);
	if (rc == 0 && striped_group_is_bare(w))
		rc = striped_finish(w, !w->f.no_hsync, err);
	return rc;
}

/* A group that takes bytes. */
static int need_group(struct striped_writer *w, struct err *err)
{
	int rc = w->lb && w->ending ? striped_finish(w, !w->f.no_hsync, err) : 0;

	return rc || w->lb ? rc : striped_group_open_patiently(w, err);
}

/* Place for the parity that bytes of unit @u may complete: once they are taken it is too late to
 * fail. */
static int need_parity(struct striped_writer *w, unsigned u, struct err *err)
{
	int rc = 0;

	for (unsigned r = w->policy.k; rc == 0 && u == w->policy.k - 1u && r < striped_units(w);
	     r++)
		rc = await_window(w, r, err);
	return rc;
}

ssize_t striped_take(struct striped_writer *w, const void *buf, size_t len, struct err *err)
{
	struct ec_place at;
	struct packet *cur;
	uint32_t column;
	size_t n;
	int rc = need_group(w, err);

	if (rc < 0)
		return rc;
	at = ec_place_of(&w->policy, w->offset);
	rc = need_parity(w, at.unit, err);
	rc = rc ?: need_cur(w, at.unit, at.at, err);
	if (rc < 0)
		return rc;
	cur = w->unit[at.unit].cur;
	n = packet_append(cur, w->unit[at.unit].pipe.crc_type, w->unit[at.unit].pipe.bpc,
			  at.at + at.run, buf, len);
	column = (uint32_t)(at.at % w->policy.cell) / w->packet_cap;
	w->offset += n;
	if (cur->len < column_len(w, column))
		return (ssize_t)n;
	rc = push_cur(w, at.unit, column, err);
	if (rc == 0 && at.unit == w->policy.k - 1u) {
		rc = code_column(w, at.at / w->policy.cell * w->policy.cell, column, err);
		rc = rc ?: striped_await_opened(w, err);
	}
	rc = rc ?: striped_turn(w, false, err);
	if (rc == 0 && w->offset % row_bytes(w) == 0)
		rc = end_row(w, err);
	if (rc == -ENOBUFS && w->f.refused) { /* these bytes are taken: the next call tries again */
		w->f.refused = false;
		return (ssize_t)n;
	}
	return rc < 0 ? rc : (ssize_t)n;
}

/* ---- entry points ---- */

static ssize_t do_write_some(struct output *f, const void *buf, size_t len, struct loan *loan,
			     struct err *err)
{
	struct striped_writer *w = writer_of(f);
	const uint64_t before = w->file_done + w->offset;
	ssize_t n = striped_take(w, buf, len, err);
	int rc;

	(void)loan; /* parity is coded from packets of one size */
	if (n >= 0)
		return n;
	rc = striped_try_again(w, (int)n, false, false, err);
	/* what was taken before it failed */
	return rc < 0 ? rc : (ssize_t)(w->file_done + w->offset - before);
}

static int finish_group(struct striped_writer *w, bool sync, struct err *err)
{
	const int rc = striped_finish(w, sync, err);

	return rc < 0 ? striped_try_again(w, rc, true, sync, err) : 0;
}

static void do_enter(struct output *f, uint64_t now_ns)
{
	struct striped_writer *w = writer_of(f);

	for (unsigned u = 0; u < striped_units(w); u++)
		w->unit[u].pipe.progress_ns = now_ns;
}

/* What was written is durable, and known to the NameNode, once its group is finished and committed:
 * docs/design/ec-sync.md. What follows goes to a new group. */
static int do_flush(struct output *f, uint32_t flags, struct err *err)
{
	struct striped_writer *w = writer_of(f);
	int rc;

	if (f->fs->set.ec_flush == EC_FLUSH_IGNORE)
		return 0;
	f->no_hsync = f->no_hsync && !(flags & DFS_SYNC_DISK);
	rc = finish_group(w, !f->no_hsync, err); /* an hsync later would not reach it */
	if (rc == 0 && w->to_commit)
		rc = striped_group_park(w, err);
	/* when the next group was refused, close() commits this one, or a flush does, later */
	return rc;
}

static int do_close(struct output *f, struct err *err)
{
	struct striped_writer *w = writer_of(f);
	int rc = finish_group(w, false, err);

	if (rc == 0 && w->parked)
		return output_release(f, err);
	return rc ?: output_complete(f, err);
}

static void do_keep_alive(struct output *f, uint64_t now_ns)
{
	struct striped_writer *w = writer_of(f);

	for (unsigned u = 0; u < striped_units(w); u++)
		pipeline_keep_alive(&w->unit[u].pipe, now_ns);
}

/* ---- life ---- */

static void do_free(struct output *f)
{
	struct striped_writer *w = writer_of(f);

	housekeeper_remove(f->fs, &f->kept);
	for (unsigned u = 0; u < striped_units(w); u++) {
		if (w->unit[u].cur)
			pipeline_drop_packet(&w->unit[u].pipe, w->unit[u].cur);
		w->unit[u].cur = NULL;
	}
	striped_group_drop(w);
	for (unsigned u = 0; u < striped_units(w); u++)
		pipeline_fini(&w->unit[u].pipe);
	if (w->row && w->kept)
		striped_release(w);
	free(w->row);
	free(w->kept);
	ec_coder_free(w->coder);
	output_fini(f);
	free(w);
}

static const struct write_ops striped_ops = {
	.enter = do_enter,
	.write_some = do_write_some,
	.flush = do_flush,
	.close = do_close,
	.keep_alive = do_keep_alive,
	.free = do_free,
};

/* Cells are cut into packets of equal size as far as that goes: fewer, longer ones than a
 * contiguous block has, since each unit is sent by itself. */
static int set_sizes(struct striped_writer *w, const struct settings *s, uint32_t bpc)
{
	const uint32_t cell = w->policy.cell;
	uint32_t max = settings_packet_payload(s->packet_size, bpc);

	if (max < STRIPED_PACKET_BYTES)
		max = STRIPED_PACKET_BYTES;
	w->columns = (cell + max - 1) / max;
	w->packet_cap = (cell + w->columns - 1) / w->columns;
	w->packet_cap = (w->packet_cap + bpc - 1) / bpc * bpc;
	w->columns = (cell + w->packet_cap - 1) / w->packet_cap;
	w->window = STRIPED_WINDOW_BYTES / striped_units(w) / w->packet_cap;
	if (w->window < WINDOW_MIN)
		w->window = WINDOW_MIN;
	w->keep_rows = STRIPED_KEEP_BYTES / (uint32_t)row_bytes(w);
	if (w->keep_rows > STRIPED_KEEP_PACKETS / (w->policy.k * w->columns))
		w->keep_rows = STRIPED_KEEP_PACKETS / (w->policy.k * w->columns);
	w->row = calloc((size_t)w->policy.k * w->columns, sizeof(w->row[0]));
	w->kept =
		calloc((size_t)w->policy.k * w->columns * (w->keep_rows + 1u), sizeof(w->kept[0]));
	return w->row && w->kept ? 0 : -ENOMEM;
}

static int check(const struct striped_opts *o, struct err *err)
{
	if (o->policy.cell % o->bpc)
		return err_set(err, -EINVAL,
			       "dfs.bytes-per-checksum (%u) does not divide the cells of %s",
			       o->bpc, o->policy.name);
	if (o->block_size < o->policy.cell)
		return err_set(err, -EINVAL, "a block size of %llu is less than a cell of %s",
			       (unsigned long long)o->block_size, o->policy.name);
	return 0;
}

int striped_writer_new(struct dfs *fs, const char *path, const struct striped_opts *o,
		       struct striped_writer **ret, struct err *err)
{
	struct striped_writer *w;
	int rc = check(o, err);

	if (rc < 0)
		return rc;
	w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(err, -ENOMEM, "out of memory for a file");
	w->policy = o->policy;
	w->block_size = o->block_size;
	w->unit_max = o->block_size - o->block_size % o->policy.cell;
	for (unsigned u = 0; u < striped_units(w); u++)
		pipeline_init(&w->unit[u].pipe, fs, o->crc_type, o->bpc);
	rc = output_init(&w->f, &striped_ops, fs, path, o->file_id, o->no_local, err);
	if (rc == 0 && set_sizes(w, &fs->set, o->bpc) < 0)
		rc = err_set(err, -ENOMEM, "out of memory for a file");
	rc = rc ?: ec_coder_new(&w->policy, &w->coder, err);
	if (rc < 0) {
		do_free(&w->f);
		return rc;
	}
	*ret = w;
	return 0;
}

int striped_writer_reopen(struct striped_writer *w, Hd__LocatedBlockProto *lb, uint64_t length,
			  struct err *err)
{
	int rc = 0;

	pthread_mutex_lock(&w->f.lock);
	w->f.length = w->file_done = length;
	if (lb) { /* closed, whatever its length: the first byte asks for the group behind it */
		rc = output_set_block(&w->f, lb->b, err);
		w->f.has_block = rc == 0;
		w->f.block_len = lb->b->numbytes;
	}
	pb_free(lb);
	pthread_mutex_unlock(&w->f.lock);
	return rc;
}
