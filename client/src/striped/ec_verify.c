/* SPDX-License-Identifier: Apache-2.0 */
/* ec_verify - dfs_verify_ec(): do the units of each group of a file belong together?
 *
 * All units that are there are read side by side, a window at a time, and checked against each
 * other. When they do not agree, each is left out in turn: if the others agree without just one,
 * that one is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/path_call.h"
#include "client/src/read/block_locations.h"
#include "client/src/stream/stream.h"
#include "client/src/striped/block_group.h"
#include "common/base/clock.h"
#include "common/erasure/coder.h"
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"

#define WINDOW (256u << 10) /* of each unit */

struct verify {
	struct dfs *fs; /* borrowed */
	struct ec_policy policy;
	struct ec_coder *coder; /* owned */
	uint8_t *buf;           /* owned; a window of each unit */
	void (*tell)(void *arg, const struct dfs_ec_finding *f);
	void *arg;
	struct dfs_ec_summary sum;
	/* nodes that were waited for in vain, which takes a minute: once is enough */
	struct node_table silent;
};

/* One group. */
struct pass {
	struct verify *v;
	struct group g;
	uint32_t have; /* set of units that are read, or known to be zeros */
	uint32_t zero;
	bool undecided;                   /* they differ, and nobody knows who is right */
	struct rstream *rs[EC_UNITS_MAX]; /* owned */
};

static void find(struct pass *p, enum dfs_ec_fault fault, unsigned unit, uint64_t at,
		 const char *why)
{
	char node[GROUP_TEXT_MAX];
	const struct dfs_ec_finding f = {
		.fault = fault,
		.group = p->g.id,
		.offset = p->g.offset,
		.unit = unit,
		.at = at,
		.node = group_unit_text(&p->g, unit, node),
		.why = why,
	};

	p->v->sum.findings++;
	p->v->tell(p->v->arg, &f);
}

static void drop(struct pass *p, unsigned unit)
{
	if (p->rs[unit])
		p->rs[unit]->ops->close_read(p->rs[unit]);
	p->rs[unit] = NULL;
	p->have &= ~(1u << unit);
}

/* Unit @unit cannot be read: @rc. 0; -ENOMEM and the like, which are nobody's fault. */
static int unit_failed(struct pass *p, unsigned unit, int rc, struct err *err)
{
	char text[NET_TEXT_MAX];

	if (rc == -ENOMEM || rc == -ENOTSUP)
		return rc;
	if (rc == -ETIMEDOUT)
		node_table_put(&p->v->silent, node_text(p->g.unit[unit].locs[0]->id, text),
			       err->text, UINT64_MAX);
	drop(p, unit);
	find(p, rc == -EBADMSG ? DFS_EC_UNIT_CORRUPT : DFS_EC_UNIT_MISSING, unit, 0, err->text);
	if (rc == -EBADMSG)
		locate_report_bad(p->v->fs, &p->g.unit[unit].lb, 0);
	err_reset(err);
	return 0;
}

/* Was the node of the unit waited for before? Then the unit counts as missing at once. */
static bool is_silent(struct pass *p, unsigned unit)
{
	char text[NET_TEXT_MAX], why[ERR_TEXT_MAX], said[ERR_TEXT_MAX];

	if (!node_table_get(&p->v->silent, node_text(p->g.unit[unit].locs[0]->id, text),
			    clock_mono_ns(), why, sizeof(why)))
		return false;
	drop(p, unit);
	snprintf(said, sizeof(said), "not asked again: %.300s", why);
	find(p, DFS_EC_UNIT_MISSING, unit, 0, said);
	return true;
}

static int open_units(struct pass *p, struct err *err)
{
	for (unsigned i = 0; i < p->g.units; i++) {
		struct read_setup r = {.lb = &p->g.unit[i].lb, .len = p->g.unit[i].b.numbytes};
		int rc;

		if (!(p->g.existing >> i & 1))
			continue;
		p->have |= 1u << i;
		if (p->g.lost >> i & 1) {
			drop(p, i);
			find(p, DFS_EC_UNIT_MISSING, i, 0, "");
			continue;
		}
		if (is_silent(p, i))
			continue;
		rc = stream_open_read(p->v->fs, &r, &p->rs[i], err);
		if (rc < 0) {
			p->rs[i] = NULL;
			rc = unit_failed(p, i, rc, err);
		}
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_unit(struct pass *p, unsigned unit, uint8_t *dst, uint32_t len, struct err *err)
{
	uint32_t got = 0;

	while (got < len) {
		const struct block_stream *ops = p->rs[unit]->ops;
		ssize_t n = ops->read(p->rs[unit], dst + got, len - got, err);

		if (n < 0)
			return unit_failed(p, unit, (int)n, err);
		got += (uint32_t)n;
		p->v->sum.bytes += (uint64_t)n;
		count_add(&p->v->fs->count.read[p->rs[unit]->counter], (uint64_t)n);
	}
	return 0;
}

/* They do not agree: who is wrong? */
static void name_wrong(struct pass *p, const struct ec_src *src, uint32_t len, uint64_t at)
{
	uint32_t candidates = 0, differ;

	for (unsigned i = 0; i < p->g.units; i++)
		if ((p->have & ~p->zero) >> i & 1 &&
		    ec_check(p->v->coder, p->have & ~(1u << i), src, len, &differ) == 0 &&
		    differ == 0)
			candidates |= 1u << i;
	if (group_count(candidates) == 1) {
		const unsigned unit = (unsigned)__builtin_ctz(candidates);

		drop(p, unit);
		find(p, DFS_EC_UNIT_DIFFERS, unit, at, "");
		/* its CRCs are right: nobody else will notice */
		locate_report_bad(p->v->fs, &p->g.unit[unit].lb, 0);
		return;
	}
	find(p, DFS_EC_GROUP_DIFFERS, 0, at, "");
	p->undecided = true;
}

static int check_window(struct pass *p, uint64_t at, uint32_t len, struct err *err)
{
	struct ec_src src[EC_UNITS_MAX] = {0};
	uint32_t differ;
	int rc = 0;

	for (unsigned i = 0; i < p->g.units && rc == 0; i++) {
		const uint64_t length = p->g.unit[i].b.numbytes;

		if (!(p->have >> i & 1) || length <= at)
			continue;
		src[i].data = p->v->buf + (size_t)i * WINDOW;
		src[i].len = length - at < len ? (size_t)(length - at) : len;
		rc = read_unit(p, i, p->v->buf + (size_t)i * WINDOW, (uint32_t)src[i].len, err);
	}
	if (rc < 0 || group_count(p->have) <= p->g.policy->k)
		return rc;
	rc = ec_check(p->v->coder, p->have, src, len, &differ);
	if (rc < 0)
		return err_set(err, -EIO, "units %#x of a block group cannot be checked", p->have);
	if (differ)
		name_wrong(p, src, len, at);
	return 0;
}

static int check_units(struct pass *p, struct err *err)
{
	const unsigned k = p->g.policy->k;
	const uint64_t length = p->g.unit[k].b.numbytes; /* parity is as long as the longest */
	int rc = open_units(p, err);

	for (uint64_t at = 0; at < length && rc == 0 && group_count(p->have) > k && !p->undecided;
	     at += WINDOW)
		rc = check_window(p, at, length - at < WINDOW ? (uint32_t)(length - at) : WINDOW,
				  err);
	return rc;
}

static int verify_group(struct verify *v, const Hd__LocatedBlockProto *lb, struct err *err)
{
	struct pass *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return err_set(err, -ENOMEM, "out of memory for a block group");
	p->v = v;
	rc = group_view(lb, &v->policy, &p->g, err);
	if (rc == 0 && p->g.length > 0) {
		p->zero = p->have = ((1u << v->policy.k) - 1) & ~p->g.existing;
		rc = check_units(p, err);
		v->sum.groups++;
		v->sum.units += group_count(p->g.existing);
	}
	if (rc == 0 && p->g.length > 0 && group_count(p->have) < v->policy.k)
		find(p, DFS_EC_GROUP_LOST, 0, 0, "");
	else if (rc == 0 && p->g.length > 0 && group_count(p->have) == v->policy.k)
		v->sum.unchecked++;
	for (unsigned i = 0; i < EC_UNITS_MAX; i++)
		if (p->rs[i])
			drop(p, i);
	free(p);
	return rc;
}

static int verify_blocks(struct verify *v, const Hd__LocatedBlocksProto *l, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; i < l->n_blocks && rc == 0; i++) {
		const bool open = l->lastblock && !l->islastblockcomplete &&
				  l->blocks[i]->b->blockid == l->lastblock->b->blockid;

		if (!open)
			rc = verify_group(v, l->blocks[i], err);
	}
	return rc;
}

static int prepare(struct verify *v, const char *path, const Hd__LocatedBlocksProto *l,
		   struct err *err)
{
	int rc;

	if (!l->ecpolicy)
		return err_set(err, -EINVAL, "%.400s is replicated, not erasure-coded", path);
	if (l->fileencryptioninfo)
		return err_set(err, -ENOTSUP, "%.200s is encrypted, which this version cannot read",
			       path);
	rc = ec_policy_from_msg(l->ecpolicy, &v->policy);
	if (rc < 0)
		return err_set(err, -EPROTO,
			       "the NameNode names an impossible erasure-coding policy for %.200s",
			       path);
	rc = ec_coder_new(&v->policy, &v->coder, err);
	if (rc < 0)
		return rc;
	v->buf = malloc((size_t)WINDOW * (v->policy.k + v->policy.m));
	return v->buf ? 0 : err_set(err, -ENOMEM, "out of memory for a check");
}

DFS_API int dfs_verify_ec(struct dfs *fs, const char *path,
			  void (*tell)(void *arg, const struct dfs_ec_finding *f), void *arg,
			  struct dfs_ec_summary *ret, struct dfs_err *out)
{
	Hd__GetBlockLocationsRequestProto req = HD__GET_BLOCK_LOCATIONS_REQUEST_PROTO__INIT;
	Hd__GetBlockLocationsResponseProto *m = NULL;
	struct verify v = {.fs = fs, .tell = tell, .arg = arg};
	struct dfs_stat st;
	struct path_call a;

	node_table_init(&v.silent);
	path_call_begin(&a, fs, path);
	a.rc = a.rc ?: path_stat(fs, a.path, &st, &a.err);
	if (a.rc == 0 && st.type == DFS_DIR)
		a.rc = err_set(&a.err, -EISDIR, "%.400s is a directory", a.path);
	a.rc = a.rc ?: stream_check(fs, &a.err);
	req.src = a.path;
	req.length = INT64_MAX;
	if (path_call_send(&a, "getBlockLocations", &req.base,
			   &hd__get_block_locations_response_proto__descriptor, &m) == 0) {
		if (!m->locations)
			a.rc = path_not_found(&a.err, a.path);
		a.rc = a.rc ?: prepare(&v, a.path, m->locations, &a.err);
		a.rc = a.rc ?: verify_blocks(&v, m->locations, &a.err);
		pb_free(m);
	}
	ec_coder_free(v.coder);
	free(v.buf);
	node_table_fini(&v.silent);
	*ret = v.sum;
	return path_call_end(&a, out);
}
