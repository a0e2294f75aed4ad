/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/write/suspect_nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/pb.h"

#define STEPS_MAX 16u   /* doublings of the wait */
#define STEPS_HEARD 6u  /* at most, of who is not waited for */
#define STEPS_SILENT 6u /* so many more for who was waited for */

struct suspect_nodes_node {
	Hd__DatanodeInfoProto *info; /* owned */
	uint64_t since_ns;
	uint64_t wait_ns; /* until it may be tried again */
	unsigned steps;
	bool out;
	bool doubt; /* cleared by the second chance that it gave */
};

static void list_out(struct suspect_nodes *b)
{
	b->n_out = 0;
	for (size_t i = 0; i < b->count; i++)
		if (b->node[i].out)
			b->out[b->n_out++] = b->node[i].info;
}

static void forget(struct suspect_nodes *b, size_t i)
{
	pb_free(b->node[i].info);
	memmove(b->node + i, b->node + i + 1, (--b->count - i) * sizeof(b->node[0]));
}

/* How often it failed before is forgotten with its old entry, and returned. */
static unsigned forget_before(struct suspect_nodes *b, const Hd__DatanodeInfoProto *info)
{
	for (size_t i = 0; i < b->count; i++)
		if (strcmp(b->node[i].info->id->datanodeuuid, info->id->datanodeuuid) == 0) {
			const unsigned steps = b->node[i].steps;

			forget(b, i);
			return steps + 1;
		}
	if (b->count == BLAMED_MAX)
		forget(b, 0);
	return 0;
}

int suspect_nodes_add(struct suspect_nodes *b, Hd__DatanodeInfoProto *node, bool silent,
		      uint64_t now_ns)
{
	unsigned steps;

	if (!b->node)
		b->node = calloc(BLAMED_MAX, sizeof(b->node[0]));
	if (!b->out)
		b->out = calloc(BLAMED_MAX, sizeof(b->out[0]));
	if (!b->node || !b->out) {
		pb_free(node);
		return -ENOMEM;
	}
	steps = forget_before(b, node);
	if (silent && steps < STEPS_SILENT)
		steps = STEPS_SILENT;
	if (steps > (silent ? STEPS_MAX : STEPS_HEARD))
		steps = silent ? STEPS_MAX : STEPS_HEARD;
	b->node[b->count++] = (struct suspect_nodes_node){
		.info = node,
		.since_ns = now_ns,
		.steps = steps,
		.wait_ns = steps ? BLAMED_WAIT_NS << (steps - 1) : 0,
		.out = true,
	};
	b->failures++;
	list_out(b);
	return 0;
}

void suspect_nodes_expire(struct suspect_nodes *b, uint64_t expiry_ns, uint64_t now_ns)
{
	while (b->count > 0 && now_ns - b->node[0].since_ns >= expiry_ns)
		forget(b, 0);
	list_out(b);
}

void suspect_nodes_doubt(struct suspect_nodes *b)
{
	if (b->count > 0)
		b->node[b->count - 1].doubt = true;
}

bool suspect_nodes_in_doubt(const struct suspect_nodes *b)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->node[i].out && b->node[i].doubt)
			return true;
	return false;
}

void suspect_nodes_forgive(struct suspect_nodes *b)
{
	const bool some = suspect_nodes_in_doubt(b);

	for (size_t i = 0; i < b->count; i++)
		if (!some || b->node[i].doubt)
			b->node[i].out = b->node[i].doubt = false;
	list_out(b);
}

static bool has_waited(const struct suspect_nodes_node *n, uint64_t now_ns)
{
	return now_ns - n->since_ns >= n->wait_ns;
}

bool suspect_nodes_is_due(const struct suspect_nodes *b, uint64_t now_ns)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->node[i].out && has_waited(&b->node[i], now_ns))
			return true;
	return false;
}

bool suspect_nodes_try_again(struct suspect_nodes *b, uint64_t now_ns)
{
	const size_t before = b->n_out;

	for (size_t i = 0; i < b->count; i++)
		if (has_waited(&b->node[i], now_ns))
			b->node[i].out = false;
	list_out(b);
	return b->n_out < before;
}

void suspect_nodes_fini(struct suspect_nodes *b)
{
	while (b->count > 0)
		forget(b, 0);
	free(b->node);
	free(b->out);
	*b = (struct suspect_nodes){.node = NULL};
}
