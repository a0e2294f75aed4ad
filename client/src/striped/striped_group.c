/* SPDX-License-Identifier: Apache-2.0 */
/* striped_group - block groups of a file being written: their nodes, and what happens when these
 * fail; striped_writer.h */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "client/src/striped/striped_writer.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/pb.h"

/* ---- units that fail ---- */

static unsigned failures(const struct striped_writer *w)
{
	return (unsigned)__builtin_popcount(w->failed);
}

/* Who, and why: all of them, since a person wants to see what they have in common. */
static int too_many(struct striped_writer *w, struct err *err)
{
	char list[360] = "";
	size_t len = 0;

	w->lost = true;
	for (unsigned u = 0; u < striped_units(w); u++) {
		char item[sizeof(w->unit[u].why) + 20];

		if (striped_is_good(w, u))
			continue;
		snprintf(item, sizeof(item), "unit %u (%s)", u, w->unit[u].why);
		len = node_list(list, sizeof(list), len, len ? ", " : " ", item);
	}
	return err_set(
		err, -EIO,
		"%u units of a block group failed, which is more than the %u parity units of %s:%s",
		failures(w), w->policy.m, w->policy.name, list);
}

/* Written all the same it would be worse off than without erasure coding. */
static int no_spare(const struct striped_writer *w, struct err *err)
{
	err_set(err, -ENOSPC,
		"there are %u data nodes for a block group of %s, which wants %u: it would have no parity, and the loss of any "
		"of them would lose the file",
		w->policy.k, w->policy.name, striped_units(w));
	return err_cure(
		err,
		"start data nodes (dfs admin report), take a policy of fewer units (--ec), or write it "
		"all the same with -D dfs.client.ec.without.parity=allow; "
		"dfs.namenode.ec.strict-placement=true of the NameNode refuses all groups that are not whole");
}

/* Nothing more goes to the unit; its node is not to be offered again. 0 when the group can do
 * without it. That we have no memory is no unit's fault: where RDMA is required it passes. */
static int lose(struct striped_writer *w, unsigned u, struct err *err)
{
	struct striped_unit *unit = &w->unit[u];
	const Hd__DatanodeInfoProto *node = w->group.unit[u].locs[0];
	const bool dry = pipeline_is_dry(&unit->pipe, err->rc);
	const bool forgiven =
		pipeline_forgives(&unit->pipe, err->rc) || (unit->repeated && unit->pipe.opening);
	char text[NET_TEXT_MAX], why[92];

	if (err->rc == -ENOMEM)
		return err->rc;
	if (dry && w->f.fs->set.rdma == RDMA_REQUIRE) {
		w->f.refused = true;
		return err->rc;
	}
	node_why(why, sizeof(why), err->text);
	snprintf(unit->why, sizeof(unit->why), "%s: %s", node_text(node->id, text), why);
	log_debug("op=unit_lost group=%" PRId64 " unit=%u reason=\"%s\"", w->group.id, u,
		  unit->why);
	w->failed |= 1u << u;
	w->untold |= 1u << u;
	output_heard(&w->f, err->rc);
	pipeline_close_stream(&unit->pipe);
	pipeline_drop_all(&unit->pipe);
	for (size_t i = 0; i < w->lb->n_locs && !forgiven; i++)
		if (w->lb->locs[i] == node) {
			(void)output_blame(&w->f, located_remove(w->lb, i), err->rc == -ETIMEDOUT,
					   NULL);
			break;
		}
	if (failures(w) > w->policy.m)
		return too_many(w, err);
	if (failures(w) == w->policy.m && w->f.spare_unit && w->bare_since_ns && w->all_kept) {
		w->lost = true; /* it is begun again rather than without parity */
		return no_spare(w, err);
	}
	err_reset(err);
	return 0;
}

/* ---- the turn ---- */

static bool has_stream(const struct striped_writer *w, unsigned u)
{
	return w->unit[u].pipe.ws && striped_is_good(w, u);
}

/* Everything that moves without waiting; *@ret_want is the set of units with more to send. */
static int pump_all(struct striped_writer *w, bool all, uint32_t *ret_want, struct err *err)
{
	*ret_want = 0;
	for (unsigned u = 0; u < striped_units(w); u++) {
		struct pipeline *p = &w->unit[u].pipe;
		int bad, rc;

		/* acks alone can wait until somebody waits for them */
		if (!has_stream(w, u) ||
		    !(all ? pipeline_is_busy(p) || p->pending_rc : !list_empty(&p->queue)))
			continue;
		rc = pipeline_pump(p, &bad, err);
		if (rc < 0)
			rc = lose(w, u, err);
		else if (rc > 0)
			*ret_want |= 1u << u;
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* What there is to poll for. -1: something can move at once. */
static int gather(struct striped_writer *w, uint32_t want, struct pollfd *fds, unsigned *unit,
		  uint64_t *ret_deadline)
{
	int n = 0;

	*ret_deadline = UINT64_MAX;
	for (unsigned u = 0; u < striped_units(w); u++) {
		struct pipeline *p = &w->unit[u].pipe;
		const bool send = want & 1u << u;
		uint64_t until;

		if (!has_stream(w, u))
			continue;
		until = pipeline_is_busy(p) ? pipeline_wait_deadline(p, send) : pipeline_beat_ns(p);
		if (until < *ret_deadline)
			*ret_deadline = until;
		if (!pipeline_is_busy(p))
			continue;
		if (p->ws->ops->poll_write(p->ws, send, &fds[n]) != 0)
			return -1;
		unit[n++] = u;
	}
	return n;
}

/* Unit @u is silent for too long, or for so long that a sign of life is due. What has come just
 * now, and memory for its next packet, counts: only pipeline_pump() sees it. */
static int look_once_more(struct striped_writer *w, unsigned u, struct err *err)
{
	struct pipeline *p = &w->unit[u].pipe;
	int bad, rc = pipeline_pump(p, &bad, err);

	if (rc >= 0 && pipeline_is_busy(p) && clock_mono_ns() >= pipeline_wait_deadline(p, rc > 0))
		rc = pipeline_waited(p, rc > 0, err);
	return rc < 0 ? lose(w, u, err) : 0;
}

/* Nothing has stirred for a while: signs of life, and who is silent for too long is lost. */
static int nothing_came(struct striped_writer *w, uint32_t want, struct err *err)
{
	const uint64_t now = clock_mono_ns();
	int rc = 0;

	for (unsigned u = 0; rc == 0 && u < striped_units(w); u++) {
		struct pipeline *p = &w->unit[u].pipe;
		const bool send = want & 1u << u;

		if (!has_stream(w, u))
			continue;
		if (!pipeline_is_busy(p))
			pipeline_keep_alive(p, now);
		else if (now >= pipeline_wait_deadline(p, send))
			rc = look_once_more(w, u, err);
	}
	return rc;
}

static int wait_for_some(struct striped_writer *w, uint32_t want, struct err *err)
{
	struct pollfd fds[EC_UNITS_MAX];
	unsigned unit[EC_UNITS_MAX];
	uint64_t deadline, now;
	int n = gather(w, want, fds, unit, &deadline);

	if (n <= 0)
		return 0;
	now = clock_mono_ns();
	n = poll(fds, (nfds_t)n, deadline > now ? (int)((deadline - now) / NS_PER_MS) + 1 : 0);
	if (n < 0 && errno != EINTR)
		return err_sys(err, neg_errno(), "poll");
	return nothing_came(w, want, err); /* one unit may be silent while others talk */
}

static bool any_busy(const struct striped_writer *w)
{
	for (unsigned u = 0; u < striped_units(w); u++)
		if (has_stream(w, u) && pipeline_is_busy(&w->unit[u].pipe))
			return true;
	return false;
}

int striped_turn(struct striped_writer *w, bool wait, struct err *err)
{
	uint32_t want;
	int rc = pump_all(w, wait, &want, err);

	if (rc == 0 && wait && any_busy(w))
		rc = wait_for_some(w, want, err);
	return rc;
}

int striped_drain(struct striped_writer *w, struct err *err)
{
	uint32_t want;
	int rc = pump_all(w, true, &want, err);

	while (rc == 0 && any_busy(w)) {
		rc = wait_for_some(w, want, err);
		rc = rc ?: pump_all(w, true, &want, err);
	}
	return rc;
}

static bool any_opening(const struct striped_writer *w)
{
	for (unsigned u = 0; u < striped_units(w); u++)
		if (has_stream(w, u) && w->unit[u].pipe.opening)
			return true;
	return false;
}

int striped_await_opened(struct striped_writer *w, struct err *err)
{
	int rc = 0;

	while (rc == 0 && any_opening(w))
		rc = striped_turn(w, true, err);
	return rc;
}

/* ---- streams ---- */

/* Only begun: units are set up side by side, and packets wait in their pipelines. */
static int open_unit(struct striped_writer *w, unsigned u, enum dt_stage stage, uint64_t latest_gs,
		     struct err *err)
{
	Hd__ExtendedBlockProto b = output_block_at(&w->f, w->block_size);
	struct pipeline *p = &w->unit[u].pipe;
	int bad, rc;

	b.blockid = (uint64_t)ec_id_of(w->group.id, u);
	if (w->again && stage == DT_SETUP_CREATE)
		/* what the node has of an earlier attempt may be replaced then */
		latest_gs = b.generationstamp;
	p->lb = &w->group.unit[u].lb;
	p->by_tcp = false;
	rc = pipeline_start(p, &b, stage, latest_gs, &bad, err);
	w->unit[u].repeated = p->by_tcp = rc < 0 && bad < 0;
	if (w->unit[u].repeated) {
		err_reset(err);
		rc = pipeline_start(p, &b, stage, latest_gs, &bad, err);
	}
	return rc < 0 ? lose(w, u, err) : 0;
}

int striped_queue(struct striped_writer *w, unsigned u, struct packet *packet, struct err *err)
{
	struct pipeline *p = &w->unit[u].pipe;
	int rc = 0;

	if (striped_is_good(w, u) && !p->ws)
		rc = open_unit(w, u, DT_SETUP_CREATE, 0, err);
	if (rc < 0 || !striped_is_good(w, u))
		pipeline_drop_packet(p, packet);
	else
		pipeline_queue(p, packet);
	return rc;
}

/* ---- repair, hdfs-wire 7.5 and 8.1 ---- */

static bool are_empty(Hc__TokenProto *const *tokens, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (tokens[i]->identifier.len)
			return false;
	return true;
}

/* The nodes want to see the tokens of the new stamp; they come by unit, whoever is left. Of a group
 * that began with fewer nodes than units Apache's NameNode, when it gives no tokens, names all
 * units beside as many empty ones as there were nodes. */
static int take_tokens(struct striped_writer *w, const Hd__LocatedBlockProto *m, struct err *err)
{
	static char empty[] = "";
	static Hc__TokenProto none = {PROTOBUF_C_MESSAGE_INIT(&hc__token_proto__descriptor),
				      {0, NULL},
				      {0, NULL},
				      empty,
				      empty};
	const size_t n = m->has_blockindices ? m->blockindices.len : 0;

	if (m->n_blocktokens != n && !are_empty(m->blocktokens, m->n_blocktokens))
		return err_set(err, -EPROTO, "the NameNode sent %zu tokens for %zu units",
			       m->n_blocktokens, n);
	/* No unit keeps a token of the stamp before, which goes with it. */
	for (unsigned u = 0; u < striped_units(w); u++)
		w->group.unit[u].lb.blocktoken = &none;
	for (size_t i = 0; m->n_blocktokens == n && i < n; i++)
		if (m->blockindices.data[i] < striped_units(w))
			w->group.unit[m->blockindices.data[i]].lb.blocktoken = m->blocktokens[i];
	return 0;
}

static int new_stamp(struct striped_writer *w, struct err *err)
{
	Hd__LocatedBlockProto *m;
	int rc = output_new_stamp(&w->f, w->offset, &m, err);

	if (rc < 0)
		return rc;
	rc = take_tokens(w, m, err);
	if (rc < 0) {
		pb_free(m);
		return rc;
	}
	pb_free(w->stamp);
	w->stamp = m; /* the units' messages point to its tokens */
	return 0;
}

/* All units that are left come to the new stamp. */
static int reopen_all(struct striped_writer *w, struct err *err)
{
	const uint64_t gs = w->stamp->b->generationstamp;
	int rc = 0;

	for (unsigned u = 0; rc == 0 && u < striped_units(w); u++) {
		if (!has_stream(w, u))
			continue;
		pipeline_close_stream(&w->unit[u].pipe);
		rc = open_unit(w, u, DT_SETUP_STREAMING_RECOVERY, gs, err);
	}
	return rc ?: striped_await_opened(w, err);
}

/* Nodes by unit; a lost unit's place is empty. A NameNode never lets a group become shorter, so it
 * is told of no length while the group may be begun again. */
static int update_pipeline(struct striped_writer *w, struct err *err)
{
	const uint64_t len = w->all_kept ? 0 : w->offset;
	Hd__DatanodeIDProto empty = HD__DATANODE_IDPROTO__INIT;
	Hd__DatanodeIDProto *ids[EC_UNITS_MAX];
	char *storages[EC_UNITS_MAX];
	char none[] = "", null[] = "null"; /* Java compares with DatanodeID.EMPTY_DATANODE_ID */

	empty.ipaddr = empty.hostname = empty.datanodeuuid = null;
	for (unsigned u = 0; u < striped_units(w); u++) {
		const bool good = striped_is_good(w, u);

		ids[u] = good ? w->group.unit[u].locs[0]->id : &empty;
		storages[u] = good ? w->group.unit[u].storage_ids[0] : none;
	}
	return output_update_pipeline(&w->f, len, w->stamp->b->generationstamp, ids, storages,
				      striped_units(w), err);
}

int striped_repair(struct striped_writer *w, struct err *err)
{
	int rc = striped_drain(w, err);

	while (rc == 0 && w->untold) {
		w->untold = 0;
		rc = new_stamp(w, err);
		rc = rc ?: reopen_all(w, err);
		if (rc == 0 && !w->untold)
			rc = update_pipeline(w, err);
	}
	return rc;
}

/* ---- groups ---- */

void striped_group_drop(struct striped_writer *w)
{
	for (unsigned u = 0; u < striped_units(w); u++) {
		pipeline_reset(&w->unit[u].pipe);
		pipeline_drop_all(&w->unit[u].pipe);
		w->unit[u].pipe.lb = NULL;
	}
	pb_free(w->lb);
	pb_free(w->stamp);
	w->lb = w->stamp = NULL;
	w->failed = w->untold = w->coded = 0;
	w->ending = false;
	w->offset = 0;
}

/* All places of group @b are empty from now on: nobody is to be asked about it, and when this
 * writer dies the NameNode drops it at once. */
static int empty_group(struct striped_writer *w, const Hd__ExtendedBlockProto *b, struct err *err)
{
	const Hd__ExtendedBlockProto last = w->f.block;
	Hd__LocatedBlockProto *stamp;
	int rc;

	w->f.block = *b; /* `previous` stays as it is: addBlock will name it again */
	rc = output_new_stamp(&w->f, 0, &stamp, err);
	if (rc == 0) {
		const uint32_t failed = w->failed;

		pb_free(w->stamp);
		w->stamp = stamp;
		w->failed = (1u << striped_units(w)) - 1;
		rc = update_pipeline(w, err);
		w->failed = failed;
		w->stamp = NULL;
		pb_free(stamp);
	}
	w->f.block = last;
	return rc;
}

/* For the program to tell, which knows to whom. */
static void count_short(struct striped_writer *w)
{
	const unsigned units = striped_units(w), nodes = units - w->began_without;
	struct counters *c = &w->f.fs->count;

	count_add(&c->short_groups, 1);
	atomic_store_explicit(&c->short_group_units, units, memory_order_relaxed);
	atomic_store_explicit(&c->short_group_nodes, nodes, memory_order_relaxed);
	atomic_store_explicit(&c->short_group_data, w->policy.k, memory_order_relaxed);
	log_debug("op=short_group path=%s group=%" PRId64 " policy=%s nodes_wanted=%u nodes=%u",
		  w->f.path, w->group.id, w->policy.name, units, nodes);
}

static int add_group(struct striped_writer *w, Hd__LocatedBlockProto **ret, struct err *err)
{
	int rc = output_add_block(&w->f, ret, err);

	/* all others are excluded: they may be back */
	if (rc == -ENOSPC && w->f.blamed.n_out > 0) {
		suspect_nodes_forgive(&w->f.blamed);
		err_reset(err);
		rc = output_add_block(&w->f, ret, err);
	}
	if (rc < 0 && rc != -ESTALE && err->remote[0]) /* a quota, a limit, too few nodes */
		w->f.refused = true;
	return rc;
}

/* The group comes short since nodes are excluded that may be back: once it has no nodes, addBlock
 * chooses others for it. */
static int choose_again(struct striped_writer *w, struct err *err)
{
	int rc;

	if (w->lb->n_locs >= striped_units(w) ||
	    !suspect_nodes_try_again(&w->f.blamed, clock_mono_ns()))
		return 0;
	rc = empty_group(w, w->lb->b, err);
	pb_free(w->lb);
	w->lb = NULL;
	if (rc < 0)
		return rc;
	w->parked = true;
	w->to_commit = false;
	return add_group(w, &w->lb, err);
}

/* A NameNode that has too few nodes leaves units out. */
static int note_missing(struct striped_writer *w, struct err *err)
{
	for (unsigned u = 0; u < striped_units(w); u++)
		if (w->group.lost & 1u << u) {
			w->failed |= 1u << u;
			snprintf(w->unit[u].why, sizeof(w->unit[u].why), "no data node for it");
		}
	if (failures(w) > w->policy.m)
		return too_many(w, err);
	return w->f.spare_unit && w->policy.m && failures(w) == w->policy.m ? no_spare(w, err) : 0;
}

int striped_group_open(struct striped_writer *w, struct err *err)
{
	int rc = add_group(w, &w->lb, err);

	w->lost = false;
	w->all_kept = true;

	rc = rc ?: choose_again(w, err);
	if (rc < 0)
		return rc;
	rc = located_check(w->lb, true, err);
	rc = rc ?: group_view(w->lb, &w->policy, &w->group, err);
	w->before = w->f.block;
	w->has_before = w->f.has_block;
	w->before_len = w->f.block_len;
	rc = rc ?: output_set_block(&w->f, w->lb->b, err);
	if (rc == 0) {
		w->f.has_block = true;
		w->f.block_len = 0;
		w->to_commit = w->parked = false;
		if (w->lb->n_locs)
			stream_prepare_write(w->f.fs, w->lb->locs[0]);
		rc = note_missing(w, err);
		w->began_without = failures(w);
	}
	return rc;
}

bool striped_group_is_bare(struct striped_writer *w)
{
	return failures(w) == w->policy.m && (failures(w) > w->began_without ||
					      suspect_nodes_is_due(&w->f.blamed, clock_mono_ns()));
}

int striped_group_undo(struct striped_writer *w, struct err *err)
{
	const Hd__ExtendedBlockProto b = w->f.block;
	int rc;

	for (unsigned u = 0; u < striped_units(w); u++)
		/* or a node has a writer still when the next one comes */
		pipeline_close_stream(&w->unit[u].pipe);
	w->f.block = w->before;
	w->f.block.poolid = w->f.pool_id; /* there is one block pool */
	w->f.has_block = w->has_before;
	w->f.block_len = w->before_len;
	rc = empty_group(w, &b, err);
	striped_group_drop(w);
	w->parked = rc == 0;
	w->to_commit = false;
	w->again = true;
	return rc;
}

/* The empty last packet finalises a unit. Nodes that fail now are not told of: the others have no
 * stream any more that could take a new stamp, as with the stock client. */
static int send_last(struct striped_writer *w, bool sync, struct err *err)
{
	int rc = 0;

	for (unsigned u = 0; rc == 0 && u < striped_units(w); u++)
		if (has_stream(w, u))
			rc = pipeline_queue_empty(&w->unit[u].pipe, true, sync, err);
	return rc ?: striped_drain(w, err);
}

int striped_group_finish(struct striped_writer *w, bool sync, struct err *err)
{
	int rc = striped_repair(w, err);

	rc = rc ?: send_last(w, sync, err);
	if (rc < 0)
		return rc;
	if (w->began_without)
		count_short(w);
	if (failures(w) < w->policy.m) {
		w->bare_since_ns = 0;
		w->told = false;
	}
	w->f.block_len = w->offset;
	w->file_done += w->offset;
	w->to_commit = true;
	w->again = false;
	striped_group_drop(w);
	return 0;
}

int striped_group_park(struct striped_writer *w, struct err *err)
{
	Hd__LocatedBlockProto *lb = NULL;
	int rc;

	assert(!w->lb && w->to_commit);
	rc = add_group(w, &lb, err);
	rc = rc ?: empty_group(w, lb->b, err);
	pb_free(lb);
	if (rc == 0) {
		w->to_commit = false;
		w->parked = true;
	}
	return rc;
}
