/* SPDX-License-Identifier: Apache-2.0 */
/* What the configuration says about the data directories: the keys and the habits of a Java
 * DataNode, so that its hdfs-site.xml works as it is. */
#include "datanode/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

#define SCAN_PERIOD_HOURS 504 /* of scan.period.hours 0, as a Java DataNode has it */
#define KEY_MAX 4400          /* a key with a path in it */

static int parse_type(const char *text, size_t len, enum storage_type *ret)
{
	static const struct {
		const char *name;
		enum storage_type type;
	} types[] = {
		{"DISK", STORAGE_DISK},       {"SSD", STORAGE_SSD},
		{"ARCHIVE", STORAGE_ARCHIVE}, {"RAM_DISK", STORAGE_RAM_DISK},
		{"NVDIMM", STORAGE_NVDIMM},
	};

	if (!len) { /* "[]/path" is legal, and means what no tag means */
		*ret = STORAGE_DISK;
		return 0;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strlen(types[i].name) == len && !strncasecmp(types[i].name, text, len)) {
			*ret = types[i].type;
			return 0;
		}
	return -EINVAL;
}

static const char *type_key(enum storage_type t)
{
	switch (t) {
	case STORAGE_SSD:
		return "ssd";
	case STORAGE_ARCHIVE:
		return "archive";
	case STORAGE_RAM_DISK:
		return "ram_disk";
	case STORAGE_NVDIMM:
		return "nvdimm";
	case STORAGE_PROVIDED:
		return "provided";
	case STORAGE_DISK:
		break;
	}
	return "disk";
}

/* One slash for several, none at the end: what Java's File makes of a path. */
static void condense(char *path)
{
	char *out = path;

	for (const char *in = path; *in; in++)
		if (*in != '/' || out == path || out[-1] != '/')
			*out++ = *in;
	if (out > path + 1 && out[-1] == '/')
		out--;
	*out = '\0';
}

/* The path behind "file:", "file://" or "file://localhost", if that is there. */
static const char *skip_scheme(const char *p)
{
	if (strncmp(p, "file:", 5))
		return p;
	p += 5;
	if (p[0] == '/' && p[1] == '/') {
		p += 2;
		if (!strncmp(p, "localhost/", 10))
			p += 9;
	}
	return p;
}

/* "[SSD]file:///a b" -> type and path (malloc'ed). -EINVAL. */
static int parse_dir(const char *text, struct store_volume_opts *ret, struct err *err)
{
	const char *p = text, *end;
	char *path;

	*ret = (struct store_volume_opts){.type = STORAGE_DISK};
	if (*p == '[') {
		end = strchr(p, ']');
		if (end && end - p == 9 && !strncasecmp(p, "[PROVIDED", 9))
			return err_set(
				err, -EINVAL,
				"dfs.datanode.data.dir: %s: a PROVIDED volume shows data of another "
				"store, which this data node cannot; remove it from the list",
				text);
		if (!end || parse_type(p + 1, (size_t)(end - p - 1), &ret->type))
			return err_set(err, -EINVAL,
				       "dfs.datanode.data.dir: %s: the storage type must be "
				       "[DISK], [SSD], [ARCHIVE], [RAM_DISK] or [NVDIMM]",
				       text);
		p = end + 1;
		while (*p == ' ' || *p == '\t')
			p++;
	}
	p = skip_scheme(p);
	if (*p != '/')
		return err_set(err, -EINVAL, "dfs.datanode.data.dir: %s is not an absolute path",
			       text);
	path = strdup(p);
	if (!path)
		return err_sys(err, -ENOMEM, "dfs.datanode.data.dir");
	/* No %20: a Java DataNode takes the path of such a URL as it is written (and 3.4.2 then
	 * dies of the percent sign). */
	condense(path);
	ret->path = path;
	return 0;
}

/* ---- numbers that may be negative, by which Java switches things off ---- */

static int read_signed(const struct conf *conf, const char *key, long long dflt, long long *ret,
		       struct err *err)
{
	const char *text = conf_get(conf, key);
	char *end;

	*ret = dflt;
	if (!text || !text[0])
		return 0;
	errno = 0;
	*ret = strtoll(text, &end, 10);
	while (*end == ' ')
		end++;
	if (errno || *end || end == text)
		return err_set(err, -EINVAL, "%s=%s is not a number", key, text);
	return 0;
}

/* ---- reserved space ---- */

/* The most special of @key.DIR.TYPE, @key.DIR, @key.TYPE and @key that is set. */
static const char *reserve_key(const struct conf *conf, char buf[KEY_MAX], const char *key,
			       const struct store_volume_opts *v)
{
	(void)snprintf(buf, KEY_MAX, "%s.%s.%s", key, v->path, type_key(v->type));
	if (conf_get(conf, buf))
		return buf;
	(void)snprintf(buf, KEY_MAX, "%s.%s", key, v->path);
	if (conf_get(conf, buf))
		return buf;
	(void)snprintf(buf, KEY_MAX, "%s.%s", key, type_key(v->type));
	return conf_get(conf, buf) ? buf : key;
}

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), t = strlen(tail);

	return n >= t && !strcmp(s + n - t, tail);
}

/* Which calculator, by the simple name of Hadoop's class. */
static enum store_reserve reserve_mode(const struct conf *conf)
{
	const char *name = conf_get_or(conf, "dfs.datanode.du.reserved.calculator", "");

	if (ends_with(name, "ReservedSpaceCalculatorPercentage"))
		return STORE_RESERVE_PERCENT;
	if (ends_with(name, "ReservedSpaceCalculatorConservative"))
		return STORE_RESERVE_LARGER;
	if (ends_with(name, "ReservedSpaceCalculatorAggressive"))
		return STORE_RESERVE_SMALLER;
	if (name[0] && !ends_with(name, "ReservedSpaceCalculatorAbsolute"))
		log_warn(
			"op=options key=dfs.datanode.du.reserved.calculator value=%s: not known, the bytes "
			"of dfs.datanode.du.reserved count",
			name);
	return STORE_RESERVE_BYTES;
}

static int read_reserved(const struct conf *conf, struct store_volume_opts *v, struct err *err)
{
	char buf[KEY_MAX];
	long long pct = 0;
	const char *key = reserve_key(conf, buf, "dfs.datanode.du.reserved", v);
	int rc = conf_size(conf, key, 0, &v->reserved, err);

	v->reserve = reserve_mode(conf);
	key = reserve_key(conf, buf, "dfs.datanode.du.reserved.pct", v);
	if (!rc)
		rc = read_signed(conf, key, 0, &pct, err);
	if (!rc && (pct < 0 || pct > 100))
		rc = err_set(err, -EINVAL, "%s=%lld is not a percentage, 0 to 100", key, pct);
	v->reserved_pct = (uint32_t)pct;
	return rc;
}

/* ---- what holds for all of them ---- */

static int read_mode(const struct conf *conf, struct dn_options *o, struct err *err)
{
	const char *text = conf_get_or(conf, "dfs.datanode.data.dir.perm", "700");
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (*end || end == text || mode > 07777)
		return err_set(err, -EINVAL,
			       "dfs.datanode.data.dir.perm=%s is not an octal mode such as 700",
			       text);
	if ((mode & 0700) != 0700)
		return err_set(err, -EINVAL,
			       "dfs.datanode.data.dir.perm=%s would keep this data node itself out",
			       text);
	o->dir_mode = (uint32_t)mode;
	return 0;
}

static void read_choosing(const struct conf *conf, struct dn_options *o)
{
	static const char key[] = "dfs.datanode.fsdataset.volume.choosing.policy";
	const char *name = conf_get_or(conf, key, "");

	o->available_space = ends_with(name, "AvailableSpaceVolumeChoosingPolicy");
	if (name[0] && !o->available_space && !ends_with(name, "RoundRobinVolumeChoosingPolicy"))
		log_warn("op=options key=%s value=%s: not known, directories take turns", key,
			 name);
}

/* Each is off, in Java's ways, with a period below 0 or a rate of 0. */
static int read_scan(const struct conf *conf, struct store_scan_opts *o, struct err *err)
{
	static const char interval[] = "dfs.datanode.directoryscan.interval";
	long long hours = 0, ms = 0, rate = 0, limit = 0;
	int rc =
		read_signed(conf, "dfs.datanode.scan.period.hours", SCAN_PERIOD_HOURS, &hours, err);

	if (!rc)
		rc = read_signed(conf, "internal.dfs.datanode.scan.period.ms.key", 0, &ms, err);
	if (!rc)
		rc = read_signed(conf, "dfs.block.scanner.volume.bytes.per.second", 1 << 20, &rate,
				 err);
	if (!rc)
		rc = read_signed(conf, "dfs.datanode.directoryscan.throttle.limit.ms.per.sec", -1,
				 &limit, err);
	if (!rc)
		rc = conf_time_ms(conf, "dfs.block.scanner.cursor.save.interval.ms", 600000,
				  &o->cursor_save_ms, err);
	if (!rc && conf_get_or(conf, interval, "0")[0] != '-')
		rc = conf_time_ms(conf, interval, 21600000, &o->directory_ms, err);
	if (rc)
		return rc;
	if (hours == 0)
		hours = SCAN_PERIOD_HOURS;
	if (hours > 24 * 365 * 100)
		hours = 24 * 365 * 100;
	o->block_ms = hours < 0 ? 0 : (uint64_t)hours * 3600000;
	if (ms > 0)
		o->block_ms = (uint64_t)ms;
	o->block_rate = rate < 0 ? 0 : (uint64_t)rate;
	o->directory_ms_per_s = limit > 0 && limit < 1000 ? (uint32_t)limit : 1000;
	return 0;
}

static int read_tolerated(const struct conf *conf, struct dn_options *o, struct err *err)
{
	long long n = 0;
	int rc = read_signed(conf, "dfs.datanode.failed.volumes.tolerated", 0, &n, err);

	if (rc)
		return rc;
	if (n == -1) /* Java's word for: as long as one is left */
		n = (long long)o->dir_count - 1;
	if (n < 0 || n >= (long long)o->dir_count)
		return err_set(
			err, -EINVAL,
			"dfs.datanode.failed.volumes.tolerated is %lld; it must be less than the "
			"number of directories, %u, or -1",
			n, o->dir_count);
	o->failed_tolerated = (uint32_t)n;
	/* Who says nothing wants a node to go on with what is left; who says a number means it. */
	o->disks_min = conf_is_set(conf, "dfs.datanode.failed.volumes.tolerated")
			       ? o->dir_count - (uint32_t)n
			       : 1;
	return 0;
}

/* A directory named twice would be locked by ourselves: say what is wrong instead. */
static int check_twice(const struct dn_options *o, const char *path, struct err *err)
{
	for (uint32_t i = 0; i < o->dir_count; i++)
		if (!strcmp(o->dirs[i].path, path))
			return err_set(err, -EINVAL, "dfs.datanode.data.dir names %s twice", path);
	return 0;
}

static int read_dirs(const struct conf *conf, struct dn_options *o, struct err *err)
{
	char **list = NULL;
	int rc = conf_list(conf, "dfs.datanode.data.dir", &list);

	for (char **s = list; !rc && *s; s++) {
		struct store_volume_opts *v = &o->dirs[o->dir_count];

		if (o->dir_count == DN_DIRS_MAX) {
			rc = err_set(err, -EINVAL,
				     "dfs.datanode.data.dir names more than %d directories",
				     DN_DIRS_MAX);
			break;
		}
		rc = parse_dir(*s, v, err);
		if (rc)
			break;
		rc = check_twice(o, v->path, err);
		o->dir_count++; /* dn_options_fini() frees its path */
		if (!rc)
			rc = read_reserved(conf, v, err);
	}
	conf_list_free(list);
	if (!rc && !o->dir_count)
		rc = err_set(err, -EINVAL,
			     "dfs.datanode.data.dir is empty; name a directory for blocks");
	return rc;
}

int dn_volume_options_read(const struct conf *conf, struct dn_options *o, struct err *err)
{
	int rc = read_dirs(conf, o, err);

	if (!rc)
		rc = read_tolerated(conf, o, err);
	if (!rc)
		rc = read_mode(conf, o, err);
	if (!rc)
		rc = read_scan(conf, &o->scan, err);
	if (!rc)
		rc = conf_time_ms(conf, "dfs.datanode.disk.check.timeout", 30000, &o->answer_ms,
				  err);
	if (!rc)
		rc = conf_bool(conf, "dfs.datanode.duplicate.replica.deletion", true,
			       &o->delete_duplicates, err);
	if (!rc)
		rc = conf_bool(conf, "dfs.datanode.block-pinning.enabled", false, &o->pinning, err);
	if (!rc)
		read_choosing(conf, o);
	return rc;
}
