/* SPDX-License-Identifier: Apache-2.0 */
/* On a real device: a peer writes to memory that is no slot, or reads it, only through a window
 * that lets it, within its bounds, by its own connection, and not after it was closed or revoked;
 * memory is registered before there is a connection; who may not lock it is told; a parent that
 * forks keeps it. */
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rdma/verbs_test_fixture.h"

#define LEN (4u * MiB)
#define AT (1u * MiB)
#define STRETCH 65536u

static uint8_t *mem;
static struct verbs_memory *memory;
static struct slot *src;
static bool destroyed;

static void gone(struct xconn *c)
{
	(void)c;
	destroyed = true;
	reactor_stop(reactor);
}

static bool is_clean(size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (mem[i])
			return false;
	return true;
}

static int push(struct xconn *from, struct xremote to, uint32_t len)
{
	struct iovec piece = {src->data, len};
	struct wop w;

	xconn_push(from, &piece, 1, to, wop(&w));
	return UNTIL(w.done) ? w.res : -ETIME;
}

static struct verbs_window *must_get(struct pair *p)
{
	struct verbs_window *w = verbs_window_get(memory, p->c);

	check(w, "a window is free");
	if (!w)
		exit(1);
	return w;
}

static int pull(struct xconn *to, struct xremote from, struct slot *slot, uint32_t len)
{
	struct wop w;

	xconn_pull(to, from, slot, 0, len, wop(&w));
	return UNTIL(w.done) ? w.res : -ETIME;
}

/* And once it is closed, not any more. */
static void is_read_through(struct side *client, struct side *server)
{
	struct pair p = pair_up(client, server);
	struct verbs_window *w = must_get(&p);
	struct slot *got = pool_get(server->pool, SLOT_64K, POOL_CTRL);
	const struct xremote from = verbs_window_open(p.c, w, mem + AT, STRETCH, VERBS_PEER_READS);
	struct wop closed;

	for (uint32_t i = 0; i < STRETCH; i++)
		mem[AT + i] = (uint8_t)(i * 7);
	check(tell(p.c, p.s) && pull(p.s, from, got, STRETCH) == (int)STRETCH &&
		      !memcmp(got->data, mem + AT, STRETCH),
	      "a peer reads through a window to read");
	verbs_window_close(p.c, w, wop(&closed));
	check(UNTIL(closed.done) && closed.res >= 0, "it is closed");
	check(pull(p.s, from, got, STRETCH) < 0, "and not when it is closed");
	verbs_window_put(w);
	slot_put(got);
	pair_close(&p, client, server);
}

static void lets_in_what_it_names(struct pair *p)
{
	struct verbs_window *w = must_get(p);
	struct wop closed;

	for (unsigned i = 0; i < 3; i++) { /* it is used again and again */
		const struct xremote to =
			verbs_window_open(p->c, w, mem + AT, STRETCH, VERBS_PEER_WRITES);

		memset(mem, 0, LEN);
		check(tell(p->c, p->s) && push(p->s, to, STRETCH) == (int)STRETCH &&
			      !memcmp(mem + AT, src->data, STRETCH) && is_clean(0, AT) &&
			      is_clean(AT + STRETCH, LEN),
		      "a peer writes through a window, and nowhere else");
		verbs_window_close(p->c, w, wop(&closed));
		check(UNTIL(closed.done) && closed.res >= 0, "it is closed");
	}
	verbs_window_put(w);
}

/* Its kernel (check_rkey() in rxe_resp.c) compares with the bounds of the MR, not of the window. */
static bool is_soft(const struct xconn *c)
{
	const struct vconn *v = (const struct vconn *)c;

	return !strncmp(ibv_get_device_name(v->dev->ctx->device), "rxe", 3);
}

/* What it was asked for before is done. */
static void control_has_turned(struct side *client)
{
	struct verbs_memory *m = NULL;
	struct err err = ERR_INIT;

	check(verbs_memory_new(client->v, &m, sizeof(m), &m, &err) == 0, "one more: %s", err.text);
	verbs_memory_free(m);
}

enum trick { BEYOND, BEFORE, CLOSED, REVOKED, OTHERS, READ_ONLY, TRICKS };
static const char *const trick_text[TRICKS] = {"beyond its end",        "before it",
					       "when it is closed",     "when it is revoked",
					       "by another connection", "through one to read"};

/* The connection of who tries it ends, and nothing is written. */
static void keeps_out(struct side *client, struct side *server, enum trick trick)
{
	struct pair p = pair_up(client, server), other = pair_up(client, server);
	struct verbs_window *w = must_get(&p);
	struct xremote to =
		verbs_window_open(p.c, w, mem + AT, STRETCH,
				  trick == READ_ONLY ? VERBS_PEER_READS : VERBS_PEER_WRITES);
	struct wop closed;
	bool good = tell(p.c, p.s);
	int pushed;

	memset(mem, 0, LEN);
	if (trick == BEYOND)
		to.addr += STRETCH / 2;
	else if (trick == BEFORE)
		to.addr -= 4096;
	if (trick == CLOSED) {
		verbs_window_close(p.c, w, wop(&closed));
		good &= UNTIL(closed.done) && closed.res >= 0;
	} else if (trick == REVOKED) {
		verbs_window_revoke(w);
		control_has_turned(client);
	}
	pushed = push(trick == OTHERS ? other.s : p.s, to, STRETCH);
	if (pushed == (int)STRETCH && (trick == BEYOND || trick == BEFORE) && is_soft(p.c)) {
		printf("SKIP: a write %s: soft RoCE does not look\n", trick_text[trick]);
		verbs_window_revoke(w);
		pair_close(&p, client, server);
		pair_close(&other, client, server);
		return;
	}
	good &= pushed < 0;
	turn_for_ms(50);
	/* within its bounds it may have written before it came to the end */
	good &= is_clean(0, AT) && is_clean(AT + STRETCH, LEN) &&
		(trick == BEYOND || is_clean(0, LEN));
	check(good, "a write %s is refused, and writes nothing there", trick_text[trick]);
	if (trick == CLOSED)
		verbs_window_put(w);
	else if (trick != REVOKED)
		verbs_window_revoke(w);
	destroyed = false;
	p.c->gone = gone;
	pair_close(&p, client, server);
	check(UNTIL(destroyed), "the end of the queue pair is told");
	pair_close(&other, client, server);
}

static unsigned take_all(struct pair *p, struct verbs_window *w[VERBS_MEMORY_WINDOWS + 1])
{
	unsigned n = 0;

	while (n <= VERBS_MEMORY_WINDOWS && (w[n] = verbs_window_get(memory, p->c)))
		n++;
	return n;
}

/* Those that were revoked, too: the control thread makes them anew. */
static void is_limited(struct pair *p)
{
	struct verbs_window *w[VERBS_MEMORY_WINDOWS + 1];
	const uint64_t end = clock_mono_ns() + PATIENCE_NS;
	unsigned n;

	while ((n = take_all(p, w)) < VERBS_MEMORY_WINDOWS && turn_until(end))
		while (n > 0)
			verbs_window_put(w[--n]);
	check(n == VERBS_MEMORY_WINDOWS, "all windows are there again (%u)", n);
	while (n > 0)
		verbs_window_put(w[--n]);
}

/* Root may lock all it wants, but for this. */
static int drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) < 0)
		return -1;
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	return (int)syscall(SYS_capset, &head, data);
}

/* Who registers is the control thread of this side, which begins with what this thread may. */
static void is_told_of_the_limit(void)
{
	struct verbs_memory *m = NULL;
	struct err err = ERR_INIT;
	struct rlimit before;
	struct side client;
	int rc;

	if (drop_ipc_lock() < 0 || getrlimit(RLIMIT_MEMLOCK, &before) < 0) {
		check(false, "a capability can be dropped");
		return;
	}
	client = side_new(false, 0);
	(void)setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){LEN / 2, before.rlim_max});
	rc = verbs_memory_new(client.v, mem, LEN, &m, &err);
	check(rc == -ENOMEM && strstr(err.text, "RLIMIT_MEMLOCK of 2097152") &&
		      strstr(err.text, "ulimit -l"),
	      "who may lock no more is told: %s", err.text);
	(void)setrlimit(RLIMIT_MEMLOCK, &before);
	side_free(&client, "the one that may not");
}

static pid_t fork_idle(int stop[2])
{
	pid_t pid;
	char byte;

	if (pipe(stop) < 0)
		exit(1);
	pid = fork();
	if (pid == 0) { /* only what is safe between fork and exec */
		(void)close(stop[1]);
		(void)!read(stop[0], &byte, 1);
		_exit(is_clean(0, LEN) ? 0 : 9);
	}
	return pid;
}

/* The child has a copy; what a peer writes is the parent's. */
static void stays_the_parents(struct pair *p)
{
	struct verbs_window *w = must_get(p);
	struct xremote to = verbs_window_open(p->c, w, mem + AT, STRETCH, VERBS_PEER_WRITES);
	const bool told = tell(p->c, p->s);
	struct wop closed;
	int stop[2], status = -1;
	pid_t pid;

	memset(mem, 0, LEN);
	pid = fork_idle(stop);
	memset(mem, 0, LEN); /* without care for pinned pages the parent would get the copy */
	check(told && push(p->s, to, STRETCH) == (int)STRETCH &&
		      !memcmp(mem + AT, src->data, STRETCH) && is_clean(0, AT) &&
		      is_clean(AT + STRETCH, LEN),
	      "after a fork a peer writes to the parent's memory");
	(void)close(stop[1]);
	pid = waitpid(pid, &status, 0);
	check(pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0,
	      "and not to the child's (%d)", status);
	(void)close(stop[0]);
	verbs_window_close(p->c, w, wop(&closed));
	check(UNTIL(closed.done) && closed.res >= 0, "it is closed");
	verbs_window_put(w);
}

static void refuses(struct side *client)
{
	struct verbs_memory *m = NULL;
	struct err err = ERR_INIT;
	void *hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(verbs_memory_new(client->v, hole, 8192, &m, &err) < 0 && !m && err.text[0],
	      "memory that nobody can write to is not registered: %s", err.text);
	munmap(hole, 8192);
	check(verbs_memory_new(client->v, mem, SIZE_MAX / 2, &m, &err) < 0 && !m && err.text[0],
	      "nor more than there is: %s", err.text);
}

int main(void)
{
	struct side client, server;
	struct err err = ERR_INIT;
	struct pair p;
	int rc = reactor_up();

	if (rc)
		return rc;
	sides_up(&client, &server);
	mem = aligned_alloc(4096, LEN);
	src = pool_get(server.pool, SLOT_64K, POOL_CTRL);
	memset(src->data, 0x5a, STRETCH);
	rc = verbs_memory_new(client.v, mem, LEN, &memory, &err);
	check(rc == 0, "memory is registered before there is a connection: %s", err.text);
	if (rc < 0)
		return 1;
	p = pair_up(&client, &server);
	lets_in_what_it_names(&p);
	stays_the_parents(&p);
	pair_close(&p, &client, &server);
	is_read_through(&client, &server);
	for (enum trick t = 0; t < TRICKS; t++)
		keeps_out(&client, &server, t);
	p = pair_up(&client, &server);
	is_limited(&p);
	verbs_memory_free(memory);
	rc = verbs_memory_new(client.v, mem, LEN, &memory, &err);
	check(rc == 0, "memory is registered beside a connection: %s", err.text);
	if (rc < 0)
		return 1;
	is_limited(&p);
	pair_close(&p, &client, &server);
	refuses(&client);
	verbs_memory_free(memory);
	is_told_of_the_limit();
	slot_put(src);
	free(mem);
	return sides_down(&client, &server);
}
