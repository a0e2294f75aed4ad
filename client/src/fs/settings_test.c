/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: Hadoop's keys mean what they mean in Hadoop, and a value that makes no sense
 * names its key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/fs/settings.h"

static int load(const char *kv, struct settings *s, struct err *err)
{
	struct conf *c = conf_new();
	int rc = kv ? conf_set_arg(c, kv, err) : 0;

	rc = rc ?: settings_load(c, s, err);
	conf_free(c);
	return rc;
}

static void defaults_are_hadoops(void **state)
{
	struct settings s;

	(void)state;
	assert_int_equal(load(NULL, &s, NULL), 0);
	assert_int_equal(s.rdma, RDMA_AUTO);
	assert_int_equal(s.crc_type, CRC_CRC32C);
	assert_int_equal(s.umask, 022);
	assert_int_equal(s.socket_timeout_ms, 60000);
	assert_int_equal(s.window_packets, 80);
	assert_int_equal(s.block_write_retries, 3);
	assert_int_equal(s.exclude_ms, 600000);
	assert_true(s.replace_enable && !s.replace_best_effort);
	assert_int_equal(s.replace_policy, REPLACE_DEFAULT);
	assert_true(s.drop_reads == HINT_NONE && s.drop_writes == HINT_NONE && !s.has_readahead);
	assert_true(!s.local.enabled && !s.local.skip_checksum);
	assert_int_equal(s.local.cache_size, 256);
	assert_int_equal(s.local.expiry_ms, 300000);
	assert_int_equal(s.local.disable_s, 600);
}

static void values_are_read(void **state)
{
	struct settings s;

	(void)state;
	assert_int_equal(load("dfs.client.rdma=require", &s, NULL), 0);
	assert_int_equal(s.rdma, RDMA_REQUIRE);
	assert_int_equal(load("dfs.checksum.type=CRC32", &s, NULL), 0);
	assert_int_equal(s.crc_type, CRC_CRC32);
	assert_int_equal(load("fs.permissions.umask-mode=077", &s, NULL), 0);
	assert_int_equal(s.umask, 077);
	assert_int_equal(load("fs.permissions.umask-mode=u=rwx,g=rx,o=", &s, NULL), 0);
	assert_int_equal(s.umask, 027);
	assert_int_equal(load("dfs.client.socket-timeout=5000", &s, NULL), 0);
	assert_int_equal(s.socket_timeout_ms, 5000);
	assert_int_equal(load("dfs.client.read.shortcircuit=true", &s, NULL), 0);
	assert_false(s.local.enabled); /* no path */
	assert_int_equal(load("dfs.client.read.shortcircuit.streams.cache.size=7", &s, NULL), 0);
	assert_int_equal(s.local.cache_size, 7);
	assert_int_equal(load("dfs.blocksize=64m", &s, NULL), 0);
	assert_int_equal(s.block_size, 64 << 20);
	assert_int_equal(load("dfs.client.cache.drop.behind.reads=true", &s, NULL), 0);
	assert_true(s.drop_reads == HINT_YES && s.drop_writes == HINT_NONE);
	assert_int_equal(load("dfs.client.cache.drop.behind.writes=false", &s, NULL), 0);
	assert_true(s.drop_reads == HINT_NONE && s.drop_writes == HINT_NO);
	assert_int_equal(load("dfs.client.cache.drop.behind.writes=", &s, NULL), 0);
	assert_int_equal(s.drop_writes, HINT_NONE);
	assert_int_equal(load("dfs.client.cache.readahead=4m", &s, NULL), 0);
	assert_true(s.has_readahead && s.readahead == 4 << 20);
}

static void bad_values_name_their_key(void **state)
{
	static const char *const bad[] = {
		"dfs.client.rdma=perhaps",
		"dfs.checksum.type=MD5",
		"fs.permissions.umask-mode=888",
		"fs.permissions.umask-mode=rwx",
		"dfs.client.socket-timeout=0",
		"dfs.client.write.max-packets-in-flight=many",
		"dfs.bytes-per-checksum=2m",
		"dfs.client.retry.policy.spec=10000",
		"dfs.client.retry.policy.spec=10000,6,x",
		"dfs.client.failover.max.attempts=1001",
		"dfs.client.cache.drop.behind.reads=perhaps",
		"dfs.client.cache.readahead=-1",
		"dfs.client.block.write.replace-datanode-on-failure.policy=SOMETIMES",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err err = ERR_INIT;
		struct settings s;
		char key[128];

		memcpy(key, bad[i], strcspn(bad[i], "=") + 1);
		key[strcspn(bad[i], "=")] = '\0';
		assert_int_equal(load(bad[i], &s, &err), -EINVAL);
		assert_non_null(strstr(err.text, key));
	}
}

static void a_packet_size_of_hadoop_holds_whole_chunks(void **state)
{
	(void)state;
	assert_int_equal(settings_packet_payload(65536, 512), 126 * 512); /* as the stock client */
	assert_int_equal(settings_packet_payload(1056801, 512), 1 << 20); /* our default */
	assert_int_equal(settings_packet_payload(0, 512), 512);
	assert_int_equal(settings_packet_payload(33, 512), 512);
	assert_true(settings_packet_payload(UINT64_MAX, 512) <= PACKET_BYTES_MAX);
	assert_int_equal(settings_packet_payload(UINT64_MAX, BPC_MAX) % BPC_MAX, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_hadoops),
		cmocka_unit_test(values_are_read),
		cmocka_unit_test(bad_values_name_their_key),
		cmocka_unit_test(a_packet_size_of_hadoop_holds_whole_chunks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
