/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data_port_host - the data port without a NameNode, for tests
 *
 * data_port_host [TYPE]DIR,... PORT POOL [key=value]...
 * It prints "port N" and serves until it gets a signal. With DATA_PORT_DEBUG in the environment it
 * logs more.
 * SIGUSR1: print metrics; SIGUSR2: evict writers; SIGHUP: end as for a restart; SIGALRM: copy the
 * block that FIRST_DIR/order names ("id gs length port") as a NameNode would order it, and print
 * "copied RC".
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/reactor/reactor.h"
#include "datanode/data_port/data_port.h"
#include "datanode/live_settings.h"

#define PROGRAM "data_port_host"
#define VOLUMES_MAX 4

static struct block_pool *the_pool;

struct block_pool *dn_pool(struct dn *dn, const char *id)
{
	(void)dn;
	return strcmp(id, pool_id(the_pool)) ? NULL : the_pool;
}

/* "[SSD]a,b": cut in place. */
static uint32_t volumes(char *text, struct store_volume_opts *ret)
{
	uint32_t n = 0;
	char *rest;

	for (char *p = strtok_r(text, ",", &rest); p && n < VOLUMES_MAX;
	     p = strtok_r(NULL, ",", &rest)) {
		const bool ssd = !strncmp(p, "[SSD]", 5);

		ret[n++] = (struct store_volume_opts){.path = ssd ? p + 5 : p,
						      .type = ssd ? STORAGE_SSD : STORAGE_DISK};
	}
	return n;
}

static int die(const struct err *err, const char *what)
{
	fprintf(stderr, PROGRAM ": %s: %s\n", what, err->text);
	return 1;
}

/* test.token.key=TEXT: the text is the one block key, of number 7. */
static int give_key(struct data_port *x, const char *text, struct err *err)
{
	Hd__ExportedBlockKeysProto m = HD__EXPORTED_BLOCK_KEYS_PROTO__INIT;
	Hd__BlockKeyProto key = HD__BLOCK_KEY_PROTO__INIT;

	if (!text)
		return 0;
	key.keyid = 7;
	key.expirydate = INT64_MAX;
	key.has_keybytes = 1;
	key.keybytes =
		(ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)text, .len = strlen(text)};
	m.isblocktokenenabled = 1;
	m.tokenlifetime = 60000;
	m.currentkey = &key;
	return data_port_block_keys(x, pool_id(the_pool), &m, err);
}

static int reactors_new(struct dn *dn, struct err *err)
{
	const struct reactor_opts ro = {.name = "reactor",
					.offload_threads = 12}; /* as in node.c */
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < dn->reactor_count; i++)
		rc = reactor_new(&ro, &dn->reactors[i], err);
	return rc;
}

static void on_copied(void *arg, int rc, const struct err *err)
{
	char line[32];

	(void)arg, (void)err;
	(void)snprintf(line, sizeof(line), "copied %d\n", rc);
	fputs(line, stdout);
	fflush(stdout);
}

static void order_copy(struct data_port *x, const char *dir)
{
	struct dn_target to = {.ip = "127.0.0.1", .storage_type = STORAGE_DISK};
	char path[4096];
	struct block b;
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/order", dir);
	f = fopen(path, "re");
	if (!f ||
	    fscanf(f, "%" SCNd64 " %" SCNu64 " %" SCNu64 " %" SCNu16, &b.id, &b.gs, &b.len,
		   &to.xfer_port) != 4 ||
	    data_port_transfer(x, the_pool, &b, &to, 1, on_copied, NULL) < 0)
		fprintf(stderr, PROGRAM ": no order in %s\n", path);
	if (f)
		fclose(f);
}

static void print_metrics(void)
{
	char *text = metrics_format(NULL);

	if (text)
		fputs(text, stdout);
	fflush(stdout);
	free(text);
}

/* Settings from "key=value" arguments. */
static int configure(struct dn *dn, struct conf *conf, char **args, int count, struct err *err)
{
	uint64_t reactors = 0;
	int rc = 0;

	for (int i = 0; rc == 0 && i < count; i++)
		rc = conf_set_arg(conf, args[i], err);
	if (rc == 0)
		rc = live_settings_read(&dn->live, conf, err);
	if (rc == 0)
		rc = conf_bool(conf, "dfs.datanode.synconclose", true, &dn->sync_on_close, err);
	if (rc == 0)
		rc = conf_u64(conf, "dfs.rdma.reactors", 0, &reactors, err);
	if (rc == 0 && reactors > DN_REACTORS_MAX)
		rc = err_set(err, -EINVAL, "dfs.rdma.reactors is more than %d", DN_REACTORS_MAX);
	dn->reactor_count = reactors ? (uint32_t)reactors : 1;
	return rc;
}

static int start(struct dn *dn, const char *port, struct err *err)
{
	int rc = net_resolve("127.0.0.1", (uint16_t)strtoul(port, NULL, 10), &dn->data_addr, err);

	rc = rc < 0 ? rc : reactors_new(dn, err);
	rc = rc < 0 ? rc : data_port_start(dn, &dn->xfer, err);
	rc = rc < 0 ? rc : give_key(dn->xfer, conf_get(dn->conf, "test.token.key"), err);
	for (uint32_t i = 0; rc >= 0 && i < dn->reactor_count; i++)
		reactor_start(dn->reactors[i]);
	return rc;
}

/* Before any thread starts: all threads leave the signals to serve(). */
static void block_signals(sigset_t *ret)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGALRM};

	sigemptyset(ret);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(ret, signals[i]);
	pthread_sigmask(SIG_BLOCK, ret, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Until a signal ends it, which is returned. */
static int serve(struct data_port *x, const sigset_t *set, const char *first_dir)
{
	int sig = 0;

	while (sigwait(set, &sig) == 0 && (sig == SIGUSR1 || sig == SIGUSR2 || sig == SIGALRM)) {
		if (sig == SIGUSR1)
			print_metrics();
		else if (sig == SIGALRM)
			order_copy(x, first_dir);
		else
			data_port_evict_writers(x);
	}
	return sig;
}

static void end(struct dn *dn, int sig)
{
	if (sig == SIGHUP)
		(void)data_port_stop_for_restart(dn->xfer, 10000);
	else
		(void)data_port_stop(dn->xfer, 1000);
	for (uint32_t i = 0; i < dn->reactor_count; i++) {
		reactor_stop(dn->reactors[i]);
		reactor_join(dn->reactors[i]);
	}
	for (uint32_t i = 0; i < dn->reactor_count; i++)
		reactor_free(dn->reactors[i]);
	data_port_free(dn->xfer);
	store_close(dn->store);
}

int main(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct store_volume_opts vols[VOLUMES_MAX];
	struct store_opts so = {.volumes = vols,
				.volume_count = argc > 1 ? volumes(argv[1], vols) : 0,
				.open_replicas = 64};
	struct store_namespace ns = {.cluster_id = "CID-test", .namespace_id = 1, .ctime = 1};
	struct conf *conf = conf_new();
	struct dn dn = {.conf = conf, .reactor_count = 1, .sync_on_close = true};
	char port[16];
	sigset_t set;

	if (argc < 4)
		return 2;
	log_init(PROGRAM, getenv("DATA_PORT_DEBUG") ? LOG_DEBUG : LOG_INFO);
	block_signals(&set);
	if (configure(&dn, conf, argv + 4, argc - 4, &err) < 0 ||
	    conf_time_ms(conf, "dfs.rdma.replica.index.interval", 0, &so.index_ms, &err) < 0)
		return die(&err, "configuration");
	snprintf(ns.pool_id, sizeof(ns.pool_id), "%s", argv[3]);
	if (store_open(&so, &dn.store, &err) < 0 ||
	    store_attach(dn.store, &ns, &the_pool, &err) < 0)
		return die(&err, "store");
	if (start(&dn, argv[2], &err) < 0)
		return die(&err, "start");
	snprintf(port, sizeof(port), "port %u\n", net_port(&dn.data_addr));
	fputs(port, stdout);
	fflush(stdout);
	end(&dn, serve(dn.xfer, &set, vols[0].path));
	conf_free(conf);
	return 0;
}
