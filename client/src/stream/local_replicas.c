/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/stream/local_replicas.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/src/fs/fs.h"
#include "client/src/stream/stream.h"
#include "common/base/clock.h"
#include "common/base/domain.h"
#include "common/base/log.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

/* with a node that has the connection, or dfs.client.socket-timeout if that is less */
#define PATIENCE_NS (10 * NS_PER_S)
#define ADDRS_NS (60 * NS_PER_S) /* how long the addresses of this machine are taken for known */
/* nobody listens: a restart, perhaps; asking costs next to nothing */
#define AWAY_NS (1 * NS_PER_S)
#define REFUSED_NS (1 * NS_PER_S) /* a block that is being written, or not there */
#define MISFIT_NS (60 * NS_PER_S) /* a block whose files were not what they should be */
#define REPLY_MAX 65536u
#define META_VERSION 1

/* ---- the cache ---- */

void local_init(struct local_cache *c)
{
	pthread_mutex_init(&c->lock, NULL);
	list_init(&c->used);
	for (int i = 0; i < LOCAL_BUCKETS; i++)
		list_init(&c->bucket[i]);
	node_table_init(&c->closed);
}

static void replica_free(struct local_replica *rep)
{
	if (rep->fd >= 0)
		(void)close(rep->fd);
	if (rep->fd_meta >= 0)
		(void)close(rep->fd_meta);
	free(rep);
}

static void put_locked(struct local_replica *rep)
{
	if (--rep->refs == 0)
		replica_free(rep);
}

static void drop_locked(struct local_cache *c, struct local_replica *rep)
{
	if (!rep->cached)
		return;
	rep->cached = false;
	list_del(&rep->link);
	list_del(&rep->chain);
	c->count--;
	put_locked(rep);
}

void local_fini(struct local_cache *c)
{
	while (!list_empty(&c->used))
		drop_locked(c, container_of(c->used.next, struct local_replica, link));
	node_table_fini(&c->closed);
	pthread_mutex_destroy(&c->lock);
}

static struct list *bucket_of(struct local_cache *c, int64_t id)
{
	return &c->bucket[(uint64_t)id % LOCAL_BUCKETS];
}

static struct local_replica *find_locked(struct local_cache *c, const struct local_replica *like)
{
	list_for_each (l, bucket_of(c, like->key.id)) {
		struct local_replica *rep = container_of(l, struct local_replica, chain);

		if (rep->key.id == like->key.id && rep->key.gs == like->key.gs &&
		    strcmp(rep->key.node, like->key.node) == 0 &&
		    strcmp(rep->key.pool, like->key.pool) == 0)
			return rep;
	}
	return NULL;
}

static void use_locked(struct local_cache *c, struct local_replica *rep, uint64_t now)
{
	rep->refs++;
	rep->used_ns = now;
	list_del(&rep->link);
	list_add_tail(&c->used, &rep->link);
}

static bool is_expired(const struct dfs *fs, const struct local_replica *rep, uint64_t now)
{
	return clock_between(rep->used_ns, now) > fs->set.local.expiry_ms * NS_PER_MS;
}

static void reap_locked(struct dfs *fs, uint64_t now)
{
	struct local_cache *c = &fs->local;

	while (!list_empty(&c->used)) {
		struct local_replica *rep = container_of(c->used.next, struct local_replica, link);

		if (c->count <= fs->set.local.cache_size && !is_expired(fs, rep, now))
			break;
		drop_locked(c, rep);
	}
}

bool local_reap(struct dfs *fs)
{
	bool any;

	pthread_mutex_lock(&fs->local.lock);
	reap_locked(fs, clock_mono_ns());
	any = fs->local.count > 0;
	pthread_mutex_unlock(&fs->local.lock);
	return any;
}

/* Takes @rep, with one reference of the caller; gives what is in the cache then. */
static struct local_replica *add(struct dfs *fs, struct local_replica *rep)
{
	struct local_cache *c = &fs->local;
	const uint64_t now = clock_mono_ns();
	struct local_replica *there;

	if (fs->set.local.cache_size == 0)
		return rep;
	pthread_mutex_lock(&c->lock);
	there = find_locked(c, rep);
	if (there) { /* somebody else was faster */
		use_locked(c, there, now);
		put_locked(rep);
		rep = there;
	} else {
		rep->refs++;
		rep->cached = true;
		rep->used_ns = now;
		list_add_tail(&c->used, &rep->link);
		list_add_tail(bucket_of(c, rep->key.id), &rep->chain);
		c->count++;
		reap_locked(fs, now);
	}
	pthread_mutex_unlock(&c->lock);
	housekeeper_start(fs); /* without a thread they are closed by the next reader */
	return rep;
}

static struct local_replica *find(struct dfs *fs, const struct local_replica *like)
{
	struct local_cache *c = &fs->local;
	struct local_replica *rep;

	pthread_mutex_lock(&c->lock);
	rep = find_locked(c, like);
	if (rep)
		use_locked(c, rep, clock_mono_ns());
	pthread_mutex_unlock(&c->lock);
	return rep;
}

void local_put(struct dfs *fs, struct local_replica *rep)
{
	pthread_mutex_lock(&fs->local.lock);
	put_locked(rep);
	pthread_mutex_unlock(&fs->local.lock);
}

/* ---- who is not asked ---- */

static const char *block_name(const struct local_replica *rep, char buf[NET_TEXT_MAX])
{
	snprintf(buf, NET_TEXT_MAX, "%lld_%llu %.30s", (long long)rep->key.id,
		 (unsigned long long)rep->key.gs, rep->key.node);
	return buf;
}

static void close_block(struct dfs *fs, const struct local_replica *rep, uint64_t ns,
			const char *why)
{
	char name[NET_TEXT_MAX];

	node_table_put(&fs->local.closed, block_name(rep, name), why, clock_mono_ns() + ns);
}

static bool is_closed(struct dfs *fs, const struct local_replica *rep)
{
	const uint64_t now = clock_mono_ns();
	char name[NET_TEXT_MAX];

	return node_table_get(&fs->local.closed, rep->key.node, now, NULL, 0) ||
	       node_table_get(&fs->local.closed, block_name(rep, name), now, NULL, 0);
}

void local_give_up(struct dfs *fs, const struct local_replica *rep, const char *why)
{
	struct local_replica *there;

	log_debug("op=local block=%lld node=%s: not read locally: %s", (long long)rep->key.id,
		  rep->key.node, why);
	close_block(fs, rep, MISFIT_NS, why);
	pthread_mutex_lock(&fs->local.lock);
	there = find_locked(&fs->local, rep);
	if (there)
		drop_locked(&fs->local, there);
	pthread_mutex_unlock(&fs->local.lock);
}

/* ---- this machine ---- */

static void read_addrs_locked(struct local_cache *c)
{
	struct ifaddrs *all = NULL;

	c->addr_count = 0;
	c->addr_ns = clock_mono_ns();
	if (getifaddrs(&all) < 0)
		return;
	for (const struct ifaddrs *i = all; i && c->addr_count < LOCAL_ADDRS_MAX; i = i->ifa_next) {
		struct net_addr a = {.len = sizeof(struct sockaddr_in6)};

		if (!i->ifa_addr ||
		    (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		memcpy(&a.sa, i->ifa_addr,
		       i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
							 : sizeof(struct sockaddr_in6));
		net_ip(&a, c->addr[c->addr_count++]);
	}
	freeifaddrs(all);
}

/* As Hadoop judges: loopback, or an address of one of our interfaces. */
static bool is_this_machine(struct local_cache *c, const char *ip)
{
	bool found = strncmp(ip, "127.", 4) == 0 || strcmp(ip, "::1") == 0;

	if (found)
		return true;
	pthread_mutex_lock(&c->lock);
	if (!c->addr_ns || clock_mono_ns() - c->addr_ns > ADDRS_NS)
		read_addrs_locked(c);
	for (uint32_t i = 0; !found && i < c->addr_count; i++)
		found = strcmp(c->addr[i], ip) == 0;
	pthread_mutex_unlock(&c->lock);
	return found;
}

/* ---- asking the node ---- */

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		const uint64_t now = clock_mono_ns();
		struct pollfd p = {.fd = fd, .events = events};
		int rc = ret_errno(poll(
			&p, 1, now < deadline_ns ? (int)((deadline_ns - now) / NS_PER_MS) + 1 : 0));

		if (rc != -EINTR)
			return rc > 0 ? 0 : rc < 0 ? rc : -ETIMEDOUT;
	}
}

/* Receive (POLLIN) or send (POLLOUT) exactly so many bytes: of what is received, the next ones may
 * have descriptors with them. */
static int move_all(int fd, short way, uint8_t *buf, size_t len, uint64_t deadline_ns)
{
	while (len > 0) {
		const ssize_t n = way == POLLIN ? recv(fd, buf, len, MSG_DONTWAIT)
						: send(fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		int rc = n == 0 ? -ECONNRESET : n > 0 || errno == EINTR ? 0 : neg_errno();

		if (rc == -EAGAIN)
			rc = wait_for(fd, way, deadline_ns);
		if (rc < 0)
			return rc;
		if (n > 0) {
			buf += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int recv_reply(int fd, uint64_t deadline_ns, Hd__BlockOpResponseProto **ret)
{
	uint32_t prefix = 0;
	size_t have = 0;
	ssize_t need = 1;
	uint8_t len[8], *buf;
	int rc;

	/* byte by byte: the length, and with its last byte where the message begins */
	while (!prefix) {
		rc = have < sizeof(len) ? move_all(fd, POLLIN, len + have, 1, deadline_ns)
					: -EPROTO;
		if (rc < 0)
			return rc;
		need = dt_delim_need(len, ++have, REPLY_MAX, &prefix);
		if (need < 0)
			return (int)need;
	}
	buf = malloc((size_t)need);
	if (!buf)
		return -ENOMEM;
	rc = move_all(fd, POLLIN, buf, (size_t)need - prefix, deadline_ns);
	rc = rc
		     ?: pb_unpack(&hd__block_op_response_proto__descriptor, buf,
				  (size_t)need - prefix, (void *)ret);
	free(buf);
	return rc;
}

/* The files as the node passes them, and a receipt where it waits for one. */
static int recv_files(int sock, uint64_t deadline_ns, struct local_replica *rep)
{
	int fds[DOMAIN_FDS_MAX], n = 0, rc;
	uint8_t byte;

	while ((rc = domain_recv_fds(sock, &byte, fds, &n)) == 0) {
		rc = wait_for(sock, POLLIN, deadline_ns);
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return rc;
	rep->fd = n > 0 ? fds[0] : -1;
	rep->fd_meta = n > 1 ? fds[1] : -1;
	if (byte == HD__SHORT_CIRCUIT_FD_RESPONSE__USE_RECEIPT_VERIFICATION)
		rc = move_all(sock, POLLOUT, &(uint8_t){0}, 1, deadline_ns);
	else
		rc = 0;
	return n == 2 ? rc : -EPROTO;
}

/* Somebody else's files are looked at before they are read: a FIFO would hold us, a header lead
 * astray. */
static int check_files(struct local_replica *rep)
{
	struct stat data, meta;
	uint8_t h[META_HEADER_LEN];

	if (fstat(rep->fd, &data) < 0 || fstat(rep->fd_meta, &meta) < 0)
		return neg_errno();
	if (!S_ISREG(data.st_mode) || !S_ISREG(meta.st_mode))
		return -EPROTO;
	if (pread(rep->fd_meta, h, sizeof(h), 0) != sizeof(h))
		return -EBADMSG;
	rep->crc_type = (enum crc_type)h[2];
	rep->bpc = (uint32_t)h[3] << 24 | (uint32_t)h[4] << 16 | (uint32_t)h[5] << 8 | h[6];
	rep->length = (uint64_t)data.st_size;
	if (h[0] != 0 || h[1] != META_VERSION || rep->bpc == 0 || rep->bpc > BPC_MAX ||
	    (h[2] != CRC_NULL && h[2] != CRC_CRC32 && h[2] != CRC_CRC32C))
		return -EBADMSG;
	return 0;
}

static int send_request(int fd, const Hd__LocatedBlockProto *lb, uint64_t deadline_ns)
{
	Hd__OpRequestShortCircuitAccessProto op = HD__OP_REQUEST_SHORT_CIRCUIT_ACCESS_PROTO__INIT;
	Hd__BaseHeaderProto header = HD__BASE_HEADER_PROTO__INIT;
	uint8_t *buf;
	size_t len;
	int rc;

	header.block = lb->b;
	header.token = lb->blocktoken;
	op.header = &header;
	op.maxversion = META_VERSION;
	op.has_supportsreceiptverification = op.supportsreceiptverification = 1;
	rc = dt_op_encode(DT_REQUEST_SHORT_CIRCUIT_FDS, &op.base, &buf, &len);
	if (rc < 0)
		return rc;
	rc = move_all(fd, POLLOUT, buf, len, deadline_ns);
	free(buf);
	return rc;
}

/* 0 and *@ret_block: the node said no, to this block alone or to all. */
static int ask_files(struct dfs *fs, int fd, const Hd__LocatedBlockProto *lb,
		     struct local_replica *rep, bool *ret_block, bool *ret_no)
{
	const uint64_t timeout = stream_timeout_ns(fs, 0),
		       deadline = clock_mono_ns() + (timeout < PATIENCE_NS ? timeout : PATIENCE_NS);
	Hd__BlockOpResponseProto *m = NULL;
	int rc = send_request(fd, lb, deadline);

	rc = rc ?: recv_reply(fd, deadline, &m);
	if (rc < 0)
		return rc;
	*ret_no = m->status != HD__STATUS__SUCCESS;
	/* a token that has expired is found out again by who reads otherwise, and renewed there */
	*ret_block =
		m->status == HD__STATUS__ERROR_ACCESS_TOKEN ||
		(m->status == HD__STATUS__ERROR_UNSUPPORTED && m->has_shortcircuitaccessversion);
	if (*ret_no && m->message)
		log_debug("op=local node=%s block=%lld: %.100s", rep->key.node,
			  (long long)rep->key.id, m->message);
	pb_free(m);
	if (*ret_no)
		return 0;
	rc = recv_files(fd, deadline, rep);
	return rc ?: check_files(rep);
}

static uint64_t pause_after(const struct dfs *fs, int rc)
{
	if (rc == -ECONNREFUSED || rc == -ENOENT || rc == -EAGAIN || rc == -ECONNRESET)
		return AWAY_NS;
	return fs->set.local.disable_s * NS_PER_S;
}

/* Fills @rep in. False, and it is known for a while, that it is not to be had. */
static bool fetch(struct dfs *fs, const struct read_setup *r, struct local_replica *rep)
{
	const uint32_t port = r->lb->locs[r->node]->id->xferport;
	bool of_block = false, no = false;
	char path[DOMAIN_PATH_MAX];
	int rc, fd;

	rc = port > UINT16_MAX ? -EINVAL
			       : domain_path(fs->set.local.path, (uint16_t)port, path, NULL);
	fd = rc < 0 ? rc : domain_connect(path, NULL);
	rc = fd < 0 ? fd : ask_files(fs, fd, r->lb, rep, &of_block, &no);
	if (fd >= 0)
		(void)close(fd);
	if (rc == 0 && !no)
		return true;
	if (no && of_block)
		close_block(fs, rep, REFUSED_NS, "refused");
	else if (rc == -EBADMSG)
		close_block(fs, rep, MISFIT_NS, "its meta file");
	else
		node_table_put(&fs->local.closed, rep->key.node, no ? "refused" : err_name(rc),
			       clock_mono_ns() + (no ? fs->set.local.disable_s * NS_PER_S
						     : pause_after(fs, rc)));
	if (rc < 0)
		log_debug("op=local node=%s socket=%s: %s", rep->key.node, path, err_name(rc));
	return false;
}

static struct local_replica *fetch_new(struct dfs *fs, const struct read_setup *r,
				       const struct local_replica *like)
{
	struct local_replica *rep = malloc(sizeof(*rep));

	if (!rep)
		return NULL;
	*rep = *like;
	rep->refs = 1;
	list_init(&rep->link);
	list_init(&rep->chain);
	if (fetch(fs, r, rep))
		return add(fs, rep);
	replica_free(rep);
	return NULL;
}

struct local_replica *local_get(struct dfs *fs, const struct read_setup *r)
{
	const Hd__DatanodeIDProto *id = r->lb->locs[r->node]->id;
	const Hd__ExtendedBlockProto *b = r->lb->b;
	struct local_replica like = {.fd = -1,
				     .fd_meta = -1,
				     .key = {.id = (int64_t)b->blockid, .gs = b->generationstamp}};
	struct local_replica *rep;

	/* what was given away says nothing of a cut: the node does, in a read */
	if (r->gs && r->gs != b->generationstamp)
		return NULL;
	if (!fs->set.local.enabled || strlen(b->poolid) >= sizeof(like.key.pool))
		return NULL;
	snprintf(like.key.pool, sizeof(like.key.pool), "%s", b->poolid);
	node_text(id, like.key.node);
	rep = find(fs, &like);
	if (!rep && is_this_machine(&fs->local, id->ipaddr) && !is_closed(fs, &like))
		rep = fetch_new(fs, r, &like);
	if (rep && (r->offset > rep->length || r->len > rep->length - r->offset)) {
		local_give_up(fs, rep, "it is shorter than the NameNode says");
		local_put(fs, rep);
		rep = NULL;
	}
	return rep;
}
