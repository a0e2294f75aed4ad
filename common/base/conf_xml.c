/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: the XML of Hadoop, a folder of them, and XInclude. */
#include "common/base/conf.h"

#include <expat.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/conf_internal.h"

#define CONF_FILE_MAX (16u << 20)
#define CONF_INCLUDE_DEPTH_MAX 8
#define CONF_DIR_DEFAULT "/etc/hadoop/conf"

enum field { F_NONE, F_NAME, F_VALUE, F_FINAL, F_COUNT };

struct load {
	struct conf *c;
	const char *path;
	struct err *err;
	XML_Parser xml;
	int rc; /* first error of ours; the parser is stopped */
	unsigned int include_depth;
	bool in_root;
	bool in_property;
	enum field field; /* being read into text[field] */
	char *text[F_COUNT];
	size_t len[F_COUNT];
};

static int load_file(struct conf *c, const char *path, unsigned int depth, struct err *err);

static void fail(struct load *l, int rc)
{
	if (l->rc)
		return;
	l->rc = rc;
	(void)XML_StopParser(l->xml, XML_FALSE);
}

static void append(struct load *l, enum field f, const char *s, size_t n)
{
	char *text = (char *)realloc(l->text[f], l->len[f] + n + 1);

	if (!text) {
		fail(l, err_set(l->err, -ENOMEM, "out of memory"));
		return;
	}
	memcpy(text + l->len[f], s, n);
	l->len[f] += n;
	text[l->len[f]] = '\0';
	l->text[f] = text;
}

static void clear_property(struct load *l)
{
	for (int f = 0; f < F_COUNT; f++) {
		free(l->text[f]);
		l->text[f] = NULL;
		l->len[f] = 0;
	}
	l->field = F_NONE;
}

static enum field field_of(const char *tag)
{
	if (!strcmp(tag, "name"))
		return F_NAME;
	if (!strcmp(tag, "value"))
		return F_VALUE;
	return !strcmp(tag, "final") ? F_FINAL : F_NONE;
}

static void include(struct load *l, const char *href)
{
	const char *slash = strrchr(l->path, '/');
	int dir_len = slash && *href != '/' ? (int)(slash - l->path) + 1 : 0;
	_cleanup_free_ char *path = NULL;
	int rc;

	if (asprintf(&path, "%.*s%s", dir_len, l->path, href) < 0) {
		path = NULL;
		fail(l, err_set(l->err, -ENOMEM, "out of memory"));
		return;
	}
	rc = load_file(l->c, path, l->include_depth + 1, l->err);
	if (rc < 0) {
		err_prefix(l->err, "%s line %lu", l->path, XML_GetCurrentLineNumber(l->xml));
		fail(l, rc == -ENOENT ? -EINVAL : rc);
	}
}

static void XMLCALL on_start(void *arg, const char *tag, const char **attr)
{
	struct load *l = (struct load *)arg;

	if (!l->in_root && !l->include_depth && strcmp(tag, "configuration"))
		fail(l,
		     err_set(l->err, -EINVAL,
			     "%s line %lu: <%.64s> stands where <configuration> must: not a Hadoop "
			     "configuration file",
			     l->path, XML_GetCurrentLineNumber(l->xml), tag));
	l->in_root = true;
	if (!strcmp(tag, "property")) {
		clear_property(l);
		l->in_property = true;
		for (; attr[0]; attr += 2)
			if (field_of(attr[0]) != F_NONE)
				append(l, field_of(attr[0]), attr[1], strlen(attr[1]));
	} else if (!strcmp(tag, "xi:include")) {
		for (; attr[0]; attr += 2)
			if (!strcmp(attr[0], "href"))
				include(l, attr[1]);
	} else if (l->in_property) {
		/* <value/> brings no text: as for Hadoop, it sets nothing */
		l->field = field_of(tag);
	}
}

static void XMLCALL on_text(void *arg, const char *s, int len)
{
	struct load *l = (struct load *)arg;

	if (l->field != F_NONE)
		append(l, l->field, s, (size_t)len);
}

static void end_property(struct load *l)
{
	const char *key = l->text[F_NAME] ? conf_trim(l->text[F_NAME]) : "";
	char *value;
	bool is_final;

	if (!*key) {
		fail(l, err_set(l->err, -EINVAL, "%s line %lu: property without a name", l->path,
				XML_GetCurrentLineNumber(l->xml)));
		return;
	}
	is_final = l->text[F_FINAL] && !strcasecmp(conf_trim(l->text[F_FINAL]), "true");
	value = l->text[F_VALUE];
	if (value && !conf_keeps_blanks(l->c))
		value = conf_trim(value);
	if (value && conf_set_from_file(l->c, key, value, l->path, is_final) < 0)
		fail(l, err_set(l->err, -ENOMEM, "out of memory"));
}

static void XMLCALL on_end(void *arg, const char *tag)
{
	struct load *l = (struct load *)arg;

	l->field = F_NONE;
	if (strcmp(tag, "property") || l->rc)
		return;
	end_property(l);
	l->in_property = false;
	clear_property(l);
}

static int parse_all(struct load *l, FILE *f)
{
	char buf[8192];
	size_t n, total = 0;

	do {
		n = fread(buf, 1, sizeof(buf), f);
		total += n;
		if (ferror(f))
			return err_sys(l->err, neg_errno(), "cannot read %s", l->path);
		if (total > CONF_FILE_MAX)
			return err_set(l->err, -EFBIG,
				       "%s is larger than %u MiB: not a configuration file",
				       l->path, CONF_FILE_MAX >> 20);
		if (XML_Parse(l->xml, buf, (int)n, n < sizeof(buf)) != XML_STATUS_OK)
			return l->rc ? l->rc
				     : err_set(l->err, -EINVAL,
					       "%s line %lu: %s; this is no well-formed XML: is "
					       "every tag closed, and & written as &amp;?",
					       l->path, XML_GetCurrentLineNumber(l->xml),
					       XML_ErrorString(XML_GetErrorCode(l->xml)));
	} while (n == sizeof(buf));
	return l->rc;
}

static int load_file(struct conf *c, const char *path, unsigned int depth, struct err *err)
{
	struct load l = {.c = c, .path = path, .err = err, .include_depth = depth};
	_cleanup_fclose_ FILE *f = NULL;
	int rc;

	if (depth > CONF_INCLUDE_DEPTH_MAX)
		return err_set(err, -EINVAL, "%s: more than %d nested includes", path,
			       CONF_INCLUDE_DEPTH_MAX);
	f = fopen(path, "re");
	if (!f)
		return err_sys(err, neg_errno(), "cannot open %s", path);
	l.xml = XML_ParserCreate(NULL);
	if (!l.xml)
		return err_set(err, -ENOMEM, "out of memory");
	XML_SetUserData(l.xml, &l);
	XML_SetElementHandler(l.xml, on_start, on_end);
	XML_SetCharacterDataHandler(l.xml, on_text);
	rc = parse_all(&l, f);
	XML_ParserFree(l.xml);
	clear_property(&l);
	return rc;
}

int conf_load_file(struct conf *c, const char *path, struct err *err)
{
	return load_file(c, path, 0, err);
}

int conf_load_dir(struct conf *c, const char *dir, struct err *err)
{
	static const char *const files[] = {"core-site.xml", "hdfs-site.xml"};

	const char *from_env = dir ? NULL : getenv("HADOOP_CONF_DIR");

	if (from_env && *from_env)
		dir = from_env;
	if (dir && access(dir, R_OK | X_OK) < 0) {
		err_sys(err, neg_errno(), "configuration directory %s%s", dir,
			dir == from_env ? " (HADOOP_CONF_DIR)" : "");
		return err_cure(err, "name the folder of core-site.xml and hdfs-site.xml");
	}
	if (!dir)
		dir = CONF_DIR_DEFAULT;
	if (!access(dir, R_OK | X_OK) && conf_note_dir(c, dir))
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		_cleanup_free_ char *path = NULL;
		int rc;

		if (asprintf(&path, "%s/%s", dir, files[i]) < 0) {
			path = NULL;
			return err_set(err, -ENOMEM, "out of memory");
		}
		rc = conf_load_file(c, path, err);
		if (rc < 0 && rc != -ENOENT)
			return rc;
		if (rc == -ENOENT && err)
			*err = ERR_INIT;
	}
	return 0;
}
