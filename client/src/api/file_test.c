/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: an IOException of the NameNode is told apart by its sentence, never by the path
 * in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "client/src/fs/requests.h"
#include "common/wire/rpc_frame.h"

static int of_create(const char *text)
{
	struct err err = ERR_INIT;
	const int rc = err_set(&err, -EREMOTEIO, "%s", text);

	snprintf(err.remote, sizeof(err.remote), "%s", JEX_IO);
	return create_errno("/f", rc, NULL, &err);
}

static void what_is_outside_the_limits_is_told_by_its_sentence(void **state)
{
	static const char *const sentences[] = {
		/* ours */
		"Requested replication factor of 600 exceeds maximum of 512 for /f, clientName=127.0.0.1",
		"Requested replication factor of 0 is less than the required minimum of 1 for /f",
		"Specified block size 10 is less than configured minimum value "
		"dfs.namenode.fs-limits.min-block-size=1048576",
		"Block size 281474976710655 is too large for RS-6-3-1024k",
		/* Apache's */
		"create /f: Requested replication factor of 600 exceeds maximum of 512 for /f",
		"Specified block size is less than configured minimum value "
		"(dfs.namenode.fs-limits.min-block-size): 10 < 1048576",
		"Specified block size (1024) is less than the cell size (1048576) of the erasure coding "
		"policy (RS-6-3-1024k).",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sentences) / sizeof(sentences[0]); i++)
		assert_int_equal(of_create(sentences[i]), -EINVAL);
}

static void a_path_says_nothing_of_the_cause(void **state)
{
	static const char *const sentences[] = {
		"the journal of /data/replication/x cannot be written",
		"File /Replication/x could only be written to 0 of the 1 minReplication nodes.",
		"/the block size/x is not there any more",
		"the journal cannot be written while /a/Block size 1 is too large for x is there",
		"Block size of /x is not known",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sentences) / sizeof(sentences[0]); i++)
		assert_int_equal(of_create(sentences[i]), -EREMOTEIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_outside_the_limits_is_told_by_its_sentence),
		cmocka_unit_test(a_path_says_nothing_of_the_cause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
