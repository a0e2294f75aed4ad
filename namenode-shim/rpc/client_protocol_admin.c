/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: an administrator's calls: safe mode, open and corrupt files, saving, upgrades. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/server.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/blocks/hosts.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/client_protocol_admin.h"
#include "namenode-shim/rpc/methods.h"

/* ---- safe mode ---- */

static int set_safe_mode(struct req *q, const void *in)
{
	const Hd__SetSafeModeRequestProto *m = in;
	Hd__SetSafeModeResponseProto *r =
		req_reply(q, Hd__SetSafeModeResponseProto, hd__set_safe_mode_response_proto__init);
	struct safemode *s = &q->nn->safe;

	static const char *const names[] = {
		[HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_LEAVE] = "safemode_leave",
		[HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_ENTER] = "safemode_enter",
		[HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_GET] = "safemode_get",
		[HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_FORCE_EXIT] = "safemode_force_exit"};
	int rc = 0;

	if ((size_t)m->action >= sizeof(names) / sizeof(names[0]) || !names[m->action])
		return exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
				       "Unexpected safe mode action %d", (int)m->action);
	if (m->action != HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_GET)
		rc = req_need_super(q, names[m->action]);
	if (rc < 0)
		return rc;
	switch (m->action) {
	case HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_ENTER:
		s->manual = s->on = q->nn->blocks.quiet = true;
		log_info("op=safemode state=on user=%s", q->ns.user);
		break;
	case HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_LEAVE:
	case HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_FORCE_EXIT:
		if (s->startup)
			/* reports are still to come: what is not known is not missing */
			s->left_ns = clock_mono_ns();
		s->manual = s->on = s->startup = q->nn->blocks.quiet = false;
		blocks_recheck_all(&q->nn->blocks);
		log_info("op=safemode state=off user=%s", q->ns.user);
		break;
	case HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_GET:
	case _HD__SAFE_MODE_ACTION_PROTO_IS_INT_SIZE:
		break;
	}
	r->result = s->on;
	return 0;
}

/* ---- open files ---- */

/* The path of a listing, without the slashes at its end; none is the root. */
static int listed_path(struct req *q, const char *path, const char **ret)
{
	size_t len = strlen(path);

	if (len && *path != '/')
		return exception_throw(&q->exception, EXC_ASSERTION,
				       "Absolute path required, but got '%s'", path);
	while (len && path[len - 1] == '/')
		len--;
	*ret = arena_strndup(&q->mem, path, len);
	return 0;
}

#define OPEN_FILES_BATCH 1000 /* dfs.namenode.list.openfiles.num.responses */

struct open_list {
	struct req *q;
	Hd__ListOpenFilesResponseProto *out;
	const char *under; /* path prefix, without a slash at its end */
	bool blocking_only;
};

static bool is_below(const char *path, const char *dir)
{
	const size_t n = strlen(dir);

	return !strcmp(dir, "/") || (!strncmp(path, dir, n) && (!path[n] || path[n] == '/'));
}

static int list_open_file(void *arg, uint64_t id)
{
	struct open_list *l = arg;
	Hd__OpenFilesBatchResponseProto *e;
	struct inode *n;
	char *path;
	int rc = inode_get(l->q->ns.t, id, &l->q->mem, &n);

	if (!rc && l->blocking_only && !ops_blocks_decommission(l->q->nn, n))
		return 0;
	rc = rc ? rc : inode_path(l->q->ns.t, n, &l->q->mem, &path);
	if (rc == -ENOENT)
		return 0; /* it was deleted (tree_delete.h) */
	if (rc < 0 || !is_below(path, l->under))
		return rc;
	if (l->out->n_entries == OPEN_FILES_BATCH) {
		l->out->hasmore = true;
		return 1;
	}
	e = req_new_msg(l->q, Hd__OpenFilesBatchResponseProto,
			hd__open_files_batch_response_proto__init);
	e->id = (int64_t)n->id;
	e->path = path;
	e->clientname = (char *)(uintptr_t)n->client;
	e->clientmachine = (char *)(uintptr_t)n->client_host;
	l->out->entries[l->out->n_entries++] = e;
	return 0;
}

static int list_open_files(struct req *q, const void *in)
{
	const Hd__ListOpenFilesRequestProto *m = in;
	Hd__ListOpenFilesResponseProto *r = req_reply(q, Hd__ListOpenFilesResponseProto,
						      hd__list_open_files_response_proto__init);
	struct open_list l = {.q = q, .out = r};
	bool all = !m->n_types;
	int rc = listed_path(q, m->path ? m->path : "", &l.under);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < m->n_types; i++)
		all |= m->types[i] == HD__OPEN_FILES_TYPE_PROTO__ALL_OPEN_FILES;
	l.blocking_only = !all;
	r->entries = arena_array(&q->mem, Hd__OpenFilesBatchResponseProto *, OPEN_FILES_BATCH);
	r->types = m->types; /* borrowed: the request outlives its answer */
	r->n_types = m->n_types;
	rc = inode_open_each(q->ns.t, m->id < 0 ? 0 : (uint64_t)m->id, list_open_file, &l);
	return rc < 0 ? ns_io(&q->ns, rc) : 0;
}

bool ops_blocks_decommission(const struct nn *nn, const struct inode *n)
{
	for (uint32_t i = 0; i < n->nblocks; i++) {
		const struct blk *b = blocks_find(&nn->blocks, n->blocks[i].b.id);

		for (uint16_t k = 0; b && k < b->nreps; k++)
			if (dn_is_leaving(b->rep[k].st->dn))
				return true;
	}
	return false;
}

/* ---- corrupt files ---- */

static int by_id(const void *a, const void *b)
{
	const int64_t x = (*(const struct blk *const *)a)->b.id,
		      y = (*(const struct blk *const *)b)->b.id;

	return (x > y) - (x < y);
}

int ops_corrupt_files(struct ns *n, const struct nn *nn, const char *path, const char *cookie,
		      struct ops_corrupt *ret)
{
	const int64_t after = cookie && *cookie ? strtoll(cookie, NULL, 10) : INT64_MIN;
	const struct blk **found = arena_array(n->a, const struct blk *, nn->blocks.missing + 1);
	uint64_t count = 0;
	int64_t last = after;

	*ret = (struct ops_corrupt){.block = arena_array(n->a, const struct blk *, OPS_CORRUPT_MAX),
				    .path = arena_array(n->a, char *, OPS_CORRUPT_MAX)};
	list_for_each (l, &nn->blocks.under) {
		const struct blk *b = container_of(l, struct blk, work);

		if ((b->flags & BLK_MISSING) && b->b.id > after && count < nn->blocks.missing)
			found[count++] = b;
	}
	qsort(found, count, sizeof(*found), by_id);
	for (uint64_t i = 0; i < count && ret->n < OPS_CORRUPT_MAX; i++) {
		struct inode *node;
		char *text;
		int rc = inode_get(n->t, found[i]->inode, n->a, &node);

		rc = rc ? rc : inode_path(n->t, node, n->a, &text);
		if (rc == -ENOENT)
			continue; /* removed in this moment */
		if (rc < 0)
			return ns_io(n, rc);
		last = found[i]->b.id;
		if (!is_below(text, path))
			continue;
		ret->block[ret->n] = found[i];
		ret->path[ret->n++] = text;
	}
	ret->cookie = last == INT64_MIN ? "0" : arena_printf(n->a, "%" PRId64, last);
	return 0;
}

static int list_corrupt(struct req *q, const void *in)
{
	const Hd__ListCorruptFileBlocksRequestProto *m = in;
	Hd__ListCorruptFileBlocksResponseProto *r =
		req_reply(q, Hd__ListCorruptFileBlocksResponseProto,
			  hd__list_corrupt_file_blocks_response_proto__init);
	struct ops_corrupt found;
	int rc;

	r->corrupt =
		req_new_msg(q, Hd__CorruptFileBlocksProto, hd__corrupt_file_blocks_proto__init);
	if (q->nn->safe.startup)
		return exception_throw(
			&q->exception, EXC_IO,
			"Cannot run listCorruptFileBlocks because replication queues have "
			"not been initialized.");
	rc = ops_corrupt_files(&q->ns, q->nn, m->path, m->cookie, &found);
	if (rc < 0)
		return rc;
	r->corrupt->files = found.path;
	r->corrupt->n_files = found.n;
	r->corrupt->cookie = arena_strdup(&q->mem, found.cookie);
	return 0;
}

/* ---- saving and upgrading: the namespace is always on disk, and of one version ---- */

static int need_safe_mode(struct req *q)
{
	return q->nn->safe.on
		       ? 0
		       : exception_throw(
				 &q->exception, EXC_IO,
				 "Safe mode should be turned ON in order to create namespace "
				 "image.");
}

static int save_namespace(struct req *q, const void *in)
{
	Hd__SaveNamespaceResponseProto *r = req_reply(q, Hd__SaveNamespaceResponseProto,
						      hd__save_namespace_response_proto__init);

	(void)in;
	PB_SET(r, saved, 1);
	return need_safe_mode(q);
}

static int roll_edits(struct req *q, const void *in)
{
	Hd__RollEditsResponseProto *r =
		req_reply(q, Hd__RollEditsResponseProto, hd__roll_edits_response_proto__init);

	(void)in;
	r->newsegmenttxid = db_last_txid(q->nn->db) + 1;
	return req_check_safe(q);
}

static int restore_failed_storage(struct req *q, const void *in)
{
	const Hd__RestoreFailedStorageRequestProto *m = in;
	Hd__RestoreFailedStorageResponseProto *r =
		req_reply(q, Hd__RestoreFailedStorageResponseProto,
			  hd__restore_failed_storage_response_proto__init);

	if (strcmp(m->arg, "check"))
		q->nn->restore_storage = !strcmp(m->arg, "true");
	r->result = q->nn->restore_storage;
	return 0;
}

static int finalize_upgrade(struct req *q, const void *in)
{
	(void)in;
	req_reply(q, Hd__FinalizeUpgradeResponseProto, hd__finalize_upgrade_response_proto__init);
	return 0;
}

static int upgrade_status(struct req *q, const void *in)
{
	Hd__UpgradeStatusResponseProto *r = req_reply(q, Hd__UpgradeStatusResponseProto,
						      hd__upgrade_status_response_proto__init);

	(void)in;
	r->upgradefinalized = true;
	return 0;
}

static int rolling_upgrade(struct req *q, const void *in)
{
	const Hd__RollingUpgradeRequestProto *m = in;
	int rc = 0;

	req_reply(q, Hd__RollingUpgradeResponseProto, hd__rolling_upgrade_response_proto__init);
	if (m->action == HD__ROLLING_UPGRADE_ACTION_PROTO__START)
		rc = need_safe_mode(q);
	if (m->action == HD__ROLLING_UPGRADE_ACTION_PROTO__START && !rc)
		rc = exception_throw(
			&q->exception, EXC_UNSUPPORTED,
			"rolling upgrades are not supported by this NameNode: stop it, start "
			"the new version on the same directory");
	return rc;
}

/* ---- metaSave ---- */

#define METASAVE_BUF (1 << 20)

static char *bytes_text(struct arena *a, uint64_t n)
{
	static const char units[] = "BKMGTPE";
	double v = (double)n;
	int u = 0;

	for (; v >= 1024 && units[u + 1]; u++)
		v /= 1024;
	return u ? arena_printf(a, "%.2f %cB", v, units[u]) : arena_printf(a, "%" PRIu64 " B", n);
}

static const char *node_line(struct arena *a, const struct dn *dn)
{
	const uint64_t cap = dn_capacity(dn), used = dn_used(dn), left = dn_remaining(dn);
	const time_t heard = (time_t)(dn->heard_ms / 1000);
	char when[64];
	struct tm tm;

	strftime(when, sizeof(when), "%a %b %d %H:%M:%S %Z %Y", localtime_r(&heard, &tm));
	return arena_printf(a,
			    "%s:%u %s %" PRIu64 "(%s) %" PRIu64 "(%s) %.2f%% %" PRIu64
			    "(%s) 0(0 B) 0(0 B) 100.00%% 0(0 B) %s\n",
			    dn->ip, dn->xfer_port, dn_admin_code(dn), cap, bytes_text(a, cap), used,
			    bytes_text(a, used), cap ? 100.0 * (double)used / (double)cap : 100.0,
			    left, bytes_text(a, left), when);
}

static void put_waiting(FILE *f, const struct list *line)
{
	list_for_each (l, line) {
		const struct blk *b = container_of(l, struct blk, work);

		fprintf(f, "blk_%" PRId64 "_%" PRIu64 " (replicas: l: %u of %u%s)\n", b->b.id,
			b->b.gs, blk_live(b), b->repl, b->flags & BLK_MISSING ? " MISSING" : "");
	}
}

static void write_state(struct nn *nn, struct arena *a, FILE *f)
{
	const struct blocks *bs = &nn->blocks;
	const uint64_t inodes = nn->inodes, nblocks = HASH_COUNT(bs->map);
	uint32_t live = 0, dead = 0, busy = 0;

	for (const struct dn *dn = nn->dns.table; dn; dn = dn->hh.next) {
		live += dn->alive;
		dead += !dn->alive;
		busy += dn->ninval > 0;
	}
	fprintf(f,
		"%" PRIu64 " files and directories, %" PRIu64 " blocks = %" PRIu64
		" total filesystem objects\nLive Datanodes: %u\nDead Datanodes: %u\n"
		"Metasave: Blocks waiting for reconstruction: %" PRIu64 "\n",
		inodes, nblocks, inodes + nblocks, live, dead, bs->under_count - bs->missing);
	put_waiting(f, &bs->first);
	put_waiting(f, &bs->under);
	fprintf(f,
		"Metasave: Blocks currently missing: %" PRIu64 "\n"
		"Mis-replicated blocks that have been postponed:\n"
		"Metasave: Blocks being reconstructed: %u\n"
		"Metasave: Blocks %" PRIu64
		" waiting deletion from %u datanodes.\nCorrupt Blocks:\n"
		"Metasave: Number of datanodes: %u\n",
		bs->missing, 0u, datanodes_pending_deletions(&nn->dns), busy, live + dead);
	for (const struct dn *dn = nn->dns.table; dn; dn = dn->hh.next)
		fprintf(f, "%s", node_line(a, dn));
}

/* A plain file of the log directory, emptied as HDFS does; not a pipe or a device, which may block.
 */
static int open_log(const char *path)
{
	int fd = ret_errno(
		open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
	struct stat st;
	int rc = fd < 0 ? fd : ret_errno(fstat(fd, &st));

	if (!rc)
		rc = !S_ISREG(st.st_mode) ? -EINVAL
		     : st.st_nlink != 1   ? -EMLINK
					  : ret_errno(ftruncate(fd, 0));
	if (rc < 0 && fd >= 0)
		close(fd);
	return rc < 0 ? rc : fd;
}

/* A CHANGE only to run on the writer thread without the lock: it waits for a file system. */
static int meta_save(struct req *q, const void *in)
{
	const Hd__MetaSaveRequestProto *m = in;
	char *path = arena_printf(&q->mem, "%s/%s", q->nn->set.log_dir, m->filename);
	FILE *f;
	int fd, rc;

	req_reply(q, Hd__MetaSaveResponseProto, hd__meta_save_response_proto__init);
	/* in_use.lock: closing it would give up the lock of the directory. */
	if (!*m->filename || strchr(m->filename, '/') || m->filename[0] == '.' ||
	    !strcmp(m->filename, "in_use.lock"))
		return exception_throw(
			&q->exception, EXC_IO,
			"metaSave writes into the log directory: %.200s is not a plain file "
			"name",
			m->filename);
	fd = open_log(path);
	if (fd < 0)
		return exception_throw(&q->exception, EXC_IO, "%.300s: %s", path, strerror(-fd));
	f = fdopen(fd, "w");
	if (!f) {
		rc = neg_errno();
		close(fd);
		return exception_throw(&q->exception, EXC_IO, "%.300s: %s", path, strerror(-rc));
	}
	/* a line for each block that lacks replicas */
	(void)setvbuf(f, NULL, _IOFBF, METASAVE_BUF);
	write_state(q->nn, &q->mem, f);
	rc = ferror(f) ? -EIO : 0;
	if (fclose(f))
		rc = neg_errno();
	return rc < 0 ? exception_throw(&q->exception, EXC_IO, "%.300s: %s", path, strerror(-rc))
		      : 0;
}

/* ---- the rest ---- */

/* A method that only says why not; tests/check_compat.py reads these. */
#define REFUSE(fn, kind, text)                                                                     \
	static int fn(struct req *q, const void *in)                                               \
	{                                                                                          \
		(void)in;                                                                          \
		return exception_throw(&q->exception, kind, "%s", text);                           \
	}

static int set_balancer_bandwidth(struct req *q, const void *in)
{
	const Hd__SetBalancerBandwidthRequestProto *m = in;

	req_reply(q, Hd__SetBalancerBandwidthResponseProto,
		  hd__set_balancer_bandwidth_response_proto__init);
	if (m->bandwidth < 0)
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT,
				       "Bandwidth should be a non-negative integer");
	for (struct dn *dn = q->nn->dns.table; dn; dn = dn->hh.next)
		dn->bandwidth = (uint64_t)m->bandwidth;
	return 0;
}

/* As HDFS answers without high availability, though it is active. */
REFUSE(get_ha_service_state, EXC_HA_FAILED, "HA for namenode is not enabled")

static int get_enclosing_root(struct req *q, const void *in)
{
	const Hd__GetEnclosingRootRequestProto *m = in;
	Hd__GetEnclosingRootResponseProto *r = req_reply(
		q, Hd__GetEnclosingRootResponseProto, hd__get_enclosing_root_response_proto__init);

	(void)m; /* neither mounts nor encryption zones: one root */
	r->enclosingrootpath = arena_strdup(&q->mem, "/");
	return 0;
}

/* It reads files and asks for names; for who may not ask, nothing. */
static void load_nodes(struct req *q)
{
	const struct nn *nn = q->nn;
	struct err err = ERR_INIT;

	if (nn->set.permissions && !users_is_super(nn->users, q->call->user ? q->call->user : ""))
		return;
	if (hosts_load(nn->set.conf, &q->hosts, &err) < 0)
		q->prepare_error = xstrdup(err.text);
}

static int refresh_nodes(struct req *q, const void *in)
{
	struct nn *nn = q->nn;

	(void)in;
	req_reply(q, Hd__RefreshNodesResponseProto, hd__refresh_nodes_response_proto__init);
	if (q->prepare_error)
		return exception_throw(&q->exception, EXC_IO, "%s; the nodes stay as they are",
				       q->prepare_error);
	if (q->hosts) { /* not so when the batch is run again */
		hosts_free(nn->hosts_next);
		nn->hosts_next = q->hosts;
		q->hosts = NULL;
	}
	if (!nn->hosts_next)
		return exception_throw(&q->exception, EXC_IO,
				       "the hosts files were not read; try again");
	ns_effect(&q->ns, EFFECT_HOSTS);
	return 0;
}

#define OPS(name, msg, kind, flags, fn) METHOD(name, hd, msg, kind, flags, fn)
static const struct method table[] = {
	OPS(setSafeMode, set_safe_mode, REQ_MEMORY, 0, set_safe_mode),
	OPS(listOpenFiles, list_open_files, REQ_READ, REQ_SUPER, list_open_files),
	OPS(listCorruptFileBlocks, list_corrupt_file_blocks, REQ_READ, REQ_SUPER, list_corrupt),
	OPS(saveNamespace, save_namespace, REQ_READ, REQ_SUPER, save_namespace),
	OPS(rollEdits, roll_edits, REQ_READ, REQ_SUPER, roll_edits),
	OPS(restoreFailedStorage, restore_failed_storage, REQ_MEMORY, REQ_SUPER,
	    restore_failed_storage),
	OPS(finalizeUpgrade, finalize_upgrade, REQ_READ, REQ_SUPER, finalize_upgrade),
	OPS(upgradeStatus, upgrade_status, REQ_READ, 0, upgrade_status),
	OPS(rollingUpgrade, rolling_upgrade, REQ_READ, REQ_SUPER, rolling_upgrade),
	OPS(metaSave, meta_save, REQ_CHANGE, REQ_SUPER | REQ_SAFE_OK, meta_save),
	OPS(setBalancerBandwidth, set_balancer_bandwidth, REQ_MEMORY, REQ_SUPER,
	    set_balancer_bandwidth),
	METHOD_PREPARED(refreshNodes, hd, refresh_nodes, REQ_CHANGE, REQ_SUPER | REQ_SAFE_OK,
			refresh_nodes, load_nodes),
	OPS(getHAServiceState, haservice_state, REQ_READ, 0, get_ha_service_state),
	OPS(getEnclosingRoot, get_enclosing_root, REQ_READ, 0, get_enclosing_root),
};
const struct method_table client_ops_methods = METHOD_TABLE(table);
