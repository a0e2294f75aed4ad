/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/options.h"

#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/include/dfsclient.h"

#define EXIT_USAGE 2

enum key {
	KEY_DEFINE,
	KEY_CONF,
	KEY_DROP,
	KEY_READ_ONLY,
	KEY_ALLOW_OTHER,
	KEY_SYNC,
	KEY_NUMBER,
	KEY_FIXED,
	KEY_REMOUNT
};

/* clang-format off */
#define VALUE(text, field) {text, offsetof(struct options, field), 0}
/* clang-format on */
/* clang-format off */
#define FLAG(text, field) {text, offsetof(struct options, field), 1}
/* clang-format on */

static const struct fuse_opt OPTIONS[] = {
	FLAG("-f", foreground),
	FLAG("-d", debug),
	FLAG("-h", help),
	FLAG("--help", help),
	FLAG("-V", version),
	FLAG("--version", version),
	FUSE_OPT_KEY("-D ", KEY_DEFINE),
	FUSE_OPT_KEY("--conf ", KEY_CONF),
	FUSE_OPT_KEY("conf=", KEY_CONF),
	FUSE_OPT_KEY("attr_timeout=", KEY_NUMBER),
	FUSE_OPT_KEY("entry_timeout=", KEY_NUMBER),
	FUSE_OPT_KEY("negative_timeout=", KEY_NUMBER),
	FUSE_OPT_KEY("uid=", KEY_NUMBER),
	FUSE_OPT_KEY("gid=", KEY_NUMBER),
	FUSE_OPT_KEY("umask=", KEY_NUMBER),
	FUSE_OPT_KEY("timeout=", KEY_NUMBER),
	FUSE_OPT_KEY("threads=", KEY_NUMBER),
	FUSE_OPT_KEY("streams=", KEY_NUMBER),
	FUSE_OPT_KEY("overlay_size=", KEY_NUMBER),
	FUSE_OPT_KEY("readahead=", KEY_NUMBER),
	VALUE("log=%s", log),
	VALUE("metrics=%s", metrics),
	VALUE("overlay=%s", state),
	FLAG("nonempty", nonempty),
	FLAG("passthrough", passthrough),
	FUSE_OPT_KEY("ro", KEY_READ_ONLY), /* the kernel wants to hear of these three, too */
	FUSE_OPT_KEY("allow_other", KEY_ALLOW_OTHER),
	FUSE_OPT_KEY("sync", KEY_SYNC),
	/* what fstab says to others */
	FUSE_OPT_KEY("_netdev", KEY_DROP),
	FUSE_OPT_KEY("nofail", KEY_DROP),
	FUSE_OPT_KEY("auto", KEY_DROP),
	FUSE_OPT_KEY("noauto", KEY_DROP),
	FUSE_OPT_KEY("user", KEY_DROP),
	FUSE_OPT_KEY("users", KEY_DROP),
	FUSE_OPT_KEY("defaults", KEY_DROP),
	FUSE_OPT_KEY("relatime", KEY_DROP), /* HDFS decides about access times */
	FUSE_OPT_KEY("norelatime", KEY_DROP),
	FUSE_OPT_KEY("strictatime", KEY_DROP),
	FUSE_OPT_KEY("lazytime", KEY_DROP),
	FUSE_OPT_KEY("nolazytime", KEY_DROP),
	FUSE_OPT_KEY("nodiratime", KEY_DROP), /* directories have none */
	FUSE_OPT_KEY("diratime", KEY_DROP),
	FUSE_OPT_KEY("iversion", KEY_DROP),
	FUSE_OPT_KEY("noiversion", KEY_DROP),
	FUSE_OPT_KEY("nomand", KEY_DROP),
	FUSE_OPT_KEY("owner", KEY_DROP), /* who may mount is mount(8)'s business */
	FUSE_OPT_KEY("group", KEY_DROP),
	FUSE_OPT_KEY("silent", KEY_DROP),
	FUSE_OPT_KEY("loud", KEY_DROP),
	FUSE_OPT_KEY("remount", KEY_REMOUNT),
	FUSE_OPT_KEY("max_read=", KEY_FIXED),
	FUSE_OPT_END,
};

enum kind { REAL, UINT, ID }; /* double, unsigned int, int64_t */

/* clang-format off */
#define NUMBER(name, field, kind, base, min, max) {name "=", offsetof(struct options, field), kind, base, min, max}
/* clang-format on */

static const struct number {
	const char *name;
	size_t at;
	enum kind kind;
	int base;
	double min, max;
} NUMBERS[] = {
	NUMBER("attr_timeout", attr_timeout, REAL, 10, 0, 1e9),
	NUMBER("entry_timeout", entry_timeout, REAL, 10, 0, 1e9),
	NUMBER("negative_timeout", negative_timeout, REAL, 10, 0, 1e9),
	NUMBER("uid", uid, ID, 10, 0, UINT32_MAX - 1.0),
	NUMBER("gid", gid, ID, 10, 0, UINT32_MAX - 1.0),
	NUMBER("umask", umask, ID, 8, 0, 0777),
	NUMBER("timeout", timeout_s, UINT, 10, 1, 86400),
	NUMBER("threads", threads, UINT, 10, 2, 1000),
	NUMBER("streams", streams, UINT, 10, 1, 1000000),
	NUMBER("overlay_size", overlay_mib, UINT, 10, 1, UINT32_MAX),
	NUMBER("readahead", readahead_kib, UINT, 10, 0, 1 << 20),
};

static void help(void)
{
	fputs("usage: dfs-fuse [hdfs://HOST[:PORT]/DIR] MOUNTPOINT [-o OPTION[,OPTION]...]\n\n"
	      "Mount a directory of an HDFS-compatible file system. Without an address: / of fs.defaultFS.\n"
	      "Unmount with `umount MOUNTPOINT` (as a user: `fusermount3 -u MOUNTPOINT`) or SIGTERM.\n\n"
	      "options:\n"
	      "  -f                    stay in the foreground; the log goes to stderr\n"
	      "  -d                    the same, and log every request\n"
	      "  -D KEY=VALUE          set a configuration key; may be repeated\n"
	      "  --conf DIR            directory of core-site.xml and hdfs-site.xml [$HADOOP_CONF_DIR]\n"
	      "  -h, --help            print this text\n"
	      "  -V, --version         print the version\n"
	      "  -o allow_other        other users may use the mount; HDFS checks each by name\n"
	      "  -o ro                 change nothing\n"
	      "  -o uid=N,gid=N        show everything as owned by these\n"
	      "  -o umask=OCTAL        show modes without these bits\n"
	      "  -o attr_timeout=S     seconds the kernel keeps attributes (1)\n"
	      "  -o entry_timeout=S    seconds the kernel keeps names (1)\n"
	      "  -o negative_timeout=S seconds the kernel keeps that a name is missing (0)\n"
	      "  -o timeout=S          seconds after which a cluster out of reach is an error (30)\n"
	      "  -o log=FILE           where the log goes in the background (nowhere)\n"
	      "  -o metrics=HOST:PORT  answer http://HOST:PORT/metrics (not)\n"
	      "  -o overlay=DIR        where changes wait that are not at the end of a file (/var/tmp)\n"
	      "  -o overlay_size=MIB   and how much of them, of all files (1024)\n"
	      "  -o readahead=KIB      how far the kernel reads ahead; needs root (4096)\n"
	      "  -o threads=N          requests at the same time (500)\n"
	      "  -o streams=N          files written that keep their connection (1000); others connect anew\n"
	      "  -o passthrough        the kernel reads replicas on this machine by itself, unverified; needs root\n"
	      "  -o nonempty           mount over a directory that has entries\n"
	      "  -o conf=DIR           as --conf, for fstab\n"
	      "  -o sync               every write(2) is on the disks when it returns, as with O_SYNC\n"
	      "  and those of mount(8): rw, nosuid, nodev, noexec, noatime, ...\n",
	      stdout);
}

static int usage(const char *what, const char *arg)
{
	fprintf(stderr, "dfs-fuse: %s%s; see dfs-fuse --help\n", what, arg);
	return -1;
}

/* "hdfs://HOST:PORT/DIR" taken apart. */
static int take_source(struct options *o, const char *arg)
{
	const char *host = strncmp(arg, "hdfs://", 7) == 0 ? arg + 7 : NULL;
	const char *dir = host ? strchr(host, '/') : arg;

	if (!host && *arg != '/')
		return usage("an address begins with hdfs:// : ", arg);
	if (host && host != dir && *host)
		o->uri = dir ? strndup(arg, (size_t)(dir - arg)) : strdup(arg);
	o->dir = strdup(dir && *dir ? dir : "/");
	return 0;
}

static int on_operand(struct options *o, const char *arg)
{
	if (o->mountpoint && o->source)
		return usage("one operand too many: ", arg);
	if (!o->source && !o->mountpoint && strncmp(arg, "hdfs://", 7) == 0) {
		o->source = strdup(arg);
		return take_source(o, arg);
	}
	if (o->mountpoint) { /* two that are no address: the first is a directory of the cluster */
		o->source = o->mountpoint;
		o->mountpoint = NULL;
		if (take_source(o, o->source) < 0)
			return -1;
	}
	o->mountpoint = strdup(arg);
	return 0;
}

static int on_number(struct options *o, const char *arg)
{
	const struct number *n = NUMBERS;
	const char *text;
	char *end;
	double v;

	while (strncmp(arg, n->name, strlen(n->name)) != 0)
		n++;
	text = arg + strlen(n->name);
	v = n->kind == REAL ? strtod(text, &end) : (double)strtoll(text, &end, n->base);
	if (end == text || *end || !(v >= n->min && v <= n->max)) {
		fprintf(stderr,
			n->base == 8      ? "dfs-fuse: %s: takes an octal number up to 777\n"
			: n->kind == REAL ? "dfs-fuse: %s: takes seconds, not negative\n"
					  : "dfs-fuse: %s: takes a number from %.0f to %.0f\n",
			arg, n->min, n->max);
		return -1;
	}
	if (n->kind == REAL)
		*(double *)((char *)o + n->at) = v;
	else if (n->kind == UINT)
		*(unsigned int *)((char *)o + n->at) = (unsigned int)v;
	else
		*(int64_t *)((char *)o + n->at) = (int64_t)v;
	return 0;
}

static int on_option(void *data, const char *arg, int key, struct fuse_args *out)
{
	struct options *o = data;

	(void)out;
	switch (key) {
	case KEY_DEFINE:
		if (!strchr(arg, '=') || o->conf_count == CONF_MAX)
			return usage("-D takes KEY=VALUE: ", arg);
		o->conf[o->conf_count++] = strdup(arg + 2);
		return 0;
	case KEY_CONF:
		free(o->conf_dir);
		o->conf_dir = strdup(*arg == '-' ? arg + 6 : arg + 5);
		return 0;
	case KEY_DROP:
		return 0;
	case KEY_READ_ONLY:
		o->read_only = 1;
		return 1;
	case KEY_ALLOW_OTHER:
		o->allow_other = 1;
		return 1;
	case KEY_NUMBER:
		return on_number(o, arg);
	case KEY_FIXED:
		return usage("cannot be set, requests are of up to 1 MiB: ", arg);
	case KEY_REMOUNT:
		return usage("a mount keeps its options: unmount it and mount it anew, without ",
			     arg);
	case KEY_SYNC:
		o->sync = 1;
		return 1;
	case FUSE_OPT_KEY_NONOPT:
		return on_operand(o, arg);
	default:
		return strncmp(arg, "x-", 2) == 0 || strncmp(arg, "comment=", 8) == 0 ? 0 : 1;
	}
}

/* In the background there is no current directory. */
static int absolute(char **path)
{
	char at[PATH_MAX], *full;

	if (!*path || **path == '/')
		return 0;
	if (!getcwd(at, sizeof(at)) || asprintf(&full, "%s/%s", at, *path) < 0)
		return -1;
	free(*path);
	*path = full;
	return 0;
}

static int absolute_env(const char *name)
{
	const char *value = getenv(name);
	char *path = value && *value ? strdup(value) : NULL;
	int rc = absolute(&path);

	if (rc == 0 && path)
		rc = setenv(name, path, 1);
	free(path);
	return rc;
}

static int check(struct options *o)
{
	char full[PATH_MAX];

	if (!o->mountpoint)
		return usage("no mount point", "");
	if (!realpath(o->mountpoint, full)) {
		fprintf(stderr, "dfs-fuse: mount point %s: %s%s\n", o->mountpoint, strerror(errno),
			errno == ENOTCONN
				? "; a mount that died is there: `umount` (or `fusermount3 -u`) it first"
			: errno == ENOENT ? "; make it with `mkdir`"
					  : "");
		return -1;
	}
	free(o->mountpoint);
	o->mountpoint = strdup(full);
	if (absolute(&o->conf_dir) < 0 || absolute(&o->state) < 0 ||
	    absolute_env("HADOOP_CONF_DIR") < 0)
		return usage("the current directory is gone", "");
	if (!o->dir)
		o->dir = strdup("/");
	return 0;
}

bool options_parse(struct options *o, struct fuse_args *args, int *ret_exit)
{
	*o = (struct options){
		.attr_timeout = 1.0,
		.entry_timeout = 1.0,
		.uid = -1,
		.gid = -1,
		.umask = -1,
		.timeout_s = 30,
		.threads = 500,
		.streams = 1000,
		.overlay_mib = 1024,
		.readahead_kib = 4096,
	};
	*ret_exit = EXIT_USAGE;
	if (fuse_opt_parse(args, o, OPTIONS, on_option) == -1)
		return false;
	if (o->help || o->version) {
		if (o->help)
			help();
		else
			fputs("dfs-rdma " DFS_VERSION "\n", stdout);
		*ret_exit = 0;
		return false;
	}
	if (o->debug) {
		o->foreground = 1;
		fuse_opt_add_arg(args, "-d");
	}
	return check(o) == 0;
}

void options_free(struct options *o)
{
	free(o->uri);
	free(o->dir);
	free(o->source);
	free(o->mountpoint);
	free(o->conf_dir);
	free(o->log);
	free(o->metrics);
	free(o->state);
	for (unsigned int i = 0; i < o->conf_count; i++)
		free((char *)o->conf[i]);
}
