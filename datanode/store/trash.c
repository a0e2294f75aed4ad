/* SPDX-License-Identifier: Apache-2.0 */
/* What a rolling upgrade, or one of the whole cluster, keeps for going back. While a rolling
 * upgrade is under way deleted blocks move to <pool>/trash, which mirrors <pool>/current as a Java
 * DataNode's does, so that its -rollback finds them. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

/* <volume>/current/<pool>/@name with all that is in it. */
static void remove_tree(const struct slice *sl, const char *name, const char *op)
{
	const struct volume *v = sl->vol;
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/current/%s/%s", v->path, sl->bp->ns.pool_id, name);
	if (v->failed || access(path, F_OK))
		return;
	log_info("op=%s dir=%s: removing", op, path);
	if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT))
		log_warn("op=%s dir=%s: %s", op, path, err_name(neg_errno()));
}

void slice_remove_previous(const struct slice *sl)
{
	remove_tree(sl, "previous", "finalize-upgrade");
}

void slice_empty_trash(const struct slice *sl)
{
	remove_tree(sl, "trash", "end-of-rolling-upgrade");
}

/* The deleters of all volumes have something to do. */
static void wake_deleters_locked(struct store *s)
{
	for (uint32_t i = 0; i < s->volume_count; i++)
		pthread_cond_signal(&s->volumes[i].doomed_cond);
}

void store_finalize_upgrade(struct block_pool *bp)
{
	struct store *s = bp->store;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->volume_count; i++)
		bp->slices[i].remove_previous = true;
	wake_deleters_locked(s);
	pthread_mutex_unlock(&s->lock);
}

/* ---- trash ---- */

static int make_dirs_at(int fd, const char *dir)
{
	char path[STORE_NAME_MAX];

	for (const char *p = strchr(dir + 3, '/'); p; p = strchr(p + 1, '/')) {
		(void)snprintf(path, sizeof(path), "%.*s", (int)(p - dir), dir);
		if (mkdirat(fd, path, 0755) && errno != EEXIST)
			return neg_errno();
	}
	return 0;
}

int pair_trash(int slice_fd, int64_t id, uint64_t gs)
{
	char from[STORE_NAME_MAX], to[STORE_NAME_MAX + 16];
	int rc;

	path_data(from, IN_FINALIZED, id);
	(void)snprintf(to, sizeof(to), "../trash/%s", from);
	rc = make_dirs_at(slice_fd, to);
	if (!rc && renameat(slice_fd, from, slice_fd, to) && errno != ENOENT)
		rc = neg_errno();
	path_meta(from, IN_FINALIZED, id, gs);
	(void)snprintf(to, sizeof(to), "../trash/%s", from);
	if (!rc && renameat(slice_fd, from, slice_fd, to) && errno != ENOENT)
		rc = neg_errno();
	return rc;
}

void store_set_trash(struct block_pool *bp, bool on)
{
	struct store *s = bp->store;

	pthread_mutex_lock(&s->lock);
	/* The first word after a start counts also when it is "off": an upgrade may have ended
	 * while this node was down. */
	if (!bp->trash_known || bp->trash != on) {
		for (uint32_t i = 0; i < s->volume_count; i++)
			bp->slices[i].empty_trash = !on;
		wake_deleters_locked(s);
	}
	bp->trash_known = true;
	bp->trash = on;
	pthread_mutex_unlock(&s->lock);
}
