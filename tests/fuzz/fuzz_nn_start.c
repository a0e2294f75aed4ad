/* SPDX-License-Identifier: Apache-2.0 */
/* What a NameNode finds when it starts after a crash: a checkpoint that counts, and the records of
 * its journal. @data is a row of changes: a byte that says what, and of which table; length of the
 * key (u8) and of the value (be16), key, value; small numbers stand for keys that are there. They
 * are records of the journal with right checksums, applied to a good checkpoint, so that any table
 * may hold any value. Either the start is refused with a sentence, or the namespace can be read and
 * changed. (A spoilt data.mdb or checkpoint.mdb is the target `namespace`: both go by
 * db_check_file() before LMDB, which believes every page, opens them.) */
#include <endian.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/conf.h"
#include "common/base/crc.h"
#include "common/base/cursor.h"
#include "common/base/log.h"
#include "namenode-shim/db/checkpoint_internal.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/retry_cache.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/test_db.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/nn_file.h"

#define RECORD_MAGIC 0x44464a31u
#define RECORD_HEAD 24
#define JOURNAL_MAX (1u << 20)
#define TABLES_MAX 16
#define OPS_MAX 64
#define IDS 10 /* from INODE_ROOT on; the namespace has some of them */

static struct test_db d;
static struct conf *conf;
static uint8_t *image; /* of the checkpoint */
static size_t image_len;
static uint64_t image_seq;

static void path_of(char path[PATH_LEN], const char *name)
{
	snprintf(path, PATH_LEN, "%s/current/%s", d.dir, name);
}

static void put_file(const char *name, const void *p, size_t len)
{
	char path[PATH_LEN];
	FILE *f;

	path_of(path, name);
	f = fopen(path, "we");
	MUST(f && fwrite(p, 1, len, f) == len && !fclose(f));
}

static void clean_up(void)
{
	char cmd[128];

	conf_free(conf);
	users_free(d.users);
	arena_free(&d.a);
	free(image);
	snprintf(cmd, sizeof(cmd), "rm -r %s", d.dir);
	(void)!system(cmd);
}

static void make(void)
{
	const struct db_format f = {"CID-fuzz", "root", "supergroup", false};
	char path[PATH_LEN];
	struct stat st;
	struct ns *n;
	FILE *file;

	log_init("fuzz", LOG_ERROR);
	snprintf(d.dir, sizeof(d.dir), "%s/fuzz-nn-start-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	MUST(mkdtemp(d.dir) && !db_format(d.dir, &f, NULL));
	d.users = users_new("supergroup", "");
	test_db_reopen(&d);
	n = test_begin(&d, "root");
	MUST(!ns_mkdirs(n, "/d/e", 0777, NULL, NS_MKDIRS_PARENTS));
	add_file(n, "/d/f", false);
	add_file(n, "/d/open", true);
	MUST(!test_commit(&d));
	db_close(d.db);
	path_of(path, "data.mdb");
	MUST(!checkpoint_seq_of(path, &image_seq));
	file = fopen(path, "re");
	MUST(file && !fstat(fileno(file), &st));
	image_len = (size_t)st.st_size;
	image = malloc(image_len);
	MUST(image && fread(image, 1, image_len, file) == image_len);
	(void)fclose(file);
	conf = conf_new();
	conf_set(conf, "fs.defaultFS", "hdfs://127.0.0.1:0");
	conf_set(conf, "dfs.shim.journal", "false");
	conf_set(conf, "dfs.namenode.name.dir", d.dir);
	atexit(clean_up);
}

/* ---- the journal ---- */

static void put_key(struct wr *w, const uint8_t *key, size_t klen)
{
	if (klen == 1) /* of an inode, and what begins with it */
		wr_be64(w, INODE_ROOT + key[0] % IDS);
	else
		wr_bytes(w, key, klen);
}

/* False: no more. */
static bool put_op(struct rd *in, struct wr *w)
{
	const uint8_t what = rd_u8(in);
	const size_t klen = rd_u8(in), vlen = rd_be16(in);
	const uint8_t *key = rd_bytes(in, klen), *val;

	if (in->bad || !klen || !rd_left(in))
		return false;
	val = in->p;
	in->p += vlen < rd_left(in) ? vlen : rd_left(in);
	wr_u8(w, what & 0x80 ? OP_DEL : OP_PUT);
	wr_u8(w, what & 0x7f & (TABLES_MAX - 1));
	wr_be16(w, klen == 1 ? 8 : (uint16_t)klen);
	wr_be32(w, what & 0x80 ? 0 : (uint32_t)(in->p - val));
	put_key(w, key, klen);
	if (!(what & 0x80))
		wr_bytes(w, val, (size_t)(in->p - val));
	return true;
}

static void put_word(uint8_t *at, uint32_t v)
{
	v = htobe32(v);
	memcpy(at, &v, 4);
}

/* One record of all changes, as journal.c reads it. */
static size_t make_journal(struct rd *in, uint8_t *out)
{
	struct wr w = wr_init(out + RECORD_HEAD, JOURNAL_MAX - RECORD_HEAD - 8);
	uint32_t crc, len;

	for (int i = 0; i < OPS_MAX && put_op(in, &w); i++)
		;
	len = (uint32_t)(w.p - out) - RECORD_HEAD;
	if (w.bad || !len)
		return 0;
	put_word(out, RECORD_MAGIC);
	put_word(out + 8, (uint32_t)((image_seq + 1) >> 32));
	put_word(out + 12, (uint32_t)(image_seq + 1));
	put_word(out + 16, len);
	put_word(out + 20, 1);
	memset(out + RECORD_HEAD + len, 0, 8);
	crc = crc_compute(CRC_CRC32C, out + 8, 16);
	put_word(out + 4, crc_extend(CRC_CRC32C, crc, out + RECORD_HEAD, len));
	return RECORD_HEAD + ((size_t)len + 7) / 8 * 8;
}

/* ---- the start ---- */

static void read_tree(struct nn *nn)
{
	struct arena a = {0};
	struct exception_info x = {.a = &a};
	struct effect_list effects = {.last = &effects.first};
	struct ns n = {.t = &nn->reader,
		       .a = &a,
		       .x = &x,
		       .effects = &effects,
		       .users = nn->users,
		       .user = "root",
		       .host = "127.0.0.1",
		       .enforce = true,
		       .limits = &nn->set.limits};
	static const char *const paths[] = {
		"/", "/d", "/d/f", "/d/open", "/d/e", "/d/x", "/.reserved/.inodes/16388"};
	struct ns_path walk;

	MUST(!txn_read_begin(&nn->reader));
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		struct ns_summing *state = NULL;
		struct ns_summary sum;

		(void)ns_find(&n, paths[i], &walk);
		(void)ns_summarize(&n, paths[i], "", false, &state, &sum);
		ns_summing_free(state);
	}
	txn_read_end(&nn->reader);
	arena_free(&a);
}

static void change_tree(struct nn *nn)
{
	struct test_db w = {.db = nn->db, .users = nn->users};
	struct ns *n = test_begin(&w, "root");
	bool gone;

	n->limits = &nn->set.limits;
	(void)ns_mkdirs(n, "/d/new", 0755, NULL, NS_MKDIRS_PARENTS);
	(void)ns_set_perm(n, "/d/f", 0600);
	(void)ns_set_times(n, "/d/open", 1, 1);
	(void)ns_rename(n, "/d/f", "/d/e/g", &gone);
	(void)ns_delete(n, "/d/open", true, &gone);
	(void)retry_cache_purge(n->t, UINT64_MAX);
	if (!w.t.failed)
		(void)txn_write_commit(&w.t);
	else
		txn_write_abort(&w.t);
	arena_free(&w.a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t journal[JOURNAL_MAX];
	struct rd in = rd_init(data, size);
	struct settings set = {0};
	struct err err = ERR_INIT;
	struct nn *nn;
	char name[64];
	size_t len;

	if (!image)
		make();
	len = make_journal(&in, journal);
	if (!len)
		return 0;
	put_file("data.mdb", "", 0); /* the machine died: it does not count */
	put_file(CHECKPOINT, image, image_len);
	put_file(MARK, "", 0);
	snprintf(name, sizeof(name), "journal.%llu", (unsigned long long)image_seq + 1);
	put_file(name, journal, len);
	MUST(!settings_load(conf, &set, &err));
	if (nn_new(&set, &nn, &err) < 0) {
		MUST(err.text[0]);
		return 0;
	}
	read_tree(nn);
	change_tree(nn);
	nn_free(nn);
	return 0;
}
