/* SPDX-License-Identifier: Apache-2.0 */
/* A whole answer to READ_BLOCK, as a client reads it: @data is offset and length of the question
 * (be16 each), then what the data node sends. */
#include <sys/socket.h>
#include <unistd.h>

#include "client/src/stream/stream.h"
#include "common/base/cursor.h"
#include "tests/fuzz/fuzz.h"

static void read_all(struct dfs *fs, struct read_setup *r)
{
	uint8_t buf[3000];
	struct rstream *s;
	uint64_t left = r->len;
	ssize_t n = 1;

	if (stream_tcp.open_read(fs, r, &s, NULL) < 0)
		return;
	while (left > 0 && n > 0) {
		n = stream_tcp.read(s, buf, left < sizeof(buf) ? left : sizeof(buf), NULL);
		MUST(n != 0 && (n < 0 || (uint64_t)n <= left));
		left -= n > 0 ? (uint64_t)n : 0;
	}
	stream_tcp.close_read(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct dfs fs = {.set = {.socket_timeout_ms = 1000, .connect_timeout_ms = 100}};
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct rd in = rd_init(data, size);
	struct read_setup r = {.lb = &lb, .offset = rd_be16(&in), .len = rd_be16(&in)};
	struct sock *s;
	int pair[2];

	if (in.bad || r.len == 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return 0;
	s = calloc(1, sizeof(*s));
	MUST(s);
	s->fd = pair[0];
	memcpy(s->peer, "127.0.0.1:1", 12);
	sock_cache_init(&fs.socks);
	sock_cache_put(&fs.socks, s);
	(void)!send(pair[1], in.p, rd_left(&in), MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)shutdown(pair[1], SHUT_WR);
	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = b.poolid = token.kind = token.service = "";
	id.xferport = 1;
	info.id = &id;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = 1;
	lb.locs = &locs;
	read_all(&fs, &r);
	sock_cache_fini(&fs.socks);
	(void)close(pair[1]);
	return 0;
}
