/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/read/block_length.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "ClientDatanodeProtocol.pb-c.h"
#include "client/src/fs/fs.h"
#include "client/src/striped/block_group.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

static int visible_length(struct dfs *fs, const Hd__LocatedBlockProto *lb, size_t node,
			  uint64_t *ret, struct err *err)
{
	Hd__GetReplicaVisibleLengthRequestProto req =
		HD__GET_REPLICA_VISIBLE_LENGTH_REQUEST_PROTO__INIT;
	ProtobufCMessage *m;
	const struct rpc_token token = {
		.identifier = lb->blocktoken->identifier.data,
		.identifier_len = lb->blocktoken->identifier.len,
		.password = lb->blocktoken->password.data,
		.password_len = lb->blocktoken->password.len,
	};
	struct rpc_client_opts o = {
		.protocol = RPC_PROTO_CLIENT_DATANODE,
		.user = fs->user,
		.token = token.identifier_len ? &token : NULL, /* of a NameNode with block tokens */
		.peer = "data node",
		.addr_key = "dfs.datanode.ipc.address",
		.connect_timeout_ms = fs->set.connect_timeout_ms,
		.call_timeout_ms = fs->set.socket_timeout_ms,
	};
	struct rpc_client *c;
	int rc = node_addr(lb->locs[node]->id, fs->set.use_hostname, true, &o.addr, err);

	rc = rc ?: rpc_client_new(&o, &c, err);
	if (rc < 0)
		return rc;
	req.block = lb->b;
	rc = rpc_client_call(c, "getReplicaVisibleLength", &req.base,
			     &hd__get_replica_visible_length_response_proto__descriptor, &m, err);
	rpc_client_free(c);
	if (rc < 0)
		return rc;
	*ret = ((Hd__GetReplicaVisibleLengthResponseProto *)m)->length;
	pb_free(m);
	if (*ret > INT64_MAX) /* -1, as Java's nodes say it, too */
		return err_set(
			err, -EBUSY,
			"data node %s has restarted since the block was written, and waits for its recovery (dfs recover-lease)",
			lb->locs[node]->id->hostname);
	return 0;
}

static int ask_length_once(struct dfs *fs, Hd__LocatedBlockProto *lb, struct err *err)
{
	uint64_t len = 0;
	bool all_say_none = true;
	int rc = 0;

	for (size_t i = 0; i < lb->n_locs; i++) {
		struct err why = ERR_INIT;

		rc = visible_length(fs, lb, i, &len, &why);
		if (rc == 0)
			break;
		if (strcmp(why.remote, JEX_REPLICA_NOT_FOUND) == 0)
			continue;
		all_say_none = false;
		*err = why;
	}
	if (rc < 0 && !all_say_none) {
		err_prefix(err, "the length of a block being written is not known");
		if (err->rc != -ETIMEDOUT && err->rc != -ENOMEM && err->rc != -EBUSY)
			/* what a data node has against us is no answer of the NameNode */
			err->rc = -EIO;
		return err->rc;
	}
	lb->b->has_numbytes = 1;
	lb->b->numbytes = rc < 0 ? 0 : len;
	return 0;
}

/* A block whose nodes have restarted is recovered when its writer, or who takes over its lease,
 * closes the file: that may be under way. */
int block_length_ask(struct dfs *fs, Hd__LocatedBlockProto *lb, struct err *err)
{
	int rc = ask_length_once(fs, lb, err);

	for (int i = 1; rc == -EBUSY && i < BLOCK_LENGTH_TRIES; i++) {
		sleep_ns(BLOCK_LENGTH_PAUSE_NS);
		err_reset(err);
		rc = ask_length_once(fs, lb, err);
	}
	if (rc == -EBUSY)
		rc = err->rc = -EIO;
	return rc;
}

/* What the nodes of a group that is being written tell of its units. */
struct unit_lengths {
	uint64_t length[EC_UNITS_MAX]; /* count of them, in any order */
	unsigned count;
	unsigned silent;        /* units whose nodes do not tell */
	uint64_t last, longest; /* of the last data unit, 0: not known; of the longest one */
};

/* Why a unit is silent is left in @err. */
static void ask_unit(struct dfs *fs, struct group *g, unsigned u, struct unit_lengths *l,
		     struct err *err)
{
	struct err why = ERR_INIT;
	uint64_t n = 0;
	int rc;

	g->unit[u].b.numbytes = EC_NUMBYTES_UNIT;
	rc = visible_length(fs, &g->unit[u].lb, 0, &n, &why);
	if (rc == 0 && !ec_length_ok(n))
		rc = err_set(&why, -EPROTO,
			     "a data node says that a unit of a block group has %llu bytes",
			     (unsigned long long)n);
	if (rc < 0 && strcmp(why.remote, JEX_REPLICA_NOT_FOUND) != 0) {
		l->silent++;
		*err = why;
		return;
	}
	l->length[l->count++] = n; /* a unit that its node has not is empty yet */
	if (n > l->longest)
		l->longest = n;
	if (u == g->policy->k - 1u)
		l->last = n;
}

int block_length_ask_group(struct dfs *fs, Hd__LocatedBlockProto *lb,
			   const struct ec_policy *policy, struct err *err)
{
	struct unit_lengths l = {.count = 0};
	struct err why = ERR_INIT;
	uint64_t n = 0;
	struct group g;
	int rc;

	lb->b->has_numbytes = 1;
	lb->b->numbytes = 0; /* what the NameNode believes is of no use */
	rc = group_view(lb, policy, &g, err);
	if (rc < 0)
		return rc;
	for (unsigned u = 0; u < g.units; u++)
		if (g.unit[u].lb.n_locs > 0)
			ask_unit(fs, &g, u, &l, &why);
	if (why.rc == -ENOMEM) {
		*err = why;
		return why.rc;
	}
	if (l.count >= policy->k)
		n = ec_written_length(policy, ec_safe_length(policy, l.length, l.count), l.last,
				      l.longest);
	else if (l.silent > 0)
		log_warn("op=group_length group=%" PRId64 " units=%u silent=%u reason=\"%.200s\"",
			 g.id, l.count, l.silent, why.text);
	lb->b->numbytes = ec_length_ok(n) ? n : 0;
	return 0;
}
