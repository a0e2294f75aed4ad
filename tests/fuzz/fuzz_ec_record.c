/* SPDX-License-Identifier: Apache-2.0 */
/* What a NameNode reads of erasure coding from its disk when it starts: @data is a row of {which
 * table, length of the value (be16), value}: policies, directories that have one, files. What
 * decodes goes where a start puts it. */
#include <endian.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/cursor.h"
#include "common/base/log.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/namespace/inode.h"
#include "tests/fuzz/fuzz.h"

#define FILES_MAX 16
#define FIRST_ID 20000

enum { TABLE_POLICIES, TABLE_DIRECTORIES, TABLE_FILES, TABLES };

static const struct ec_rules rules = {
	.dflt = EC_DEFAULT_POLICY, .cell_max = EC_CELL_MAX_ADD, .may_add = true, .run = 1};
static char dir[64];
static struct db *db;

static void clean_up(void)
{
	char cmd[128];

	db_close(db);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	(void)!system(cmd);
}

static void make(void)
{
	const struct db_format f = {"CID-fuzz", "root", "supergroup", false};

	log_init("fuzz", LOG_ERROR);
	snprintf(dir, sizeof(dir), "%s/fuzz-ec-record-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	MUST(mkdtemp(dir) && !db_format(dir, &f, NULL) && !db_open(dir, &db, NULL));
	atexit(clean_up);
}

/* Returns how many records of files there are, from FIRST_ID on. */
static uint64_t put_all(struct txn *t, struct rd *r)
{
	uint64_t files = 0;

	while (rd_left(r) > 3) {
		const uint8_t table = rd_u8(r) % TABLES;
		const uint16_t len = rd_be16(r);
		const size_t n = len < rd_left(r) ? len : rd_left(r);
		const uint8_t *v = rd_bytes(r, n);
		const uint64_t key = htobe64(table == TABLE_FILES ? FIRST_ID + files : INODE_ROOT);

		if (!n)
			continue;
		if (table == TABLE_POLICIES)
			/* the key: mostly the id in the row */
			MUST(!txn_put(t, db->ecpol, v, 1, v, n));
		else if (table == TABLE_DIRECTORIES)
			MUST(!txn_put(t, db->ecdir, &key, sizeof(key), v, n));
		else if (files < FILES_MAX) {
			MUST(!txn_put(t, db->inodes, &key, sizeof(key), v, n));
			files++;
		}
	}
	return files;
}

static void use_policies(struct txn *t, struct arena *a)
{
	struct ecpol all[ECPOL_MAX], e;
	const struct ec_policy *p;
	struct inode *root;
	const char *text;
	char name[EC_NAME_MAX];
	size_t n;

	if (!ecpol_list(t, &rules, all, &n)) {
		MUST(n >= 5 && n <= ECPOL_MAX && !ecpol_enabled_text(t, &rules, a, &text));
		for (size_t i = 0; i < n; i++) {
			MUST(all[i].p.k && all[i].p.m && all[i].p.k + all[i].p.m <= EC_UNITS_MAX &&
			     all[i].p.id <= EC_ID_LAST);
			MUST(!ecpol_find(t, &rules, all[i].p.name, &e));
			MUST(strlen(ecpol_text(a, &all[i].p)));
		}
	}
	MUST(!inode_get(t, INODE_ROOT, a, &root));
	if (!ecdir_of(t, root, a, &p) && p)
		MUST(!ecdir_name(t, root, a, name) && !strcmp(name, p->name));
}

static void use_block(struct blocks *bs, const struct inode *n, const struct inode_block *b,
		      bool open)
{
	const enum blk_state state = open ? BLK_OPEN : BLK_COMPLETE;
	struct blk *k;

	if (blocks_find(bs, b->b.id))
		return; /* two files with one block are not what a decoder can see */
	k = n->ec ? blocks_add_group(bs, &b->b, n->id, n->ec, state)
		  : blocks_add(bs, &b->b, n->id, n->repl, state);
	MUST((blk_ec(k) != NULL) == (n->ec != NULL) && blocks_find(bs, b->b.id) == k);
	(void)blk_wanted(bs, k);
	MUST(!blk_live(k) && !blk_readable(k));
}

static void use_file(struct txn *t, struct arena *a, struct blocks *bs, uint64_t id)
{
	const struct ec_policy *p;
	struct inode *n;

	if (inode_get(t, id, a, &n))
		return;
	(void)inode_space(n);
	(void)inode_block_max(n);
	if (n->type == INODE_FILE) {
		MUST(!ecdir_of(t, n, a, &p) && p == n->ec);
		for (uint32_t i = 0; i < n->nblocks; i++)
			use_block(bs, n, &n->blocks[i], inode_is_open(n) && i + 1 == n->nblocks);
	}
	MUST(!inode_put(t, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rd r = rd_init(data, size);
	struct arena a = {0};
	struct blocks bs;
	struct txn t;
	uint64_t files;

	if (!db)
		make();
	MUST(!txn_write_begin(db, &t));
	files = put_all(&t, &r);
	use_policies(&t, &a);
	blocks_init(&bs, 1, 1);
	for (uint64_t i = 0; i < files; i++)
		use_file(&t, &a, &bs, FIRST_ID + i);
	blocks_fini(&bs);
	txn_write_abort(&t);
	arena_free(&a);
	return 0;
}
