/* SPDX-License-Identifier: Apache-2.0 */
/* The clock, the NameNode, and calls to it (sim.h). */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/nn_internal.h"
#include "namenode-shim/rpc/methods.h"
#include "namenode-shim/simulator/sim.h"

#define TURN_NS 50000
#define DAY_0_S 1800000000 /* wall clock at the beginning */

struct sim sim;

const char *const sim_part_names[SIM_PARTS] = {
	"append", "truncate", "rename", "remove", "replication", "leases", "gone",
	"crash",  "unlink",   "loss",   "disks",  "restart",     "late",   "ec"};

/* ---- time and chance ---- */

static uint64_t now_ns;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	ret->tv_sec = (time_t)(now_ns / NS_PER_S) + (id == CLOCK_REALTIME ? DAY_0_S : 0);
	ret->tv_nsec = (long)(now_ns % NS_PER_S);
	return 0;
}

/* There is one thread: nobody will wake it. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	const uint64_t until = (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;

	(void)c, (void)m;
	now_ns = until > now_ns ? until : now_ns;
	return ETIMEDOUT;
}

uint64_t sim_now_ns(void)
{
	return now_ns;
}

uint32_t sim_below(uint32_t n)
{
	sim.rng = sim.rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(sim.rng >> 33) % n;
}

bool sim_chance(uint32_t percent)
{
	return sim_below(100) < percent;
}

/* ---- words ---- */

void sim_say(const char *fmt, ...)
{
	va_list ap;

	if (!sim.trace)
		return;
	printf("%5u %9.3f ", sim.step, (double)now_ns / 1e9);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void sim_wrong(const char *fmt, ...)
{
	va_list ap;

	if (sim.wrong[0])
		return;
	va_start(ap, fmt);
	vsnprintf(sim.wrong, sizeof(sim.wrong), fmt, ap);
	va_end(ap);
	sim_say("WRONG: %s", sim.wrong);
}

/* ---- the NameNode ---- */

static void must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "simulator: %s: %s\n", what, strerror(-rc));
	exit(2);
}

static void nn_begin(void)
{
	struct settings set = {0};
	struct err err = ERR_INIT;

	must(settings_load(sim.conf, &set, &err), err.text);
	must(nn_new(&set, &sim.nn, &err), err.text);
}

void sim_restart(void)
{
	sim_drain();
	sim_say("the NameNode is started anew");
	for (int i = 0; i < FILES; i++)
		sim.file[i].forgotten = true;
	nn_free(sim.nn);
	nn_begin();
}

/* Times of a NameNode that are long for a history are shorter here. */
static void configure(void)
{
	static const char *const keys[][2] = {
		{"fs.defaultFS", "hdfs://127.0.0.1:0"},
		{"dfs.shim.journal", "false"},
		{"dfs.namenode.ec.system.default.policy", "RS-3-2-1024k"},
		{"dfs.namenode.fs-limits.min-block-size", "1"},
		{"dfs.namenode.heartbeat.recheck-interval", "15000"},
		{"dfs.namenode.lease-hard-limit-sec", "180"},
		{"dfs.namenode.reconstruction.pending.timeout-sec", "60"},
		{"dfs.namenode.safemode.extension", "5000"},
		{"dfs.namenode.safemode.threshold-pct", "0.999"},
	};

	sim.conf = conf_new();
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		conf_set(sim.conf, keys[i][0], keys[i][1]);
	conf_set(sim.conf, "dfs.namenode.name.dir", sim.dir);
}

void sim_begin(uint64_t seed)
{
	const struct db_format f = {"CID-sim", "root", "supergroup", false};
	const bool trace = sim.trace;
	const uint32_t without = sim.without;
	struct err err = ERR_INIT;

	memset(&sim, 0, sizeof(sim));
	sim.trace = trace;
	sim.without = without;
	sim.seed = sim.rng = seed;
	(void)sim_below(2);
	now_ns = 1000 * NS_PER_S;
	snprintf(sim.dir, sizeof(sim.dir), "/dev/shm/nn-sim-XXXXXX");
	if (!mkdtemp(sim.dir))
		must(-errno, sim.dir);
	must(db_format(sim.dir, &f, &err), err.text);
	configure();
	nn_begin();
	for (int i = 0; i < NODES; i++)
		node_init(&sim.node[i], i);
	for (int i = 0; i < WRITERS; i++)
		writer_init(&sim.writer[i], i);
	for (int i = 0; i < FILES; i++)
		snprintf(sim.file[i].path, sizeof(sim.file[i].path), "/f%d", i);
}

void sim_end(void)
{
	char cmd[96];

	nn_free(sim.nn);
	conf_free(sim.conf);
	snprintf(cmd, sizeof(cmd), "rm -r %s", sim.dir);
	if (system(cmd))
		must(-EIO, cmd);
}

/* ---- calls ---- */

static const struct method *find(const char *name)
{
	static const struct method_table *const tables[] = {
		&client_change_methods, &client_write_methods, &client_append_methods,
		&client_pipeline_methods, &datanode_methods};

	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (size_t i = 0; i < tables[t]->count; i++)
			if (!strcmp(tables[t]->methods[i].name, name))
				return &tables[t]->methods[i];
	fprintf(stderr, "simulator: no method %s\n", name);
	exit(2);
}

static void drop_out(struct sim_call *c)
{
	pb_free(c->out);
	c->out = NULL;
}

/* As it would come over the wire. */
static ProtobufCMessage *copy_message(const ProtobufCMessage *m, struct pb_room *room)
{
	ProtobufCMessage *ret = NULL;
	uint8_t *buf;
	size_t len;

	must(pb_pack(m, &buf, &len), "pack");
	must(room ? pb_unpack_in(room, m->descriptor, buf, len, &ret)
		  : pb_unpack(m->descriptor, buf, len, &ret),
	     m->descriptor->name);
	free(buf);
	return ret;
}

/* On the writer's turn; it may run several times. */
static int run_call(struct req *q, const void *in)
{
	struct sim_call *c = (struct sim_call *)(uintptr_t)q->arg;

	drop_out(c);
	q->ns.host = c->host;
	c->rc = c->real->run(q, in);
	if (c->rc < 0)
		snprintf(c->error, sizeof(c->error), "%s", q->exception.text);
	else if (c->rc == 0 && q->out)
		c->out = copy_message(q->out, NULL);
	return c->rc;
}

void sim_submit(struct sim_call *c, const char *method, const void *msg, const char *host)
{
	struct req *q;

	*c = (struct sim_call){.real = find(method), .host = host, .busy = true};
	c->method = *c->real;
	c->method.run = run_call;
	c->method.prepare = NULL;
	/* refused before it runs, in safe mode */
	c->rc = -EAGAIN;
	snprintf(c->error, sizeof(c->error), "not run");
	q = req_new(sim.nn, &c->method, NULL);
	q->arg = (uint64_t)(uintptr_t)c;
	q->stat = &c->stat;
	q->datanode = host[0] && strncmp(host, "10.0.0.", 7) == 0;
	q->in = copy_message(msg, &q->room);
	sim.calls++;
	nn_submit(sim.nn, q);
}

void sim_call_end(struct sim_call *c)
{
	drop_out(c);
}

static int run_nothing(struct req *q, const void *in)
{
	(void)q, (void)in;
	return 0;
}

/* With something to do the writer does not sleep. */
void sim_turn(void)
{
	static const struct method nothing = {
		.name = "nothing", .kind = REQ_MEMORY, .run = run_nothing};

	now_ns += TURN_NS;
	nn_submit(sim.nn, req_new(sim.nn, &nothing, NULL));
	(void)nn_turn(sim.nn);
	for (int i = 0; i < WRITERS; i++) {
		struct sim_writer *w = &sim.writer[i];

		if (w->call.busy && w->call.stat.calls) {
			w->call.busy = false;
			writer_answered(w);
		}
	}
}

void sim_sleep_ms(uint64_t ms)
{
	const uint64_t until = now_ns + ms * NS_PER_MS;

	while (now_ns < until && !sim.wrong[0]) {
		uint64_t next = until;

		for (int i = 0; i < NODES; i++)
			next = sim.node[i].beat_ns < next ? sim.node[i].beat_ns : next;
		next = sim.nn->next_tick_ns < next ? sim.nn->next_tick_ns : next;
		now_ns = next > now_ns ? next : now_ns;
		for (int i = 0; i < NODES; i++)
			node_beat(&sim.node[i]);
		for (int i = 0; i < WRITERS; i++)
			writer_renew(&sim.writer[i]);
		sim_turn();
	}
}

static bool is_busy(void)
{
	for (int i = 0; i < WRITERS; i++)
		if (sim.writer[i].call.busy)
			return true;
	return false;
}

void sim_drain(void)
{
	for (int i = 0; is_busy() && i < 10000; i++)
		sim_sleep_ms(100);
	if (is_busy())
		sim_wrong("a call is not answered");
}
