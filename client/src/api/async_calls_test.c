/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a file that was made and cannot be written goes again, and no other file that has
 * its path by then. Where the server is known to be a NameNode it is named by its inode, and its
 * path is not looked at; else it goes by its path, if it has that still.
 * The NameNode and its queue are fakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/fs/requests.h"
#include "common/rpc/queue.h"
#include "common/wire/pb.h"

#define MADE 7u

static uint64_t at_path;  /* inode of the file that has the path by now; 0: none */
static char deleted[200]; /* by this path; "": nothing was */
static unsigned stats;    /* so often the path was looked at */
static struct {
	void *answer;
	rpc_done_fn fn; /* NULL: none */
	void *arg;
} asked;

static void *copy(const void *m)
{
	uint8_t *buf;
	size_t len;
	void *ret;

	assert_int_equal(pb_pack(m, &buf, &len), 0);
	assert_int_equal(pb_unpack(((const ProtobufCMessage *)m)->descriptor, buf, len, &ret), 0);
	free(buf);
	return ret;
}

static void *answer(const char *method, const ProtobufCMessage *req)
{
	Hd__HdfsFileStatusProto st = HD__HDFS_FILE_STATUS_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;
	Hd__CreateResponseProto made = HD__CREATE_RESPONSE_PROTO__INIT;
	Hd__GetFileInfoResponseProto info = HD__GET_FILE_INFO_RESPONSE_PROTO__INIT;
	Hd__DeleteResponseProto gone = HD__DELETE_RESPONSE_PROTO__INIT;

	st.filetype = HD__HDFS_FILE_STATUS_PROTO__FILE_TYPE__IS_FILE;
	st.permission = &perm;
	st.path.data = (uint8_t *)"";
	st.owner = st.group = (char *)"nobody";
	st.has_fileid = 1;
	if (strcmp(method, "create") == 0) {
		st.fileid = MADE;
		made.fs = &st;
		return copy(&made);
	}
	if (strcmp(method, "getFileInfo") == 0) {
		stats++;
		st.fileid = at_path;
		info.fs = at_path ? &st : NULL;
		return copy(&info);
	}
	assert_string_equal(method, "delete");
	strncpy(deleted, ((const Hd__DeleteRequestProto *)(const void *)req)->src,
		sizeof(deleted) - 1);
	gone.result = true;
	return copy(&gone);
}

int __wrap_rpc_queue_submit(struct rpc_queue *q, const char *method, const ProtobufCMessage *req,
			    const ProtobufCMessageDescriptor *resp_desc, rpc_done_fn fn, void *arg);
int __wrap_rpc_queue_submit(struct rpc_queue *q, const char *method, const ProtobufCMessage *req,
			    const ProtobufCMessageDescriptor *resp_desc, rpc_done_fn fn, void *arg)
{
	(void)q;
	(void)resp_desc;
	assert_null(asked.fn);
	asked.answer = answer(method, req);
	asked.fn = fn;
	asked.arg = arg;
	return 0;
}

static void run(void)
{
	while (asked.fn) {
		const rpc_done_fn fn = asked.fn;
		struct err err = ERR_INIT;
		struct rpc_done d = {.resp = asked.answer, .err = &err};

		asked.fn = NULL;
		assert_int_equal(fn(asked.arg, &d), 0);
		pb_free(d.resp);
	}
}

int __wrap_nn_queue_new(struct dfs *fs, struct rpc_queue **ret, struct err *err);
int __wrap_nn_queue_new(struct dfs *fs, struct rpc_queue **ret, struct err *err)
{
	(void)fs;
	(void)err;
	*ret = NULL;
	return 0;
}

void __wrap_rpc_queue_add_beside(struct rpc_queue *q, struct rpc_beside *b);
void __wrap_rpc_queue_add_beside(struct rpc_queue *q, struct rpc_beside *b)
{
	(void)q;
	(void)b;
}

/* Its policy is none that we know, say. */
int __wrap_create_answer(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
			 Hd__CreateResponseProto *m, struct dfs_file **ret, struct err *err);
int __wrap_create_answer(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
			 Hd__CreateResponseProto *m, struct dfs_file **ret, struct err *err)
{
	(void)fs;
	(void)path;
	(void)o;
	(void)m;
	(void)ret;
	return err_set(err, -ENOTSUP, "it cannot be written");
}

static void on_made(void *arg, int rc, const struct dfs_err *err)
{
	assert_int_equal(rc, -ENOTSUP);
	assert_non_null(strstr(err->text, "it cannot be written"));
	++*(unsigned *)arg;
}

static void what_cannot_be_written_goes_and_nothing_else(void **state)
{
	static const struct {
		int is_router; /* as of struct dfs */
		uint64_t at_path;
		const char *deleted;
		unsigned stats;
	} rows[] = {
		{-1, MADE, "/.reserved/.inodes/7", 0},
		{-1, MADE + 1, "/.reserved/.inodes/7", 0},
		{-1, 0, "/.reserved/.inodes/7", 0}, /* it was renamed */
		{1, MADE, "/f", 1},
		{1, MADE + 1, "", 1},
		{1, 0, "", 1},
		{0, MADE, "/f", 1},
		{0, MADE + 1, "", 1},
		{0, 0, "", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct dfs fs = {.is_router = rows[i].is_router,
				 .defaults = {.block_size = 1 << 20, .bytes_per_checksum = 512}};
		struct dfs_queue *q;
		struct dfs_file *f;
		unsigned calls = 0;
		const struct dfs_then then = {.done = on_made, .arg = &calls};

		at_path = rows[i].at_path;
		deleted[0] = '\0';
		stats = 0;
		assert_int_equal(dfs_queue_open(&fs, &q, NULL), 0);
		assert_int_equal(dfs_begin_create(q, "/f", NULL, &f, &then, NULL), 0);
		run();
		assert_int_equal(calls, 1);
		assert_string_equal(deleted, rows[i].deleted);
		assert_int_equal(stats, rows[i].stats);
		dfs_queue_close(q);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_be_written_goes_and_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
