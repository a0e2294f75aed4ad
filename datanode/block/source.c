/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/source.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/crc.h"
#include "common/base/log.h"

struct local_source { /* a replica of ours: an engine read whose pieces are checked */
	struct piece_source base;
	struct engine_core *core;
	struct read_sink read_sink;
	struct read_sink *sink; /* the asker's */
	struct block_read *r;
	struct block_pool *bp;
	struct read_info info;
	struct offload suspect;
	bool bad, ended;
	int end_rc;
};

static struct local_source *of_base(struct piece_source *s)
{
	return container_of(s, struct local_source, base);
}

static struct local_source *of_sink(struct read_sink *s)
{
	return container_of(s, struct local_source, read_sink);
}

static void on_opened(struct read_sink *s, int rc, const struct read_info *info,
		      const struct err *err)
{
	struct local_source *l = of_sink(s);

	if (rc == 0)
		l->info = *info;
	l->sink->ops->opened(l->sink, rc, info, err);
}

static void on_piece(struct read_sink *s, struct piece *p)
{
	struct local_source *l = of_sink(s);

	if (!l->bad && crc_verify(l->info.crc_type, p->slot->data + p->slot_off, p->len,
				  l->info.bytes_per_crc, p->crcs) >= 0) {
		log_warn("op=read block=%" PRId64 "_%" PRIu64 ": the bytes at %" PRIu64
			 " fail their CRC",
			 l->info.block.id, l->info.block.gs, p->off);
		l->bad = true;
		block_read_close(l->r);
	}
	if (l->bad)
		block_read_sent(l->r, p);
	else
		l->sink->ops->piece(l->sink, p);
}

static void local_end(struct local_source *l)
{
	l->sink->ops->ended(l->sink, l->bad ? -EBADMSG : l->end_rc);
	free(l);
}

/* The store looks once more before it reports: a helper's work. */
static void suspect_work(struct offload *o)
{
	struct local_source *l = container_of(o, struct local_source, suspect);

	replica_suspect(l->bp, &l->info.block);
}

static void suspect_done(struct offload *o)
{
	local_end(container_of(o, struct local_source, suspect));
}

static void on_ended(struct read_sink *s, int rc)
{
	struct local_source *l = of_sink(s);

	l->r = NULL;
	l->end_rc = rc;
	if (!l->bad) {
		local_end(l);
		return;
	}
	l->suspect = (struct offload){.work = suspect_work, .done = suspect_done};
	engine_offload(l->core, replica_volume(l->bp, l->info.block.id), &l->suspect);
}

static const struct read_sink_ops local_sink_ops = {
	.opened = on_opened,
	.piece = on_piece,
	.ended = on_ended,
};

static void local_sent(struct piece_source *s, struct piece *p)
{
	block_read_sent(of_base(s)->r, p);
}

static void local_close(struct piece_source *s)
{
	struct local_source *l = of_base(s);

	if (l->r)
		block_read_close(l->r);
}

static const struct piece_source_ops local_ops = {
	.sent = local_sent,
	.close = local_close,
};

static int local_source_open(struct engine_core *core, const struct source_params *params,
			     struct read_sink *sink, struct piece_source **ret)
{
	const struct read_params rp = {.bp = params->bp,
				       .block = params->block,
				       .off = params->off,
				       .len = params->len,
				       .want_crcs = true,
				       .use = POOL_REBUILD};
	struct local_source *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->base.ops = &local_ops;
	l->core = core;
	l->bp = params->bp;
	l->sink = sink;
	l->read_sink = (struct read_sink){.ops = &local_sink_ops, .peer = sink->peer, .own = true};
	rc = block_read_open(core, &rp, &l->read_sink, &l->r);
	if (rc < 0) {
		free(l);
		return rc;
	}
	*ret = &l->base;
	return 0;
}

int source_open(struct engine_core *core, const struct source_params *params,
		struct read_sink *sink, struct piece_source **ret)
{
	int rc = -EHOSTUNREACH;

	if (!params->at)
		return local_source_open(core, params, sink, ret);
	if (core->caps && params->crc_slots[0])
		rc = capsule_source_open(core, params, sink, ret);
	return rc == -EHOSTUNREACH ? stream_source_open(core, params, sink, ret) : rc;
}
