/* SPDX-License-Identifier: Apache-2.0 */
/* Which volume a new replica goes to. */
#include "datanode/store/store_internal.h"

#include <inttypes.h>
#include <string.h>

#define BALANCED_BYTES (10ull << 30) /* volumes this close in free space take turns */

/* Volumes with room take turns: all of them, or those within BALANCED_BYTES of the emptiest. A wish
 * for a storage or a type is granted when there is room, else ignored, as Hadoop's fallback does.
 */
static struct slice *choose_among(struct block_pool *bp, const struct write_request *q, bool strict,
				  uint64_t need, uint64_t tried, uint64_t *ret_best)
{
	struct store *s = bp->store;
	struct slice *ok[STORE_VOLUMES_MAX];
	struct space sp;
	uint64_t room[STORE_VOLUMES_MAX], best = 0;
	uint32_t n = 0, k = 0;

	for (uint32_t i = 0; i < s->volume_count; i++) {
		struct slice *sl = &bp->slices[i];

		if (sl->fd < 0 || sl->vol->failed || tried >> i & 1 ||
		    (strict && sl->vol->type != q->storage_type))
			continue;
		volume_space(sl->vol, &sp);
		room[n] = sp.room;
		if (room[n] > best)
			best = room[n];
		if (strict && q->storage_uuid && !strcmp(q->storage_uuid, sl->vol->uuid) &&
		    room[n] >= need)
			return sl;
		ok[n++] = sl;
	}
	*ret_best = best;
	for (uint32_t i = 0; i < n; i++)
		if (room[i] >= need && (!s->available_space || best - room[i] <= BALANCED_BYTES))
			ok[k++] = ok[i];
	if (!k)
		return NULL;
	return ok[atomic_fetch_add(&s->next_volume, 1) % k];
}

/* Of the volumes that do not answer right now none, where there is another one. */
static struct slice *choose_quick(struct block_pool *bp, const struct write_request *q, bool strict,
				  uint64_t need, uint64_t tried, uint64_t *ret_best)
{
	const struct store *s = bp->store;
	struct slice *sl;
	uint64_t slow = 0;

	for (uint32_t i = 0; i < s->volume_count; i++)
		slow |= (uint64_t)s->volumes[i].slow << i;
	sl = slow ? choose_among(bp, q, strict, need, tried | slow, ret_best) : NULL;
	return sl ? sl : choose_among(bp, q, strict, need, tried, ret_best);
}

struct slice *slice_choose(struct block_pool *bp, enum storage_type type, const char *storage_uuid,
			   uint64_t need)
{
	const struct write_request q = {.storage_type = type, .storage_uuid = storage_uuid};
	uint64_t best = 0;

	return choose_quick(bp, &q, true, need, 0, &best);
}

/* What is kept for writers, who may never need it, is the usual reason where the disks have room.
 */
static void no_room(const struct store *s, uint64_t need, uint64_t best, struct err *err)
{
	uint64_t promised = 0;
	uint32_t writers = 0;

	for (uint32_t i = 0; i < s->volume_count; i++) {
		if (s->volumes[i].failed)
			continue;
		promised += s->volumes[i].promised;
		writers += s->volumes[i].writers;
	}
	err_set(err, -ENOSPC,
		"no data directory has room for %" PRIu64 " bytes, the emptiest has %" PRIu64, need,
		best);
	if (writers)
		err_cure(err,
			 "%" PRIu64 " MiB are kept for %" PRIu32
			 " open blocks: close idle writers, lower dfs.blocksize, "
			 "free space or add a directory to dfs.datanode.data.dir",
			 promised >> 20, writers);
	else
		err_cure(err, "free space or add a directory to dfs.datanode.data.dir");
}

struct slice *slice_choose_for(struct block_pool *bp, const struct write_request *q, uint64_t need,
			       uint64_t tried, struct err *err)
{
	uint64_t best = 0;
	struct slice *sl = choose_quick(bp, q, true, need, tried, &best);

	if (!sl)
		sl = choose_quick(bp, q, false, need, tried, &best);
	if (!sl)
		no_room(bp->store, need, best, err);
	return sl;
}
