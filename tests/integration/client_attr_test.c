/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes and symbolic links through libdfsclient on a running cluster
 * (HADOOP_CONF_DIR). Links are tested where the NameNode has them; elsewhere they must be refused
 * with EOPNOTSUPP. Prints a line for each failure. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/include/dfsclient.h"

static struct dfs *fs;
static char dir[64];
static int failures;

static void expect(long long rc, long long want, const struct dfs_err *err, const char *what)
{
	if (rc == want)
		return;
	failures++;
	printf("FAIL %s: %lld, not %lld: %s\n", what, rc, want, rc < 0 ? err->text : "");
}

static const char *at(const char *name)
{
	static char buf[4][256];
	static unsigned int turn;
	char *p = buf[turn++ % 4];

	snprintf(p, sizeof(buf[0]), "%s/%s", dir, name);
	return p;
}

static void make_file(const char *name)
{
	const struct dfs_create_opts opts = {.size = sizeof(opts)};
	struct dfs_err err = {0};
	struct dfs_file *f = NULL;

	expect(dfs_create(fs, at(name), &opts, &f, &err), 0, &err, "create");
	if (f)
		expect(dfs_close(f, &err), 0, &err, "close");
}

static void attributes(void)
{
	static const char names[] = "user.b\0user.a";
	char buf[64] = "", *big = calloc(1, 20000);
	struct dfs_err err = {0};
	char name[16];

	make_file("f");
	expect(dfs_list_xattrs(fs, at("f"), NULL, 0, &err), 0, &err, "none");
	expect(dfs_set_xattr(fs, at("f"), "user.a", "123", 3, DFS_XATTR_REPLACE, &err), -ENODATA,
	       &err, "replace none");
	expect(dfs_set_xattr(fs, at("f"), "user.a", "123", 3, DFS_XATTR_CREATE, &err), 0, &err,
	       "create");
	expect(dfs_set_xattr(fs, at("f"), "user.a", "1", 1, DFS_XATTR_CREATE, &err), -EEXIST, &err,
	       "create again");
	expect(dfs_set_xattr(fs, at("f"), "user.b", "", 0, 0, &err), 0, &err, "an empty one");
	expect(dfs_get_xattr(fs, at("f"), "user.a", buf, 2, &err), -ERANGE, &err, "too small");
	expect(dfs_get_xattr(fs, at("f"), "user.a", buf, sizeof(buf), &err), 3, &err, "get");
	expect(memcmp(buf, "123", 3), 0, &err, "the value");
	expect(dfs_get_xattr(fs, at("f"), "user.b", buf, sizeof(buf), &err), 0, &err,
	       "get an empty one");
	expect(dfs_list_xattrs(fs, at("f"), buf, sizeof(buf), &err), sizeof(names), &err, "list");
	expect(memcmp(buf, names, sizeof(names)), 0, &err, "the names");
	expect(dfs_set_xattr(fs, at("f"), "user.big", big, 20000, 0, &err), -E2BIG, &err,
	       "too large");
	for (int i = 2; i < 32; i++) {
		snprintf(name, sizeof(name), "user.n%d", i);
		expect(dfs_set_xattr(fs, at("f"), name, big, 100, 0, &err), 0, &err, name);
	}
	expect(dfs_set_xattr(fs, at("f"), "user.more", "1", 1, 0, &err), -E2BIG, &err, "too many");
	expect(dfs_set_xattr(fs, at("f"), "system.a", "1", 1, 0, &err), -EACCES, &err, "system");
	expect(dfs_remove_xattr(fs, at("f"), "user.a", &err), 0, &err, "remove");
	expect(dfs_remove_xattr(fs, at("f"), "user.a", &err), -ENODATA, &err, "remove again");
	expect(dfs_get_xattr(fs, at("f"), "user.a", buf, sizeof(buf), &err), -ENODATA, &err,
	       "get none");
	expect(dfs_get_xattr(fs, at("none"), "user.a", buf, sizeof(buf), &err), -ENOENT, &err,
	       "of nothing");
	free(big);
}

/* One letter of scope and type each, name, rights: "a u:x 7;a g: 5;..." */
static const char *acl_text(const char *name)
{
	static char text[512];
	struct dfs_err err = {0};
	struct dfs_acl *l = NULL;
	size_t n = 0;

	text[0] = '\0';
	expect(dfs_get_acl(fs, at(name), &l, &err), 0, &err, "get a list");
	for (size_t i = 0; l && i < l->count && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%c%c%s%u ",
				      "ad"[l->entry[i].scope], "ugmo"[l->entry[i].type],
				      l -> entry[i].name, l->entry[i].perm);
	dfs_acl_free(l);
	return text;
}

static void lists(void)
{
	static const struct dfs_acl_entry add[] = {{DFS_ACL_ACCESS, DFS_ACL_USER, 6, "alice"},
						   {DFS_ACL_ACCESS, DFS_ACL_GROUP, 4, "team"}};
	static const struct dfs_acl_entry whole[] = {{DFS_ACL_ACCESS, DFS_ACL_USER, 7, NULL},
						     {DFS_ACL_ACCESS, DFS_ACL_USER, 5, "bob"},
						     {DFS_ACL_ACCESS, DFS_ACL_GROUP, 0, ""},
						     {DFS_ACL_ACCESS, DFS_ACL_MASK, 1, NULL},
						     {DFS_ACL_ACCESS, DFS_ACL_OTHER, 0, NULL}};
	static const struct dfs_acl_entry preset[] = {{DFS_ACL_DEFAULT, DFS_ACL_USER, 6, "bob"}};
	struct dfs_err err = {0};
	struct dfs_stat st = {0};
	struct dfs_acl *l = NULL;

	make_file("acl");
	expect(dfs_mkdir(fs, at("acls"), 0750, false, &err), 0, &err, "mkdir");
	expect(dfs_set_permission(fs, at("acl"), 0640, &err), 0, &err, "chmod");
	expect(strcmp(acl_text("acl"), "au6 ag4 ao0 "), 0, &err, "the bits are a list");
	expect(dfs_modify_acl(fs, at("acl"), add, 2, &err), 0, &err, "modify");
	expect(strcmp(acl_text("acl"), "au6 aualice6 ag4 agteam4 am6 ao0 "), 0, &err,
	       "with a mask");
	expect(dfs_stat(fs, at("acl"), &st, &err), 0, &err, "stat");
	expect(st.has_acl && st.mode == 0660, 1, &err, "the mask in the group's bits");
	expect(dfs_set_acl(fs, at("acl"), whole, 5, &err), 0, &err, "set");
	expect(strcmp(acl_text("acl"), "au7 aubob5 ag0 am1 ao0 "), 0, &err, "as it was set");
	expect(dfs_get_acl(fs, at("acl"), &l, &err), 0, &err, "get");
	expect(dfs_set_acl(fs, at("acl"), l->entry, l->count, &err), 0, &err, "set what was got");
	dfs_acl_free(l);
	expect(strcmp(acl_text("acl"), "au7 aubob5 ag0 am1 ao0 "), 0, &err,
	       "which changes nothing");
	expect(dfs_remove_acl_entries(fs, at("acl"), &whole[1], 1, &err), 0, &err, "remove one");
	expect(dfs_remove_acl(fs, at("acl"), &err), 0, &err, "remove all");
	expect(strcmp(acl_text("acl"), "au7 ag0 ao0 "), 0, &err, "the bits are left");
	expect(dfs_set_acl(fs, at("acl"), whole, 2, &err), -EINVAL, &err, "no group and others");
	expect(dfs_modify_acl(fs, at("acl"), preset, 1, &err), -EINVAL, &err,
	       "default entries of a file");
	expect(dfs_modify_acl(fs, at("acls"), preset, 1, &err), 0, &err, "and of a directory");
	expect(strcmp(acl_text("acls"), "au7 ag5 ao0 du7 dubob6 dg5 dm7 do0 "), 0, &err,
	       "made whole");
	/* a directory's default entries stand in for the umask */
	expect(dfs_mkdir(fs, at("acls/d"), 0777 | DFS_MODE_SET | DFS_UMASK(077), false, &err), 0,
	       &err, "mkdir below it");
	expect(strcmp(acl_text("acls/d"), "au7 aubob6 ag5 am7 ao0 du7 dubob6 dg5 dm7 do0 "), 0,
	       &err, "inherited");
	expect(dfs_remove_default_acl(fs, at("acls"), &err), 0, &err, "remove the default entries");
	expect(strcmp(acl_text("acls"), "au7 ag5 ao0 "), 0, &err, "gone");
	expect(dfs_mkdir(fs, at("acls/e"), 0777 | DFS_MODE_SET | DFS_UMASK(027), false, &err), 0,
	       &err, "mkdir with a umask");
	expect(strcmp(acl_text("acls/e"), "au7 ag5 ao0 "), 0, &err, "which counts");
	expect(dfs_get_acl(fs, at("none"), &l, &err), -ENOENT, &err, "of nothing");
	expect(dfs_remove_acl(fs, at("none"), &err), -ENOENT, &err, "remove of nothing");
}

/* What a listing says of @name. */
static enum dfs_type listed(const char *name)
{
	const struct dfs_stat *st;
	struct dfs_list *l = NULL;
	struct dfs_err err = {0};
	enum dfs_type type = 0;

	expect(dfs_list_open(fs, dir, &l, &err), 0, &err, "list");
	while (l && dfs_list_next(l, &st, &err) == 1)
		if (!strcmp(st->name, name))
			type = st->type;
	dfs_list_close(l);
	return type;
}

static void storage_policies(void)
{
	char buf[DFS_STORAGE_POLICY_MAX] = "";
	struct dfs_err err = {0};

	make_file("policy");
	expect(dfs_get_storage_policy(fs, at("policy"), buf, sizeof(buf), &err), 0, &err,
	       "the policy of a new file");
	expect(strcmp(buf, "HOT"), 0, &err, "is the default");
	expect(dfs_set_storage_policy(fs, dir, "ONE_SSD", &err), 0, &err, "its directory's");
	expect(dfs_get_storage_policy(fs, at("policy"), buf, sizeof(buf), &err), 0, &err, "get");
	expect(strcmp(buf, "ONE_SSD"), 0, &err, "holds for it");
	expect(dfs_set_storage_policy(fs, at("policy"), "WARM", &err), 0, &err, "its own");
	expect(dfs_get_storage_policy(fs, at("policy"), buf, sizeof(buf), &err), 0, &err, "get");
	expect(strcmp(buf, "WARM"), 0, &err, "counts more");
	expect(dfs_get_storage_policy(fs, at("policy"), buf, 4, &err), -ERANGE, &err, "too small");
	expect(dfs_set_storage_policy(fs, at("policy"), "LUKEWARM", &err), -EINVAL, &err,
	       "no such policy");
	expect(dfs_get_storage_policy(fs, at("none"), buf, sizeof(buf), &err), -ENOENT, &err,
	       "of nothing");
	expect(dfs_set_storage_policy(fs, at("none"), "HOT", &err), -ENOENT, &err, "for nothing");
}

static void links(void)
{
	struct dfs_err err = {0};
	struct dfs_stat st = {0};
	char buf[64] = "", id[64], text[600];

	expect(dfs_symlink(fs, "../else where/é", at("l"), &err), 0, &err, "symlink");
	expect(dfs_symlink(fs, "x", at("l"), &err), -EEXIST, &err, "symlink again");
	expect(dfs_symlink(fs, "x", at("no/l"), &err), -ENOENT, &err, "symlink nowhere");
	expect(dfs_symlink(fs, "", at("e"), &err), -EINVAL, &err, "symlink to nothing");
	expect(dfs_readlink(fs, at("l"), NULL, 0, &err), 16, &err, "length of the target");
	expect(dfs_readlink(fs, at("l"), buf, sizeof(buf), &err), 16, &err, "readlink");
	expect(strcmp(buf, "../else where/é"), 0, &err, "the target");
	expect(dfs_readlink(fs, at("l"), buf, 3, &err), -ERANGE, &err, "too small");
	expect(dfs_readlink(fs, at("f"), buf, sizeof(buf), &err), -EINVAL, &err,
	       "readlink of a file");
	expect(dfs_readlink(fs, at("none"), buf, sizeof(buf), &err), -ENOENT, &err,
	       "readlink of nothing");
	expect(dfs_lstat(fs, at("l"), &st, &err), 0, &err, "lstat");
	expect(st.type == DFS_SYMLINK && st.length == 16 && st.mode == 0777, 1, &err,
	       "type, length and mode of a link");
	expect(dfs_stat(fs, at("l"), &st, &err), -ELOOP, &err, "stat through a link");
	expect(dfs_stat(fs, at("l/x"), &st, &err), -ELOOP, &err, "stat below a link");
	expect(dfs_symlink(fs, "now-2026", at("now"), &err), 0, &err,
	       "symlink to a name that begins like its own");
	expect(dfs_stat(fs, at("now"), &st, &err), -ELOOP, &err, "stat through it");
	snprintf(text, sizeof(text),
		 "%s: a symbolic link in the path is not followed; name where it leads: %s",
		 at("now"), at("now-2026"));
	expect(strcmp(err.text, text) != 0, 0, &err,
	       "the text says which path, and where it leads");
	expect(dfs_set_permission(fs, at("l"), 0700, &err), -ELOOP, &err, "chmod of a link");
	expect(dfs_lstat(fs, at("f"), &st, &err), 0, &err, "lstat of a file");
	expect(st.type, DFS_FILE, &err, "which is one");
	expect(listed("l"), DFS_SYMLINK, &err, "type in a listing");
	expect(dfs_rename(fs, at("l"), at("f"), true, &err), 0, &err, "rename over a file");
	expect(dfs_lstat(fs, at("f"), &st, &err), 0, &err, "lstat");
	snprintf(id, sizeof(id), "/.reserved/.inodes/%llu", (unsigned long long)st.file_id);
	expect(dfs_set_times(fs, id, 5, 6, &err), 0, &err, "times of the link itself");
	expect(dfs_set_owner(fs, id, "nobody", NULL, &err), 0, &err, "owner of the link itself");
	expect(dfs_stat(fs, id, &st, &err), 0, &err, "stat by id");
	expect(st.type == DFS_SYMLINK && st.mtime_ms == 5 && !strcmp(st.owner, "nobody"), 1, &err,
	       "they stick");
	expect(dfs_delete(fs, at("f"), false, &err), 0, &err, "delete a link");
	expect(listed("f"), 0, &err, "it is gone");
}

int main(void)
{
	struct dfs_err err = {0};
	int rc;

	if (dfs_connect(NULL, &fs, &err) < 0) {
		printf("FAIL connect: %s\n", err.text);
		return 1;
	}
	snprintf(dir, sizeof(dir), "/tmp/client_attr_test.%d", (int)getpid());
	expect(dfs_mkdir(fs, dir, 0, true, &err), 0, &err, "mkdir");
	attributes();
	lists();
	storage_policies();
	rc = dfs_symlink(fs, "x", at("try"), &err);
	if (rc == 0)
		links();
	else
		expect(rc, -EOPNOTSUPP, &err, "symlink where there are none");
	printf("links: %s\n", rc == 0 ? "tested" : "refused");
	expect(dfs_delete(fs, dir, true, &err), 0, &err, "clean up");
	dfs_disconnect(fs);
	return failures != 0;
}
