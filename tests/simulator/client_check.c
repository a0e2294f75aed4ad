/* SPDX-License-Identifier: Apache-2.0 */
/* At the end of a history: is all as the ledger says? What takes time is waited for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/simulator/client.h"

#define PATIENCE_S 3600  /* for what comes by itself */
#define LOST_AFTER_S 600 /* then what is lost is lost */

/* HDFS promises neither that these are there nor that they are gone: bytes behind the last sync
 * after a power cut, bytes of an only replica that rots, and units of a group that is readable only
 * with one that its disk has once failed to read. */
static const char NOT_PROMISED[] = "is not whole";

/* Bytes of @f were on no disk for sure when a machine lost its power. */
static bool may_be_damaged(const struct file *f)
{
	return f->most > f->synced && f->crashes != ledger->crashes;
}

/* The units that a group of @length bytes must have: no cells of it are on the others. There are
 * only as many nodes as units. So units that are damaged are in the place of new ones, and the
 * NameNode keeps them while it knows of no more good ones than reading needs. */
static uint64_t units(const struct file *f, uint64_t length)
{
	const uint64_t cells = (length + CELL - 1) / CELL;

	return (cells < DATA_UNITS ? cells : DATA_UNITS) + (may_be_damaged(f) ? 0 : PARITY_UNITS);
}

/* Too few good ones, and the NameNode names those that count as damaged. A unit whose disk has
 * failed a read does so for good, although it can be read: nothing may be made from it, because it
 * may as well be one that others were found not to agree with. */
static bool may_stay_so(const struct dfs_block *k)
{
	return k->corrupt && ledger->disk_errors;
}

/* What is not yet so, in words, or NULL. */
static const char *look_at_blocks(const struct file *f, const char *path)
{
	static char text[100];
	const char *ret = NULL;
	struct dfs_blocks *b;
	struct dfs_stat st;

	if (dfs_stat(fs, path, &st, NULL) || dfs_blocks(fs, path, 0, LARGEST, &b, NULL))
		return "has no blocks";
	for (size_t i = 0; i < b->count && !ret; i++) {
		const struct dfs_block *k = &b->block[i];
		const uint64_t want = f->striped ? units(f, k->length) : st.replication;

		if (k->count >= want)
			continue;
		snprintf(text, sizeof(text), "has %zu of %lu %s of blk_%ld", k->count,
			 (unsigned long)want, f->striped ? "units" : "replicas", (long)k->id);
		ret = may_stay_so(k) ? NOT_PROMISED : text;
	}
	dfs_blocks_free(b);
	return ret;
}

/* Its blocks, for the director: it compares what is on the disks. */
static void tell_blocks(const struct file *f, const char *path)
{
	struct dfs_blocks *b;

	if (f->striped || dfs_blocks(fs, path, 0, LARGEST, &b, NULL))
		return;
	for (size_t i = 0; i < b->count && ledger->block_count < BLOCKS; i++)
		ledger->block[ledger->block_count++] =
			(struct block){.id = b->block[i].id,
				       .generation = b->block[i].generation,
				       .offset = b->block[i].offset,
				       .length = b->block[i].length,
				       .file = (uint32_t)(f - ledger->file)};
	dfs_blocks_free(b);
}

/* The last block of @f, which stays open, for the director: no disk may have all of it. */
static void tell_open(const struct file *f)
{
	const struct dfs_block *last;
	struct dfs_blocks *b;
	char path[32];

	name_of(f->number, path);
	if (f->striped || dfs_blocks(fs, path, 0, LARGEST, &b, NULL))
		return;
	last = b->count ? &b->block[b->count - 1] : NULL;
	if (b->under_construction && last && b->file_length <= last->offset)
		ledger->open_block[ledger->open_count++] =
			(struct block){.id = last->id,
				       .generation = last->generation,
				       .file = (uint32_t)(f - ledger->file)};
	dfs_blocks_free(b);
}

/* The block that has rotted, as it is now; NULL: it is not of this file, or not there any more. A
 * unit has its group's id, and in the last bits which one it is. */
static const struct dfs_block *block_of(const struct file *f, const struct dfs_blocks *b,
					const struct rotten *r)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->block[i].id == (f->striped ? r->id & ~15ll : r->id))
			return &b->block[i];
	return NULL;
}

/* Bytes of @f may be lost by it: what other machines had then does not do without the one that has
 * rotted and one more. A block that was written to since, or recovered, may have left them behind.
 */
static bool may_lose(const struct file *f, const struct dfs_block *k, const struct rotten *r)
{
	const uint64_t cells = k && k->length ? (k->length + CELL - 1) / CELL : DATA_UNITS;
	const bool same = !k || k->generation == r->generation;

	if (f->striped)
		return !same || r->others <= (cells < DATA_UNITS ? cells : DATA_UNITS);
	/* where nodes are down a pipeline goes on with one, and a copy takes its time */
	return f->replication == 1 || r->alone || (f->died && (!same || r->others < 2));
}

/* From where on bytes of @f may be lost, because one of an only replica has rotted: it is the only
 * one, or one of a group without its parity; or a recovery takes the shortest one, which ends
 * before it. A recovery may have taken its block away from the end. UINT64_MAX: nowhere. */
static uint64_t rotten_from(const struct file *f, const char *path)
{
	uint64_t from = UINT64_MAX, end;
	struct dfs_blocks *b;

	if (dfs_blocks(fs, path, 0, LARGEST, &b, NULL))
		return UINT64_MAX;
	end = b->count ? b->block[b->count - 1].offset + b->block[b->count - 1].length : 0;
	for (uint32_t i = 0; i < ledger->rotten_count; i++) {
		const struct rotten *r = &ledger->rotten[i];
		const struct dfs_block *k = block_of(f, b, r);
		const uint64_t at = k ? k->offset : end;

		if ((k || r->file == (uint32_t)(f - ledger->file)) && may_lose(f, k, r) &&
		    at < from)
			from = at;
	}
	dfs_blocks_free(b);
	return from;
}

/* ---- parity ---- */

struct parity {
	const char *path;
	const char *bad;
};

static bool group_rots(int64_t group)
{
	for (uint32_t i = 0; i < ledger->rotten_count; i++)
		if ((ledger->rotten[i].id & ~15ll) == group)
			return true;
	return false;
}

static void find(void *arg, const struct dfs_ec_finding *n)
{
	struct parity *p = (struct parity *)arg;

	if (n->fault == DFS_EC_UNIT_DIFFERS || n->fault == DFS_EC_GROUP_DIFFERS)
		wrong("unit %u of group %ld of %s is not what the others make of it", n->unit,
		      (long)n->group, p->path);
	else if (n->fault != DFS_EC_UNIT_CORRUPT || !group_rots(n->group))
		p->bad = "has a group with a unit that cannot be read";
}

/* Parity is what the data make of it, in each group of @f. */
static const char *look_at_parity(const struct file *f, const char *path)
{
	struct parity p = {.path = path};
	struct dfs_ec_summary sum;
	struct dfs_err err;

	if (!f->striped || may_be_damaged(f))
		return NULL;
	if (dfs_verify_ec(fs, path, find, &p, &sum, &err))
		return "cannot be verified";
	ledger->units += sum.units;
	return p.bad;
}

static const char *look_at_bytes(const struct file *f, const char *path)
{
	static uint8_t buf[LARGEST + 1];
	static char text[700];
	struct dfs_err err;
	const char *bad;
	size_t n;
	const int rc = read_all(path, buf, sizeof(buf), &n, &err);
	const uint64_t good = good_bytes(f, buf, n);

	if (good < n)
		wrong("byte %lu of %s is not its own", (unsigned long)good, path);
	if (n >= least(f) && n <= f->most && !rc) {
		bad = look_at_blocks(f, path) ?: look_at_parity(f, path);
		if (!bad)
			tell_blocks(f, path);
		return bad;
	}
	snprintf(text, sizeof(text), "has %zu bytes, of %lu flushed, %lu synced, %lu written%s%s",
		 n, (unsigned long)f->flushed, (unsigned long)f->synced, (unsigned long)f->most,
		 rc ? ": " : "", rc ? err.text : "");
	if (n >= rotten_from(f, path))
		return NOT_PROMISED;
	return n >= least(f) && may_be_damaged(f) && n <= f->most ? NOT_PROMISED : text;
}

static bool has_what_was_synced(const struct file *f, const char *path)
{
	static uint8_t buf[LARGEST + 1];
	struct dfs_err err;
	size_t n;

	(void)read_all(path, buf, sizeof(buf), &n, &err);
	return n >= f->synced && good_bytes(f, buf, n) == n;
}

static const char *look(struct file *f, uint32_t number, bool must)
{
	struct dfs_err err;
	char path[32];
	bool closed;
	int rc;

	name_of(number, path);
	rc = dfs_is_closed(fs, path, &closed, &err);
	if (f->may_vanish && f->namenode_crashes != ledger->namenode_crashes)
		must = false;
	if (rc == -ENOENT)
		return must ? "is not there" : NULL;
	if (!rc && closed)
		return look_at_bytes(f, path);
	if (now_ns() - f->asked > 60u * 1000000000ull) {
		f->asked = now_ns();
		(void)dfs_recover_lease(fs, path, &closed, &err);
	}
	/* Bytes behind the last sync that only machines had which lost their power, and the
	 * NameNode was started since: it cannot know whether another node has them, and waits for
	 * an administrator. */
	if (may_be_damaged(f) && f->starts != ledger->starts && has_what_was_synced(f, path))
		return NOT_PROMISED;
	return "is not closed";
}

static bool is_there(uint32_t number)
{
	struct dfs_stat st;
	char path[32];

	name_of(number, path);
	return dfs_stat(fs, path, &st, NULL) == 0;
}

static const char *look_at(struct file *f)
{
	if (f->state == NO_FILE)
		return NULL;
	/* after a rename without an answer: one of both names */
	if (f->may_name && is_there(f->may_name))
		return is_there(f->number) ? "has both names" : look(f, f->may_name, true);
	return look(f, f->number, f->state == IS_THERE);
}

/* Names that nobody may see any more. */
static void look_for_ghosts(void)
{
	const struct dfs_stat *st;
	struct dfs_list *list;
	struct dfs_err err;
	int rc = dfs_list_open(fs, "/f", &list, &err);

	if (rc) {
		wrong("/f cannot be listed: %s", err.text);
		return;
	}
	while ((rc = dfs_list_next(list, &st, &err)) > 0) {
		const uint32_t number = (uint32_t)atoi(st->name);
		uint32_t i = 0;

		while (i < FILES &&
		       (ledger->file[i].state == NO_FILE ||
			(ledger->file[i].number != number && ledger->file[i].may_name != number)))
			i++;
		if (i == FILES)
			wrong("/f/%u is there, and was deleted or never made", number);
	}
	if (rc < 0)
		wrong("/f cannot be listed to its end: %s", err.text);
	dfs_list_close(list);
}

/* A block of the file of that name, all of which was written, cannot be read from what is there. */
static bool has_lost(const struct file *f, uint32_t number)
{
	struct dfs_blocks *b;
	char path[32];
	bool lost = false;

	name_of(number, path);
	if (!number || dfs_blocks(fs, path, 0, LARGEST, &b, NULL))
		return false;
	for (size_t i = 0; i < b->count && !lost; i++) {
		const struct dfs_block *k = &b->block[i];
		const uint64_t cells = (k->length + CELL - 1) / CELL;
		const uint64_t need = !f->striped ? 1 : cells < DATA_UNITS ? cells : DATA_UNITS;
		const bool open =
			b->under_construction && i + 1 == b->count && b->file_length <= k->offset;

		lost = !open && (k->corrupt || k->count < need);
	}
	dfs_blocks_free(b);
	return lost;
}

/* What is lost keeps the NameNode in safe mode, and only an administrator, who has been told, ends
 * it. Without a loss it must have ended by itself. */
static void leave_safe_mode(void)
{
	struct dfs_err err;
	bool on, lost = false;

	if (dfs_safe_mode(fs, DFS_SAFE_MODE_GET, &on, &err) || !on)
		return;
	for (uint32_t i = 0; i < FILES && !lost; i++) {
		const struct file *f = &ledger->file[i];

		lost = f->state != NO_FILE && (has_lost(f, f->number) || has_lost(f, f->may_name));
	}
	if (!lost)
		wrong("nothing is lost, and the NameNode is in safe mode");
	else if (dfs_safe_mode(fs, DFS_SAFE_MODE_LEAVE, &on, &err))
		wrong("safe mode cannot be left: %s", err.text);
}

void check_all(void)
{
	const uint64_t began = now_ns(), until = began + PATIENCE_S * 1000000000ull;
	static bool done[FILES];
	bool lost = false;
	uint32_t left;

	do {
		left = 0;
		for (uint32_t i = 0; i < FILES && !ledger->wrong[0]; i++) {
			struct file *f = &ledger->file[i];
			const char *bad = done[i] ? NULL : look_at(f);
			const uint64_t now = now_ns();

			done[i] = !bad;
			left += bad != NULL;
			if (bad && getenv("DFS_SIM_VERBOSE"))
				fprintf(stderr, "%.3f /f/%u %s\n", (double)now / 1e9, f->number,
					bad);
			if (bad == NOT_PROMISED && now - began > LOST_AFTER_S * 1000000000ull) {
				done[i] = lost = true;
				tell_open(f);
			} else if (bad && now > until) {
				wrong("/f/%u %s, %d s after all is well again", f->number, bad,
				      PATIENCE_S);
			}
		}
		if (!left || lost)
			leave_safe_mode();
		if (left)
			pause_ms(10000);
	} while (left && !ledger->wrong[0]);
	look_for_ghosts();
}
