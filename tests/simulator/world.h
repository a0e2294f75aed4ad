/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * world - machines, processes, threads, sockets and disks of a simulated cluster
 *
 * Idea: the programs are real and run as processes of their own. A preloaded library
 * (interpose_*.c) answers what they ask of the kernel from this memory, which all of them share:
 * threads, locks, time, sockets, io_uring. One thread of all processes runs at a time (it has the
 * baton); which one is next, and how long everything takes, comes from one sequence of random
 * numbers. So a seed is a history. Nobody else touches the memory while a thread has the baton, and
 * there are no locks.
 *
 * A process that is killed is parked at a call of ours, like all that do not run. So the memory is
 * consistent.
 *
 * Units: nanoseconds since the world began. Errors: -errno.
 */
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define WORLD_AT ((void *)0x200000000000)
#define WORLD_BYTES (1ull << 30) /* of address space; pages come as they are used */
#define WORLD_ENV "DFS_SIM_WORLD"
#define PROC_ENV "DFS_SIM_PROC"

#define MAX_MACHINES 16
#define MAX_PROCS 512
#define MAX_THREADS 4096
#define MAX_SOCKS 16384
#define MAX_EVENTS 32768

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull
#define FOREVER UINT64_MAX
#define BORN (1790000000ull * SEC) /* what the wall clock says when a world begins */

enum thread_state {
	THREAD_FREE,
	THREAD_READY, /* runs, or may */
	THREAD_ASLEEP,
	THREAD_DEAD,
};

struct thread {
	enum thread_state state;
	uint16_t proc;
	bool timed_out;      /* why it woke */
	uint32_t go;         /* futex: has the baton */
	uint32_t place;      /* in world.ready, or in world.asleep */
	const void *channel; /* an address in the process that it sleeps for; NULL: none */
	uint64_t until;      /* and until when */
	char name[16];
};

/* Threads that want to know when something changes. Woken, they look again. */
struct waiters {
	uint32_t count, size;
	uint16_t *thread;
};

struct proc {
	bool alive, leaving;
	bool term; /* SIGTERM is pending */
	uint16_t machine;
	uint16_t main;
	uint32_t life; /* of its machine */
	pid_t pid;
	int status; /* what it left with */
	char name[24];
	struct waiters ended, signalled;
};

struct machine {
	bool up;
	uint32_t life; /* times it was started */
	uint32_t ip;   /* in host order */
	uint64_t wall; /* what its clock is ahead by */
	uint32_t slow; /* its disk takes so many times as long; 0: does not answer */
	bool ordered;  /* its disk has ext4 with a journal that keeps the order; else another one */
	bool full;     /* its disk */
	uint32_t errors; /* 1 in so many calls to its disk fails; 0: none */
	struct waiters disk;
};

enum sock_kind {
	SOCK_FREE,
	SOCK_EVENTFD,
	SOCK_UDP,
	SOCK_NEW,
	SOCK_LISTENS,
	SOCK_CONNECTS,
	SOCK_OPEN,
	SOCK_FAILED, /* .error says why; told once */
};

struct segment {
	struct segment *next;
	uint64_t at; /* arrives */
	uint32_t len, taken;
	bool fin;
	uint8_t data[];
};

struct end {
	uint32_t ip;
	uint16_t port;
};

/* An end of a connection, a listener, an eventfd. A reference for each descriptor. */
struct sock {
	enum sock_kind kind;
	uint16_t proc, machine;
	uint32_t life; /* of the machine */
	uint32_t refs, id;
	struct end here, there;
	uint32_t peer; /* the other end; 0: none */
	int error;
	bool reuse;     /* SO_REUSEPORT: others may listen, too */
	bool eof, shut; /* nothing more comes; we have said so */
	bool orphan;    /* no descriptor left; what was sent still goes */
	/* what comes: sent by the peer, first .arrived of it are here */
	struct segment *first, *last;
	uint32_t unread, arrived, window;
	uint64_t last_at;
	uint64_t count; /* eventfd */
	uint32_t backlog[64], backlog_count;
	struct waiters waiters;
};

enum event_kind {
	EVENT_ARRIVES,  /* a segment, or the end of the stream, at socket .a */
	EVENT_CONNECTS, /* the request of socket .a meets its listener */
	EVENT_GIVES_UP, /* socket .a, connection .b, has waited too long */
	EVENT_RESET,    /* socket .a, connection .b, hears that the other end is gone */
};

struct event {
	uint64_t at, order;
	enum event_kind kind;
	uint32_t a, b;
};

struct dfile;   /* disk.c */
struct disk_op; /* disk.c */

/* Changes of names that are not on the disk yet. */
struct disk_log {
	struct disk_op *op;
	uint32_t count, size;
};

#define FILE_BUCKETS 16384

struct world {
	uint64_t random, now, steps, order;
	uint64_t soonest; /* no sleeper is to wake before */
	uint32_t current;
	uint32_t ready_count, asleep_count;
	uint16_t ready[MAX_THREADS], asleep[MAX_THREADS];
	uint32_t thread_count, proc_count, sock_count, sock_last_id;
	uint32_t machine_count;
	uint16_t next_port;
	uint32_t event_count;
	uint32_t looks;   /* at the clock, since anything else was done */
	uint32_t preempt; /* one in so many calls another thread goes on */
	bool cut[MAX_MACHINES][MAX_MACHINES];
	uint64_t latency[MAX_MACHINES][MAX_MACHINES]; /* from, to */
	char dir[64];
	struct machine machine[MAX_MACHINES];
	struct proc proc[MAX_PROCS];
	struct thread thread[MAX_THREADS];
	struct sock sock[MAX_SOCKS]; /* [0] is nobody */
	struct event event[MAX_EVENTS];
	uint32_t sock_free[MAX_SOCKS], sock_free_count;
	struct disk_log log[MAX_MACHINES];
	struct dfile *files[FILE_BUCKETS], *newest_file;
	void *heap_free[32];
	size_t heap_used;
	uint8_t heap[] __attribute__((aligned(64)));
};

extern struct world *world;
extern __thread int sim_me; /* this thread; -1: not of the world */

/* ---- world.c: memory and chance ---- */

/** A new world in the file @path, or the one that is there. */
int world_make(const char *path, uint64_t seed);
int world_join(const char *path);
void *world_alloc(size_t n); /* aborts when the world is full */
void world_free(void *p, size_t n);
uint64_t chance(uint64_t below); /* 0 to @below - 1 */
bool one_in(uint64_t n);         /* 0: never */
/** A duration about @ns: mostly half of it to twice, now and then twenty times. */
uint64_t about(uint64_t ns);

/* ---- sched.c: who runs, and when ---- */

uint32_t thread_new(uint32_t proc, const char *name);
/** This thread is @id from now on: waits for the baton. */
void thread_begin(uint32_t id);
/** Gives the baton away for good. */
void thread_end(void);
void threads_kill(uint32_t proc); /* all but this one */
/** Time passes by a little; another thread may go on. */
void sched_point(void);
/** Sleep for @channel (NULL: only those that know of us wake us) until @until. False: it is
 *  late. */
bool sleep_for(const void *channel, uint64_t until);
void sleep_ns(uint64_t ns);
void wake_channel(const void *channel, bool all);
void waiters_add(struct waiters *w);
void waiters_wake(struct waiters *w);
void waiters_drop(struct waiters *w);
void event_add(uint64_t at, enum event_kind kind, uint32_t a, uint32_t b);

/* ---- net.c: sockets ---- */

#define SOCK_WINDOW_MIN (8u << 10)
#define SOCK_WINDOW_MAX (256u << 10)

uint32_t sock_new(enum sock_kind kind);
struct sock *sock_of(uint32_t s);
void sock_close(uint32_t s); /* one descriptor less */
int sock_bind(uint32_t s, struct end at);
int sock_listen(uint32_t s);
int sock_connect(uint32_t s, struct end to); /* -EINPROGRESS: it is on its way */
int sock_connected(uint32_t s);              /* 0, -EINPROGRESS, or why not */
int sock_accept(uint32_t s);                 /* a socket, or -EAGAIN */
ssize_t sock_recv(uint32_t s, void *to, size_t len, bool peek);
ssize_t sock_send(uint32_t s, const void *from, size_t len);
void sock_shutdown(uint32_t s);
short sock_ready(uint32_t s); /* poll's bits */
void event_run(const struct event *e);
void proc_sockets_close(uint32_t proc);
void machine_sockets_lose(uint32_t machine);
void links_changed(void); /* what waited for a link goes on */
