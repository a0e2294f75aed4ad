/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/same_file.h"

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

enum same_file same_file_look(const struct known_block *k, const Hd__LocatedBlocksProto *l, uint64_t length)
{
	const Hd__LocatedBlockProto *lb = block_at(l, k->offset);

	if (!k->end)
		return SAME_FILE;
	if (lb && lb->b->blockid != k->id)
		return SAME_FILE_OTHER;
	if (length < k->end || (lb && lb != l->lastblock && end_of(lb) < k->end))
		return SAME_FILE_CUT;
	if (lb)
		return SAME_FILE;
	return l->lastblock && l->lastblock->offset > k->offset && !covers(l, k->offset) ? SAME_FILE_ASK : SAME_FILE_OTHER;
}

void same_file_learn(struct known_block *k, const Hd__LocatedBlocksProto *l)
{
	const Hd__LocatedBlockProto *lb = l->islastblockcomplete ? l->lastblock : NULL;

	for (size_t i = 0; !lb && l->lastblock && i < l->n_blocks; i++)
		if (end_of(l->blocks[i]) == l->lastblock->offset)
			lb = l->blocks[i];
	if (lb && end_of(lb) > k->end)
		*k = (struct known_block){.id = lb->b->blockid, .offset = lb->offset, .end = end_of(lb)};
}

bool same_file_by_id(const char *path)
{
	return strncmp(path, "/.reserved/", 11) != 0 && !strstr(path, "/.snapshot/");
}

int same_file_gone(const char *path, struct err *err)
{
	return err_set(err, -ESTALE,
		       "%.300s was deleted, replaced or joined to another file while it was read; open it again",
		       path);
}

int same_file_differs(enum same_file how, const char *path, uint64_t length, struct err *err)
{
	if (how == SAME_FILE_CUT)
		return err_set(err, -ESTALE, "%.300s was truncated or replaced while it was read, and has %" PRIu64
						   " bytes now; open it again", path, length);
	return err_set(err, -ESTALE, "%.300s was replaced while it was read; open it again", path);
}
