/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/fs/datanode_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/pb.h"

/* By hand: each read asks for it. */
const char *node_text(const Hd__DatanodeIDProto *id, char *buf)
{
	char digits[10]; /* of the port, the last one first */
	size_t len = strnlen(id->ipaddr, NET_TEXT_MAX - sizeof(digits) - 2), n = 0;
	uint32_t port = id->xferport;

	memcpy(buf, id->ipaddr, len);
	buf[len++] = ':';
	do {
		digits[n++] = (char)('0' + port % 10);
		port /= 10;
	} while (port > 0);
	while (n > 0)
		buf[len++] = digits[--n];
	buf[len] = '\0';
	return buf;
}

int node_addr(const Hd__DatanodeIDProto *id, bool use_hostname, bool ipc, struct net_addr *ret,
	      struct err *err)
{
	const uint32_t port = ipc ? id->ipcport : id->xferport;
	const char *host = use_hostname && *id->hostname ? id->hostname : id->ipaddr;

	if (port == 0 || port > 65535)
		return err_set(err, -EPROTO, "the NameNode says that data node %s has port %u",
			       host, port);
	return net_resolve(host, (uint16_t)port, ret, err);
}

/* @len bytes of @text, or as many words of them as fit. */
static void fit(char *buf, size_t size, const char *text, size_t len)
{
	const char *more = "";

	if (len >= size && size > sizeof("...")) {
		len = size - sizeof("...");
		for (size_t n = len; n > 0; n--)
			if (text[n] == ' ') {
				len = n;
				break;
			}
		more = "...";
	}
	snprintf(buf, size, "%.*s%s", (int)len, text, more);
}

int node_no_connection(int rc, struct err *err)
{
	err_prefix(err, NODE_TOLD);
	err_cure(err, "is it up? see dfs admin report");
	return rc;
}

void node_why(char *buf, size_t size, const char *text)
{
	static const char told[] = NODE_TOLD ": ";

	if (strncmp(text, told, sizeof(told) - 1) == 0)
		text += sizeof(told) - 1;
	fit(buf, size, text, strcspn(text, ";"));
}

size_t node_list(char *buf, size_t size, size_t len, const char *sep, const char *item)
{
	static const char more[] = "...";
	const size_t add = strlen(sep) + strlen(item);

	if (len + add + sizeof(more) <= size)
		return len + (size_t)snprintf(buf + len, size - len, "%s%s", sep, item);
	if (len + sizeof(more) <= size && (len < 3 || strcmp(buf + len - 3, more) != 0))
		len += (size_t)snprintf(buf + len, size - len, "%s", more);
	return len;
}

bool node_is_away(int rc)
{
	return rc == -ETIMEDOUT || rc == -ECONNREFUSED || rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

int located_check(const Hd__LocatedBlockProto *lb, bool writable, struct err *err)
{
	if (writable && lb->n_locs > LOCATED_NODES_MAX)
		return err_set(
			err, -ENOTSUP,
			"a block to be written has %zu replicas, and a pipeline has at most %d nodes; give the "
			"file fewer replicas (dfs setrep)",
			lb->n_locs, LOCATED_NODES_MAX);
	if (writable && lb->n_locs == 0)
		return err_set(err, -ENOSPC, "the NameNode offers no data node for a block");
	if (writable && (lb->n_storageids != lb->n_locs || lb->n_storagetypes != lb->n_locs))
		return err_set(err, -EPROTO,
			       "the NameNode sent %zu nodes with %zu storage ids and %zu types",
			       lb->n_locs, lb->n_storageids, lb->n_storagetypes);
	return 0;
}

Hd__DatanodeInfoProto *located_remove(Hd__LocatedBlockProto *lb, size_t i)
{
	Hd__DatanodeInfoProto *gone = lb->locs[i];
	const size_t after = lb->n_locs - i - 1;

	free(lb->storageids[i]);
	memmove(&lb->locs[i], &lb->locs[i + 1], after * sizeof(lb->locs[0]));
	memmove(&lb->storageids[i], &lb->storageids[i + 1], after * sizeof(lb->storageids[0]));
	memmove(&lb->storagetypes[i], &lb->storagetypes[i + 1],
		after * sizeof(lb->storagetypes[0]));
	lb->n_locs--;
	lb->n_storageids--;
	lb->n_storagetypes--;
	return gone;
}

int located_move(Hd__LocatedBlockProto *to, Hd__LocatedBlockProto *from, size_t i)
{
	const size_t n = to->n_locs;
	void *locs = realloc(to->locs, (n + 1) * sizeof(to->locs[0])), *ids, *types;

	to->locs = locs ?: to->locs;
	ids = realloc(to->storageids, (n + 1) * sizeof(to->storageids[0]));
	to->storageids = ids ?: to->storageids;
	types = realloc(to->storagetypes, (n + 1) * sizeof(to->storagetypes[0]));
	to->storagetypes = types ?: to->storagetypes;
	if (!locs || !ids || !types)
		return -ENOMEM;
	to->storageids[n] = from->storageids[i];
	to->storagetypes[n] = from->storagetypes[i];
	from->storageids[i] = NULL; /* or it would be freed */
	to->locs[n] = located_remove(from, i);
	to->n_locs = to->n_storageids = to->n_storagetypes = n + 1;
	return 0;
}

void located_forget(Hd__LocatedBlockProto *lb, const Hd__DatanodeIDProto *node)
{
	for (size_t i = 0; i < lb->n_locs; i++)
		if (strcmp(lb->locs[i]->id->datanodeuuid, node->datanodeuuid) == 0) {
			pb_free(located_remove(lb, i));
			return;
		}
}

Hd__LocatedBlockProto *located_copy(const Hd__LocatedBlockProto *lb)
{
	Hd__LocatedBlockProto *copy = NULL;
	uint8_t *buf;
	size_t len;

	if (pb_pack(lb, &buf, &len) < 0)
		return NULL;
	(void)pb_unpack(&hd__located_block_proto__descriptor, buf, len, (void *)&copy);
	free(buf);
	return copy;
}

void node_table_init(struct node_table *t)
{
	*t = (struct node_table){0};
	pthread_mutex_init(&t->lock, NULL);
}

void node_table_fini(struct node_table *t)
{
	free(t->note);
	t->note = NULL;
}

static struct node_note *find_locked(struct node_table *t, const char *node)
{
	for (size_t i = 0; i < t->count; i++)
		if (strcmp(t->note[i].node, node) == 0)
			return &t->note[i];
	return NULL;
}

/* A place for a new entry: unused, or that of the entry which ends first. */
static struct node_note *place_locked(struct node_table *t)
{
	struct node_note *first;

	if (!t->note)
		t->note = calloc(NODE_TABLE_MAX, sizeof(*t->note));
	if (!t->note)
		return NULL;
	if (t->count < NODE_TABLE_MAX)
		return &t->note[t->count++];
	first = &t->note[0];
	for (size_t i = 1; i < t->count; i++)
		if (t->note[i].until_ns < first->until_ns)
			first = &t->note[i];
	return first;
}

void node_table_put(struct node_table *t, const char *node, const char *why, uint64_t until_ns)
{
	struct node_note *n;

	pthread_mutex_lock(&t->lock);
	n = find_locked(t, node);
	if (!n)
		n = place_locked(t);
	if (n) {
		snprintf(n->node, sizeof(n->node), "%s", node);
		snprintf(n->why, sizeof(n->why), "%s", why);
		n->until_ns = until_ns;
	}
	pthread_mutex_unlock(&t->lock);
}

bool node_table_get(struct node_table *t, const char *node, uint64_t now_ns, char *why, size_t size)
{
	struct node_note *n;
	bool held;

	pthread_mutex_lock(&t->lock);
	n = find_locked(t, node);
	held = n && n->until_ns > now_ns;
	if (held && why)
		snprintf(why, size, "%s", n->why);
	pthread_mutex_unlock(&t->lock);
	return held;
}

void node_table_drop(struct node_table *t, const char *node)
{
	struct node_note *n;

	pthread_mutex_lock(&t->lock);
	n = find_locked(t, node);
	if (n)
		*n = t->note[--t->count];
	pthread_mutex_unlock(&t->lock);
}
