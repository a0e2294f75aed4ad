/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a namespace, changed by the input: a row of {offset, 4 bytes; what comes there, 1
 * length byte before it}. It is refused, or every record of it can be read and the namespace
 * changed. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/inode.h"
#include "tests/fuzz/fuzz.h"

#define FILES 1500

static char dir[64], path[128];
static uint8_t *good, *changed;
static size_t len;

static void fill(struct db *db)
{
	static uint8_t large[9000];
	struct txn t;

	for (int i = 0; i < FILES; i++) {
		char name[64];
		struct inode n = {
			.type = INODE_FILE, .parent = INODE_ROOT, .perm = 0644, .name = name};

		if (i % 100 == 0)
			MUST(!txn_write_begin(db, &t));
		n.owner = n.group = n.client = n.client_host = "x";
		n.id = inode_new_id(&t);
		snprintf(name, sizeof(name), "file-%d", i);
		MUST(!inode_put(&t, &n) && !dirent_put(&t, INODE_ROOT, name, n.id));
		if (i % 100 == 0)
			MUST(!txn_put(&t, db->retry, name, strlen(name), large, sizeof(large)));
		if (i % 7 == 6)
			MUST(!inode_del(&t, &n) && !dirent_del(&t, INODE_ROOT, name));
		if (i % 100 == 99)
			MUST(!txn_write_commit(&t));
	}
}

static void clean_up(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	(void)!system(cmd);
	free(good);
	free(changed);
}

static void make(void)
{
	const struct db_format f = {"CID-fuzz", "root", "supergroup", false};
	struct db *db = NULL;
	struct stat st;
	int fd;

	log_init("fuzz", LOG_ERROR);
	snprintf(dir, sizeof(dir), "%s/fuzz-namespace-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	MUST(mkdtemp(dir) && !db_format(dir, &f, NULL) && !db_open(dir, &db, NULL));
	atexit(clean_up);
	fill(db);
	db_close(db);
	snprintf(path, sizeof(path), "%s/current/data.mdb", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	MUST(fd >= 0 && !fstat(fd, &st));
	len = (size_t)st.st_size;
	good = malloc(len);
	changed = malloc(len);
	MUST(good && changed && read(fd, good, len) == (ssize_t)len);
	close(fd);
}

static void change(const uint8_t *data, size_t size)
{
	memcpy(changed, good, len);
	while (size > 5) {
		const size_t at =
			(data[0] | data[1] << 8 | data[2] << 16 | (size_t)data[3] << 24) % len;
		size_t n = data[4];

		data += 5;
		size -= 5;
		n = n < size ? n : size;
		n = n < len - at ? n : len - at;
		memcpy(changed + at, data, n);
		data += n;
		size -= n;
	}
}

static void use(struct db *db)
{
	const MDB_dbi tables[] = {db->meta, db->inodes, db->dirents, db->retry};
	struct txn t;
	MDB_val k, v;

	MUST(!txn_write_begin(db, &t));
	for (int i = 0; i < 4; i++) {
		MDB_cursor *c;

		MUST(!mdb_cursor_open(t.t, tables[i], &c));
		for (int n = 0; !mdb_cursor_get(c, &k, &v, MDB_NEXT); n++)
			if (n % 5 == 4)
				(void)mdb_cursor_del(c, 0);
		mdb_cursor_close(c);
	}
	for (uint8_t i = 0; i < 100; i++)
		(void)txn_put(&t, db->retry, &i, 1, good, 10 * i);
	(void)txn_write_commit(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct db *db = NULL;
	int fd;

	if (!good)
		make();
	if (size < 6)
		return 0;
	change(data, size);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	MUST(fd >= 0 && write(fd, changed, len) == (ssize_t)len);
	close(fd);
	if (db_open(dir, &db, NULL) < 0)
		return 0;
	use(db);
	db_close(db);
	return 0;
}
