/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas on the simulated disks: one of them rots, and at the end all must have their bytes. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/simulator/director.h"

#define KNOWN 16u /* bytes tell which file they are of */

struct replica {
	const char *path;
	int64_t id;
	uint64_t generation; /* 0: it has no meta file */
};

typedef void replica_fn(const struct replica *r, void *arg);

/* "blk_ID", and "blk_ID_GENERATION.meta". */
static uint64_t generation_of(struct dirent *const *list, int n, const char *name)
{
	const size_t len = strlen(name);

	for (int i = 0; i < n; i++)
		if (!strncmp(list[i]->d_name, name, len) && list[i]->d_name[len] == '_')
			return strtoull(list[i]->d_name + len + 1, NULL, 10);
	return 0;
}

/* Calls @fn for each file with the bytes of a replica below @dir, in the order of their names. */
static void walk_replicas(const char *dir, replica_fn *fn, void *arg)
{
	struct dirent **list;
	const int n = scandir(dir, &list, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		const char *name = list[i]->d_name;
		char path[PATH_MAX];

		if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
			continue;
		if (list[i]->d_type == DT_DIR && name[0] != '.')
			walk_replicas(path, fn, arg);
		else if (!strncmp(name, "blk_", 4) && !strstr(name, ".meta"))
			fn(&(struct replica){.path = path,
					     .id = strtoll(name + 4, NULL, 10),
					     .generation = generation_of(list, n, name)},
			   arg);
	}
	for (int i = 0; i < n; i++)
		free(list[i]);
	if (n >= 0)
		free(list);
}

static void walk_machine(const struct history *h, uint32_t machine, replica_fn *fn, void *arg)
{
	char dir[100];

	snprintf(dir, sizeof(dir), "%s/disks/m%u", h->dir, machine);
	walk_replicas(dir, fn, arg);
}

/* ---- rot ---- */

struct chosen {
	uint64_t seen;
	int64_t id;
	uint64_t generation;
	uint32_t others, unfinished;
	char path[PATH_MAX];
};

static void choose(const struct replica *r, void *arg)
{
	struct chosen *c = (struct chosen *)arg;

	if (chance(++c->seen))
		return;
	c->id = r->id;
	c->generation = r->generation;
	snprintf(c->path, sizeof(c->path), "%s", r->path);
}

static bool begins_in(const struct file *f, const uint8_t *bytes, size_t n)
{
	for (uint64_t at = 0; at < f->most; at++) {
		size_t i = 0;

		while (i < n && bytes[i] == file_byte(f, at + i))
			i++;
		if (i == n)
			return true;
	}
	return false;
}

/* Another one of the chosen one's block, or of its group. */
static void count_other(const struct replica *r, void *arg)
{
	struct chosen *c = (struct chosen *)arg;

	if (r->generation != c->generation ||
	    (c->id < 0 ? (r->id & ~15ll) != (c->id & ~15ll) : r->id != c->id))
		return;
	if (strstr(r->path, "/finalized/"))
		c->others++;
	else
		c->unfinished++;
}

/* The file that the replica is of, as far as it is there: a recovery may take the block away. (A
 * unit of parity has no bytes of a file: its id has to do.) */
static uint32_t file_of(const struct history *h, int fd)
{
	uint8_t bytes[KNOWN];
	const ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
	uint32_t i = n == KNOWN ? 0 : FILES;

	while (i < FILES &&
	       !(h->ledger->file[i].stretches && begins_in(&h->ledger->file[i], bytes, (size_t)n)))
		i++;
	return i;
}

static void mark(struct history *h, int fd, struct chosen *c)
{
	for (uint32_t m = 1; m <= NODES; m++)
		if (m != h->rotten)
			walk_machine(h, m, count_other, c);
	if (h->ledger->rotten_count < ROTTEN)
		h->ledger->rotten[h->ledger->rotten_count++] =
			(struct rotten){.id = c->id,
					.generation = c->generation,
					.others = c->others,
					.alone = !c->others && !c->unfinished,
					.file = file_of(h, fd)};
}

bool replicas_rot(struct history *h, char *text, size_t size)
{
	struct chosen c = {0};
	struct stat st;
	uint8_t byte;
	bool done = false;
	int fd;

	walk_machine(h, h->rotten, choose, &c);
	fd = c.seen ? open(c.path, O_RDWR | O_CLOEXEC) : -1;
	if (fd >= 0 && !fstat(fd, &st) && st.st_size) {
		const off_t at = (off_t)chance((uint64_t)st.st_size);

		mark(h, fd, &c);
		done = pread(fd, &byte, 1, at) == 1 && (byte ^= 1, pwrite(fd, &byte, 1, at)) == 1;
		snprintf(text, size, "byte %ld of %s changes", (long)at, strrchr(c.path, '/') + 1);
	}
	if (fd >= 0)
		close(fd);
	return done;
}

/* ---- the end ---- */

#define FEW 8 /* blocks: the replicas of fewer may all have rotted */

struct compare {
	struct history *h;
	uint32_t machine;
	uint64_t replicas;
};

static const struct block *block_of(const struct ledger *l, const struct replica *r)
{
	for (uint32_t i = 0; i < l->block_count; i++)
		if (l->block[i].id == r->id && l->block[i].generation == r->generation)
			return &l->block[i];
	return NULL;
}

static bool has_rotted(const struct compare *c, int64_t id)
{
	for (uint32_t i = 0; i < c->h->ledger->rotten_count; i++)
		if (c->machine == c->h->rotten && c->h->ledger->rotten[i].id == id)
			return true;
	return false;
}

/* What was not synced may have changed under a finalised name, too, when the power went. */
static bool is_kept(const struct ledger *l, const struct block *b)
{
	const struct file *f = &l->file[b->file];

	return b->offset + b->length <= f->synced || f->crashes == l->crashes;
}

/* A finalised replica with the generation of its block has the block's bytes, all of them. */
static void compare(const struct replica *r, void *arg)
{
	static uint8_t buf[LARGEST + 1];
	struct compare *c = (struct compare *)arg;
	const struct block *b = block_of(c->h->ledger, r);
	const struct file *f = b ? &c->h->ledger->file[b->file] : NULL;
	uint64_t i = 0;
	ssize_t n;
	int fd;

	if (!b || !strstr(r->path, "/finalized/") || has_rotted(c, r->id) ||
	    !is_kept(c->h->ledger, b))
		return;
	fd = open(r->path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : pread(fd, buf, sizeof(buf), 0);
	if (fd >= 0)
		close(fd);
	if (n < 0 || (uint64_t)n != b->length)
		history_wrong(c->h, "blk_%ld_%lu of /f/%u has %ld bytes on m%u, %lu elsewhere",
			      (long)r->id, (unsigned long)r->generation, f->number, (long)n,
			      c->machine, (unsigned long)b->length);
	while (n > 0 && i < (uint64_t)n && buf[i] == file_byte(f, b->offset + i))
		i++;
	if (n > 0 && i < (uint64_t)n)
		history_wrong(c->h, "byte %lu of blk_%ld_%lu of /f/%u is not its own on m%u",
			      (unsigned long)i, (long)r->id, (unsigned long)r->generation,
			      f->number, c->machine);
	c->replicas++;
}

/* A node that has all of a last block tells the NameNode so, and the next recovery closes the
 * file. A power cut may have left nothing of it. */
static void judge_open(const struct replica *r, void *arg)
{
	struct compare *c = (struct compare *)arg;
	const struct ledger *l = c->h->ledger;
	struct stat st;

	if (!strstr(r->path, "/finalized/") || has_rotted(c, r->id) || stat(r->path, &st) ||
	    !st.st_size)
		return;
	for (uint32_t i = 0; i < l->open_count; i++)
		if (l->open_block[i].id == r->id && l->open_block[i].generation <= r->generation)
			history_wrong(c->h,
				      "/f/%u stays open, and m%u has blk_%ld_%lu of it, finalised",
				      l->file[l->open_block[i].file].number, c->machine,
				      (long)r->id, (unsigned long)r->generation);
}

void replicas_compare(struct history *h)
{
	struct compare c = {.h = h};
	uint32_t due = 0;

	for (c.machine = 1; c.machine <= NODES; c.machine++) {
		walk_machine(h, c.machine, compare, &c);
		walk_machine(h, c.machine, judge_open, &c);
	}
	h->replicas = c.replicas;
	for (uint32_t i = 0; i < h->ledger->block_count; i++)
		due += is_kept(h->ledger, &h->ledger->block[i]);
	if (due >= FEW && !c.replicas)
		history_wrong(h, "no replica of %u blocks was found on a disk", due);
}
