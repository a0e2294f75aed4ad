/* SPDX-License-Identifier: Apache-2.0 */
/* -getfattr, -setfattr, and -getfacl, -setfacl, which are those of dfs acl. */
#include <ctype.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/shell/shell.h"

#define VALUE_MAX (1u << 20)

/* ---- access control lists ---- */

/* dfs acl @operation [@entries] of the items. */
static int run_acl(struct shell *s, const char *operation, char *entries)
{
	char **argv = calloc(s->count + 3, sizeof(*argv)), *first = cli_strdup(operation);
	int n = 0, rc;

	if (!argv)
		return cli_fail_errno(&s->c, "memory", -ENOMEM, NULL);
	argv[n++] = first;
	if (entries)
		argv[n++] = entries;
	for (size_t i = 0; i < s->count; i++) {
		if (s->item[i].exists)
			argv[n++] = s->item[i].path;
		else
			shell_fail(s, s->item[i].shown, -ENOENT, NULL);
	}
	free(s->c.argv);
	s->c.argv = argv;
	s->c.argc = n;
	s->c.recursive = shell_flag(s, "R");
	rc = n > 1 + !!entries ? cmd_acl(&s->c) : EXIT_OK;
	free(first);
	return rc;
}

int shell_getfacl(struct shell *s)
{
	shell_expand(s, 0, 1);
	return run_acl(s, "get", NULL);
}

int shell_setfacl(struct shell *s)
{
	static const char *const flags[] = {"b", "k", "m", "x", "-set"};
	static const char *const operations[] = {"clear", "clear-default", "modify", "remove",
						 "set"};
	int given = 0, which = 0;

	for (int i = 0; i < 5; i++) {
		if (!shell_flag(s, flags[i]))
			continue;
		which = i;
		given++;
	}
	if (given > 1)
		return shell_usage(s, "Specified flags contains both remove and modify flags",
				   NULL);
	if (!given)
		return shell_usage(s, "one of -b, -k, -m, -x and --set is missing", NULL);
	if (which >= 2 && s->c.argc < 2)
		return shell_usage(s, "<acl_spec> is missing", NULL);
	if (s->c.argc > 1 + (which >= 2))
		return shell_usage(s, "Too many arguments", NULL);
	shell_expand(s, which >= 2, s->c.argc);
	return run_acl(s, operations[which], which >= 2 ? s->c.argv[0] : NULL);
}

/* ---- extended attributes ---- */

enum code { TEXT, HEX, BASE64 };

static bool parse_code(const char *text, enum code *ret)
{
	static const char *const names[] = {"text", "hex", "base64"};

	for (int i = 0; i < 3; i++) {
		if (strcasecmp(text, names[i]) != 0)
			continue;
		*ret = (enum code)i;
		return true;
	}
	return false;
}

static void print_value(const char *name, const unsigned char *p, size_t n, enum code code)
{
	unsigned char part[8];

	fputs(cli_name(name), stdout);
	if (n && code == TEXT) {
		printf("=\"");
		(void)fwrite(p, 1, n, stdout);
		putchar('"');
	} else if (n && code == HEX) {
		printf("=0x");
		for (size_t i = 0; i < n; i++)
			printf("%02x", p[i]);
	} else if (n) {
		printf("=0s");
		for (size_t i = 0; i < n; i += 3) {
			(void)EVP_EncodeBlock(part, p + i, n - i < 3 ? (int)(n - i) : 3);
			fputs((char *)part, stdout);
		}
	}
	putchar('\n');
}

struct dump {
	const char *name; /* NULL: all */
	enum code code;
	char *names;          /* VALUE_MAX bytes */
	unsigned char *value; /* the same */
};

static void dump_one(struct shell *s, const struct shell_item *it, const struct dump *d,
		     const char *name)
{
	struct dfs_err err = {0};
	const ssize_t n = dfs_get_xattr(s->c.fs, it->path, name, d->value, VALUE_MAX, &err);

	if (n >= 0)
		print_value(name, d->value, (size_t)n, d->code);
	else if (n != -ENODATA || d->name) /* else it went meanwhile */
		cli_fail(&s->c, NULL, err.text);
}

static void getfattr_one(struct shell *s, const struct shell_item *it, void *arg)
{
	const struct dump *d = arg;
	struct dfs_err err = {0};
	ssize_t n = 0;

	printf("# file: %s\n", cli_name(it->shown));
	if (d->name)
		dump_one(s, it, d, d->name);
	else
		n = dfs_list_xattrs(s->c.fs, it->path, d->names, VALUE_MAX, &err);
	if (n < 0)
		shell_fail(s, it->shown, (int)n, &err);
	for (ssize_t i = 0; i < n; i += (ssize_t)strlen(d->names + i) + 1)
		dump_one(s, it, d, d->names + i);
	if (shell_flag(s, "R") && it->st.type == DFS_DIR)
		shell_children(s, it, getfattr_one, arg);
}

int shell_getfattr(struct shell *s)
{
	const char *code = shell_option(&s->options, "e");
	struct dump d = {.name = shell_option(&s->options, "n")};

	if (!d.name && !shell_flag(s, "d"))
		return shell_usage(s, "Must specify '-n name' or '-d' option.", NULL);
	if (code && !parse_code(code, &d.code))
		return shell_usage(s, "-e takes text, hex or base64, not ", code);
	if (shell_flag(s, "d"))
		d.name = NULL;
	d.names = malloc(VALUE_MAX);
	d.value = malloc(VALUE_MAX);
	shell_expand(s, 0, 1);
	for (size_t i = 0; i < s->count && d.names && d.value; i++) {
		if (s->item[i].exists)
			getfattr_one(s, &s->item[i], &d);
		else
			shell_fail(s, s->item[i].shown, -ENOENT, NULL);
	}
	if (!d.names || !d.value)
		cli_fail_errno(&s->c, "memory", -ENOMEM, NULL);
	free(d.names);
	free(d.value);
	return EXIT_OK;
}

static bool from_hex(const char *text, unsigned char *ret, size_t *ret_len)
{
	char two[3] = "";

	for (*ret_len = 0; *text; text += 2) {
		if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]))
			return false;
		memcpy(two, text, 2);
		ret[(*ret_len)++] = (unsigned char)strtoul(two, NULL, 16);
	}
	return true;
}

static bool from_base64(const char *text, unsigned char *ret, size_t *ret_len)
{
	const size_t n = strlen(text);
	const int len = n % 4 ? -1 : EVP_DecodeBlock(ret, (const unsigned char *)text, (int)n);

	if (len < 0)
		return false;
	*ret_len = (size_t)len;
	for (size_t i = n; i && i + 2 > n && text[i - 1] == '='; i--)
		--*ret_len;
	return true;
}

/* What -v means, into @ret, which has room for as many bytes as @text, and 3. */
static bool parse_value(const char *text, unsigned char *ret, size_t *ret_len)
{
	const size_t n = strlen(text);

	if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
		memcpy(ret, text + 1, n - 2);
		*ret_len = n - 2;
		return true;
	}
	if (!strncasecmp(text, "0x", 2))
		return from_hex(text + 2, ret, ret_len);
	if (!strncasecmp(text, "0s", 2))
		return from_base64(text + 2, ret, ret_len);
	memcpy(ret, text, n);
	*ret_len = n;
	return true;
}

int shell_setfattr(struct shell *s)
{
	const char *name = shell_option(&s->options, "n"), *gone = shell_option(&s->options, "x");
	const char *text = shell_option(&s->options, "v");
	unsigned char *value;
	size_t len = 0;

	if (name && gone)
		return shell_usage(s, "Can not specify both '-n name' and '-x name' option.", NULL);
	if (!name && !gone)
		return shell_usage(s, "Must specify '-n name' or '-x name' option.", NULL);
	value = calloc(1, (text ? strlen(text) : 0) + 4);
	if (!value)
		return cli_fail_errno(&s->c, "memory", -ENOMEM, NULL);
	if (text && !parse_value(text, value, &len)) {
		free(value);
		return shell_usage(s, "neither hexadecimal nor base64: ", text);
	}
	shell_expand(s, 0, 1);
	for (size_t i = 0; i < s->count; i++) {
		const struct shell_item *it = &s->item[i];
		struct dfs_err err = {0};
		int rc = it->exists ? 0 : -ENOENT;

		if (!rc)
			rc = name ? dfs_set_xattr(s->c.fs, it->path, name, value, len, 0, &err)
				  : dfs_remove_xattr(s->c.fs, it->path, gone, &err);
		if (rc < 0)
			shell_fail(s, it->shown, rc, &err);
	}
	free(value);
	return EXIT_OK;
}
