/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/stream/stream.h"

#include "client/src/stream/rdma.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/transport/verbs.h"

#define FALLBACK_NS (60 * NS_PER_S) /* how long a node stays on TCP before RDMA is tried again */

/* Is RDMA to be tried for this node now? */
static bool want_rdma(struct dfs *fs, const Hd__DatanodeInfoProto *node)
{
	char text[NET_TEXT_MAX];

	node_text(node->id, text);
	return fs->set.rdma == RDMA_REQUIRE ||
	       (fs->set.rdma == RDMA_AUTO &&
		!node_table_get(&fs->fallbacks, text, clock_mono_ns(), NULL, 0));
}

/* An open by RDMA ended with *@rc. True: there is no RDMA path, and TCP is to be tried, which the
 * node's entry remembers. False: *@rc is the outcome; -ENOTSUP when RDMA is required. */
static bool falls_back(struct dfs *fs, const Hd__DatanodeInfoProto *node, int *rc, struct err *err)
{
	char text[NET_TEXT_MAX];

	if (*rc != -ENOLINK)
		return false;
	if (fs->set.rdma == RDMA_REQUIRE) {
		err->rc = -ENOTSUP;
		err_prefix(err, "dfs.client.rdma=require");
		*rc = err_cure(err, "set it to auto to allow TCP");
		return false;
	}
	node_text(node->id, text);
	if (err->rc != -ENOBUFS)
		node_table_put(&fs->fallbacks, text, err->text, clock_mono_ns() + FALLBACK_NS);
	count_add(&fs->count.rdma_fallbacks, 1);
	log_debug("op=rdma_fallback node=%s reason=\"%s\"", text, err->text);
	err_reset(err);
	return true;
}

bool stream_broke(struct dfs *fs, const char *node, bool other_way, const struct err *why)
{
	if (!stream_forgives(fs, why->rc))
		return false;
	if (why->rc == -ECANCELED) /* we ended it: a request of somebody else was given up */
		return true;
	if (other_way) /* the one that broke is left alone: each is tried once at most */
		return true;
	node_table_put(&fs->fallbacks, node, why->text, clock_mono_ns() + FALLBACK_NS);
	count_add(&fs->count.rdma_fallbacks, 1);
	log_debug("op=rdma_fallback node=%s reason=\"%s\"", node, why->text);
	return true;
}

int stream_check(struct dfs *fs, struct err *err)
{
	struct err why = ERR_INIT;

	if (fs->set.rdma != RDMA_REQUIRE || verbs_probe(&why) == 0)
		return 0;
	return err_set(err, -ENOTSUP, "dfs.client.rdma=require: %s; or set it to auto to allow TCP",
		       why.text);
}

void stream_prepare_write(struct dfs *fs, const Hd__DatanodeInfoProto *node)
{
	struct err ignored = ERR_INIT; /* opening says it again */
	struct rdma *rdma;

	if (want_rdma(fs, node))
		(void)rdma_get(fs, &rdma, &ignored);
}

/* 1 set up, 0 only started, -errno. */
static int begin_write(const struct block_stream *ops, struct dfs *fs, const struct write_setup *w,
		       bool start, struct wstream **ret, int *ret_bad, struct err *err)
{
	if (start && ops->start_write)
		return ops->start_write(fs, w, ret, err);
	return ops->open_write(fs, w, ret, ret_bad, err) ?: 1;
}

/* The node may have done @w, and nobody heard: may it be asked again? Recoveries take a replica
 * that has the new stamp already; that of an append takes one that is finalised, too. A new replica
 * is refused the second time (hdfs-wire 5.5), and the node would be blamed for it. */
static bool can_repeat(struct write_setup *w)
{
	if (w->stage == DT_SETUP_APPEND)
		w->stage = DT_SETUP_APPEND_RECOVERY;
	return w->stage != DT_SETUP_CREATE;
}

static int open_write(struct dfs *fs, const struct write_setup *w, bool start, struct wstream **ret,
		      int *ret_bad, struct err *err)
{
	struct write_setup setup = *w;
	int rc;

	*ret_bad = 0;
	if (!w->by_tcp && want_rdma(fs, w->lb->locs[0])) {
		rc = begin_write(&stream_rdma, fs, w, start, ret, ret_bad, err);
		if (rc < 0 && *ret_bad < 0) {
			if (!can_repeat(&setup))
				return rc;
			err_reset(err);
		} else if (!falls_back(fs, w->lb->locs[0], &rc, err)) {
			return rc;
		}
	}
	return begin_write(&stream_tcp, fs, &setup, start, ret, ret_bad, err);
}

int stream_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
		      int *ret_bad, struct err *err)
{
	const int rc = open_write(fs, w, false, ret, ret_bad, err);

	return rc < 0 ? rc : 0;
}

int stream_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
		       bool *ret_opened, int *ret_bad, struct err *err)
{
	const int rc = open_write(fs, w, true, ret, ret_bad, err);

	if (rc < 0)
		return rc;
	*ret_opened = rc > 0;
	return 0;
}

static int open_by(const struct block_stream *ops, struct dfs *fs, const struct read_setup *r,
		   bool start, struct rstream **ret, struct err *err)
{
	const int rc = (start ? ops->start_read : ops->open_read)(fs, r, ret, err);

	if (rc == 0)
		(*ret)->counter = ops->counter;
	return rc;
}

int stream_open_network(struct dfs *fs, const struct read_setup *r, bool start,
			struct rstream **ret, struct err *err)
{
	int rc;

	if (want_rdma(fs, r->lb->locs[r->node])) {
		rc = open_by(&stream_rdma, fs, r, start, ret, err);
		if (!falls_back(fs, r->lb->locs[r->node], &rc, err))
			return rc;
	}
	return open_by(&stream_tcp, fs, r, start, ret, err);
}

static int open_read(struct dfs *fs, const struct read_setup *r, bool start, struct rstream **ret,
		     struct err *err)
{
	if (fs->set.local.enabled && open_by(&stream_local, fs, r, start, ret, err) == 0)
		return 0;
	return stream_open_network(fs, r, start, ret, err);
}

int stream_open_read(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
		     struct err *err)
{
	return open_read(fs, r, false, ret, err);
}

int stream_start_read(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
		      struct err *err)
{
	return open_read(fs, r, true, ret, err);
}

bool stream_is_tcp(struct dfs *fs, const struct read_setup *r)
{
	return !fs->set.local.enabled && !want_rdma(fs, r->lb->locs[r->node]);
}
