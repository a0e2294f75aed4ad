/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/read/same_file.h"

#include <inttypes.h>
#include <string.h>

static uint64_t end_of(const Hd__LocatedBlockProto *lb)
{
	return lb->offset + lb->b->numbytes;
}

static const Hd__LocatedBlockProto *block_at(const Hd__LocatedBlocksProto *l, uint64_t offset)
{
	if (l->lastblock && l->lastblock->offset == offset)
		return l->lastblock;
	for (size_t i = 0; i < l->n_blocks; i++)
		if (l->blocks[i]->offset == offset)
			return l->blocks[i];
	return NULL;
}

static bool covers(const Hd__LocatedBlocksProto *l, uint64_t offset)
{
	for (size_t i = 0; i < l->n_blocks; i++)
		if (l->blocks[i]->offset <= offset && offset < end_of(l->blocks[i]))
			return true;
	return false;
}

/* FNV-1a; never 0. */
static uint64_t pool_of(const Hd__LocatedBlockProto *lb)
{
	uint64_t h = 0xcbf29ce484222325;

	for (const char *p = lb->b->poolid; *p; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3;
	return h ? h : 1;
}

static bool is_known(const struct known_block *k, const Hd__LocatedBlockProto *lb)
{
	return lb->b->blockid == k->id && pool_of(lb) == k->pool;
}

bool same_file_shows(const struct known_block *k, const Hd__LocatedBlocksProto *l)
{
	const Hd__LocatedBlockProto *lb = block_at(l, k->offset);

	return k->pool && lb && is_known(k, lb);
}

enum same_file same_file_look(const struct known_block *k, const Hd__LocatedBlocksProto *l,
			      uint64_t length)
{
	const Hd__LocatedBlockProto *lb = block_at(l, k->offset);

	if (!k->pool || (!k->end && !l->lastblock)) /* what had begun was recovered to nothing */
		return SAME_FILE;
	if ((lb && !is_known(k, lb)) || (l->lastblock && pool_of(l->lastblock) != k->pool))
		return SAME_FILE_OTHER;
	if (length < k->end || (lb && lb != l->lastblock && end_of(lb) < k->end))
		return SAME_FILE_CUT;
	if (lb)
		return SAME_FILE;
	return l->lastblock && l->lastblock->offset > k->offset && !covers(l, k->offset)
		       ? SAME_FILE_ASK
		       : SAME_FILE_OTHER;
}

void same_file_learn(struct known_block *k, const Hd__LocatedBlocksProto *l)
{
	const Hd__LocatedBlockProto *last = l->lastblock,
				    *lb = l->islastblockcomplete ? last : NULL;

	for (size_t i = l->n_blocks; !lb && last && i-- > 0;)
		if (l->blocks[i]->offset < last->offset && end_of(l->blocks[i]) <= last->offset)
			lb = l->blocks[i];
	if (lb && end_of(lb) > k->end)
		*k = (struct known_block){lb->b->blockid, lb->offset, end_of(lb), pool_of(lb)};
	else if (!lb && last && last->b->numbytes > 0 && !k->pool)
		same_file_begun(k, last);
}

void same_file_begun(struct known_block *k, const Hd__LocatedBlockProto *lb)
{
	*k = (struct known_block){lb->b->blockid, lb->offset, 0, pool_of(lb)};
}

bool same_file_by_id(const char *path)
{
	return strncmp(path, "/.reserved/", 11) != 0 && !strstr(path, "/.snapshot/");
}

int same_file_gone(const char *path, struct err *err)
{
	return err_set(
		err, -ESTALE,
		"%.300s was deleted, replaced or joined to another file while it was read; open it again",
		path);
}

int same_file_differs(enum same_file how, const char *path, uint64_t length, struct err *err)
{
	if (how == SAME_FILE_CUT)
		return err_set(
			err, -ESTALE,
			"%.300s was truncated or replaced while it was read: it ends at byte %" PRIu64
			" now; open it again",
			path, length);
	if (how == SAME_FILE_REFILLED)
		return err_set(
			err, -ESTALE,
			"%.300s was truncated and written on while it was read; open it again",
			path);
	return err_set(err, -ESTALE, "%.300s was replaced while it was read; open it again", path);
}
