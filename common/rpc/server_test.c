/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a service sees exactly the calls that a well-behaved client makes, each is answered
 * once, in any order, from any thread. Recorded streams of the Java client are among them. */
#include <dirent.h>

#include "common/reactor/reactor_test_probe.h"
#include "common/rpc/server_test_fixture.h"

static void a_call_is_seen_with_its_user_and_answered(void **state)
{
	int fd = dial_open("alice");
	uint8_t *frame;
	struct rpc_response a;

	(void)state;
	put_call(fd, PROTO, "greet", 7);
	a = get_answer(fd, &frame);
	assert_int_equal(a.call_id, 7);
	assert_int_equal(a.header->clientid.len, 16);
	assert_memory_equal(a.header->clientid.data, client_id, 16);
	rpc_response_fini(&a);
	free(frame);
	expect_seen("alice:greet ");
	expect_end(fd);
}

static void bytes_may_arrive_one_by_one(void **state)
{
	uint8_t all[512], *p = NULL;
	size_t n = RPC_PREAMBLE_LEN, len;
	int fd = dial();
	struct rpc_request_args a = {.call_id = 1,
				     .client_id = client_id,
				     .client_id_len = 16,
				     .protocol = PROTO,
				     .method = "slow"};
	Hc__IpcConnectionContextProto m = HC__IPC_CONNECTION_CONTEXT_PROTO__INIT;

	(void)state;
	rpc_preamble_encode(all, RPC_AUTH_NONE);
	assert_int_equal(rpc_context_encode(client_id, 16, PROTO, "bob", "carol", &p, &len), 0);
	memcpy(all + n, p, len);
	n += len;
	free(p);
	assert_int_equal(rpc_request_encode(&a, &m, &p, &len), 0);
	memcpy(all + n, p, len);
	n += len;
	free(p);
	for (size_t i = 0; i < n; i++)
		put(fd, all + i, 1);
	expect_success(fd, 1);
	expect_end(fd);
}

static void answers_may_come_out_of_order_and_from_other_threads(void **state)
{
	int fd = dial_open("alice");

	(void)state;
	put_call(fd, PROTO, "hold", 1);
	put_call(fd, PROTO, "quick", 2);
	expect_success(fd, 2);
	put_call(fd, PROTO, "thread", 3);
	expect_error(fd, 3, RPC_ERROR, RPC_ERROR_APPLICATION, JEX_IO);
	put_call(fd, PROTO, "release", 4);
	expect_success(fd, 4);
	expect_success(fd, 1);
	expect_end(fd);
}

static void thousands_of_calls_at_once_are_all_answered(void **state)
{
	int fd = dial_open("alice");
	int sum = 0;

	(void)state;
	for (int i = 0; i < 3000; i++)
		put_call(fd, PROTO, "m", i);
	for (int i = 0; i < 3000; i++) {
		uint8_t *frame;
		struct rpc_response a = get_answer(fd, &frame);

		sum += a.call_id;
		rpc_response_fini(&a);
		free(frame);
	}
	assert_int_equal(sum, 3000 * 2999 / 2);
	expect_end(fd);
}

static void an_answer_to_a_connection_that_left_is_dropped(void **state)
{
	int fd = dial_open("alice"), fd2 = dial_open("bob");

	(void)state;
	put_call(fd, PROTO, "hold", 1);
	put_call(fd, PROTO, "quick", 2);
	expect_success(fd, 2);
	close(fd);
	put_call(fd2, PROTO, "release", 3);
	expect_success(fd2, 3);
	expect_end(fd2);
}

static void unknown_methods_and_protocols_leave_the_connection_open(void **state)
{
	int fd = dial_open("alice");

	(void)state;
	put_call(fd, PROTO, "nothing", 1);
	expect_error(fd, 1, RPC_ERROR, RPC_ERROR_NO_SUCH_METHOD, JEX_NO_SUCH_METHOD);
	put_call(fd, "no.such.Protocol", "x", 2);
	expect_error(fd, 2, RPC_ERROR, RPC_ERROR_NO_SUCH_PROTOCOL, JEX_NO_SUCH_PROTOCOL);
	put_call(fd, PROTO, "decode", 3); /* an empty message lacks a required field */
	expect_error(fd, 3, RPC_ERROR, RPC_FATAL_DESERIALIZING_REQUEST, JEX_RPC_SERVER);
	put_call(fd, PROTO, "fine", 4);
	expect_success(fd, 4);
	expect_end(fd);
}

static void a_ping_is_not_answered(void **state)
{
	int fd = dial_open("alice");
	uint8_t *p = NULL;
	size_t len;
	int rc = rpc_ping_encode(client_id, 16, &p, &len);

	(void)state;
	put_encoded(fd, rc, p, len);
	put_call(fd, PROTO, "x", 1);
	expect_success(fd, 1);
	expect_end(fd);
}

static void sasl_negotiation_falls_back_to_simple(void **state)
{
	Hc__RpcSaslProto m = HC__RPC_SASL_PROTO__INIT;
	uint8_t *p = NULL, *frame;
	struct rpc_response a;
	int fd = dial(), rc;
	size_t len;

	(void)state;
	put_preamble(fd, RPC_AUTH_SASL);
	m.state = HC__RPC_SASL_PROTO__SASL_STATE__NEGOTIATE;
	rc = rpc_sasl_request_encode(&m, &p, &len);
	put_encoded(fd, rc, p, len);
	a = get_answer(fd, &frame);
	assert_int_equal(a.call_id, RPC_CALL_SASL);
	assert_int_equal(a.status, RPC_SUCCESS);
	rpc_response_fini(&a);
	free(frame);
	put_context(fd, "dora");
	put_call(fd, PROTO, "x", 1);
	expect_success(fd, 1);
	expect_seen("dora:x ");
	expect_end(fd);
}

static void other_versions_and_authentications_are_told_so(void **state)
{
	int fd = dial();

	(void)state;
	put(fd, "hrpc\x08\x00\x00", 7);
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_VERSION_MISMATCH, JEX_VERSION_MISMATCH);
	expect_end(fd);
	fd = dial();
	put(fd, "ssh-2.0", 7);
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_VERSION_MISMATCH, JEX_VERSION_MISMATCH);
	expect_end(fd);
	fd = dial();
	put(fd, "hrpc\x09\x00\x51", 7);
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL);
	expect_end(fd);
}

static void a_browser_gets_a_line_of_text(void **state)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	char buf[512] = "";
	int fd = dial();

	(void)state;
	put(fd, request, sizeof(request) - 1);
	(void)shutdown(fd, SHUT_WR);
	get(fd, buf, sizeof(buf) - 1);
	assert_memory_equal(buf, "HTTP/1.1 404", 12);
	assert_non_null(strstr(buf, "Hadoop IPC port"));
	close(fd);
}

/* ---- streams of the Java client ---- */

static size_t unhex(const char *s, uint8_t *out)
{
	size_t n = 0;
	unsigned int b;

	for (; sscanf(s, "%2x", &b) == 1; s += 2)
		out[n++] = (uint8_t)b;
	return n;
}

/* What the stream holds, by the client's side of the codec: "user:method " of each call. */
static uint32_t list_calls(const uint8_t *p, size_t len, char *text, size_t size)
{
	char user[64] = "";
	uint32_t calls = 0, n;

	for (size_t at = RPC_PREAMBLE_LEN, used = 0; at + 4 <= len; at += n + 4) {
		struct rpc_request q;
		enum rpc_detail detail;

		assert_int_equal(rpc_frame_len(p + at, RPC_FRAME_MAX, &n), 0);
		if (at + 4 + n > len)
			break;
		assert_int_equal(rpc_request_decode(p + at + 4, n, &q, &detail), 0);
		if (q.call_id == RPC_CALL_CONTEXT) {
			Hc__IpcConnectionContextProto *c = hc__ipc_connection_context_proto__unpack(
				NULL, q.message_len, q.message);

			snprintf(user, sizeof(user), "%s", c->userinfo->effectiveuser);
			hc__ipc_connection_context_proto__free_unpacked(c, NULL);
		} else if (q.call_id >= 0) {
			used += (size_t)snprintf(text + used, size - used, "%s:%s ", user,
						 q.method->methodname);
			calls++;
		}
		rpc_request_fini(&q);
	}
	return calls;
}

static size_t load_stream(const char *path, uint8_t *out, size_t size)
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0, n = 0;

	assert_non_null(f);
	while (getline(&line, &cap, f) > 0) {
		if (line[0] != '>')
			continue;
		assert_true(n + strlen(line) / 2 < size);
		n += unhex(line + 2, out + n);
	}
	free(line);
	fclose(f);
	return n;
}

static uint32_t play(const char *path)
{
	static uint8_t stream[4 << 20];
	static char want[sizeof(seen)];
	size_t len = load_stream(path, stream, sizeof(stream));
	uint32_t calls = list_calls(stream, len, want, sizeof(want));
	int fd = dial();

	forget_seen();
	put(fd, stream, len);
	for (uint32_t i = 0; i < calls; i++) {
		uint8_t *frame;
		struct rpc_response a = get_answer(fd, &frame);

		assert_int_equal(a.status, RPC_ERROR);
		assert_string_equal(a.header->exceptionclassname, JEX_UNSUPPORTED);
		rpc_response_fini(&a);
		free(frame);
	}
	expect_end(fd);
	expect_seen(want);
	return calls;
}

static void every_recorded_call_of_a_java_client_is_seen_and_answered(void **state)
{
	uint32_t calls = 0, streams = 0;
	char dir[512], path[1024];
	struct dirent *e, *f;
	DIR *d, *sub;

	(void)state;
	d = opendir(VECTORS_DIR "/client");
	assert_non_null(d);
	while ((e = readdir(d))) {
		snprintf(dir, sizeof(dir), VECTORS_DIR "/client/%s", e->d_name);
		sub = e->d_name[0] == '.' ? NULL : opendir(dir);
		while (sub && (f = readdir(sub))) {
			if (strncmp(f->d_name, "nn-", 3) && strncmp(f->d_name, "ipc", 3))
				continue;
			snprintf(path, sizeof(path), "%s/%s", dir, f->d_name);
			calls += play(path);
			streams++;
		}
		if (sub)
			closedir(sub);
	}
	closedir(d);
	print_message("%u calls in %u streams\n", calls, streams);
	assert_true(calls > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_call_is_seen_with_its_user_and_answered),
		T(bytes_may_arrive_one_by_one),
		T(answers_may_come_out_of_order_and_from_other_threads),
		T(thousands_of_calls_at_once_are_all_answered),
		T(an_answer_to_a_connection_that_left_is_dropped),
		T(unknown_methods_and_protocols_leave_the_connection_open),
		T(a_ping_is_not_answered),
		T(sasl_negotiation_falls_back_to_simple),
		T(other_versions_and_authentications_are_told_so),
		T(a_browser_gets_a_line_of_text),
		T(every_recorded_call_of_a_java_client_is_seen_and_answered),
	};

	return reactor_test_probe() ?: cmocka_run_group_tests(tests, NULL, NULL);
}
