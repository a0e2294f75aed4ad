/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: attributes and lists follow HDFS's rules word by word, live through renames and
 * restarts, and go with their inode: at the end the tables are empty. Symbolic links lead where
 * Java's Path says. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/namespace/acl.h"

#include "namenode-shim/test_db.h"

/* ---- helpers: one change each ---- */

static void start(struct test_db *d)
{
	test_db_init(d);
	mdb_env_set_flags(d->db->env, MDB_NOSYNC, 1); /* speed; crashes are tests/integration's */
}

static void restart(struct test_db *d)
{
	test_db_reopen(d);
	mdb_env_set_flags(d->db->env, MDB_NOSYNC, 1);
}

static void done(struct test_db *d, int rc)
{
	if (rc < 0)
		txn_write_abort(&d->t);
	else
		assert_int_equal(test_commit(d), 0);
}

static void make(struct test_db *d, const char *user, const char *path, uint16_t perm)
{
	assert_int_equal(ns_mkdirs(test_begin(d, user), path, perm, NULL, NS_MKDIRS_PARENTS), 0);
	done(d, 0);
}

/* @mode before a umask of 022. */
static int make_file(struct test_db *d, const char *user, const char *path, uint16_t mode)
{
	const struct ns_create c = {.path = path,
				    .client = "c",
				    .perm = (uint16_t)(mode & ~022),
				    .unmasked = &mode,
				    .repl = 1,
				    .block_size = 1 << 20,
				    .create = true,
				    .overwrite = true,
				    .create_parent = true};
	struct inode *f;
	struct ns_path w;
	int rc = ns_resolve_create(test_begin(d, user), &c, &w);

	rc = rc ? rc : ns_create(&d->ns, &c, &w, &f);
	done(d, rc);
	return rc;
}

static void remove_path(struct test_db *d, const char *path)
{
	bool gone;
	int rc = ns_delete(test_begin(d, "root"), path, true, &gone);

	assert_true(rc == 0 && gone);
	done(d, rc);
}

static int set_x(struct test_db *d, const char *user, const char *path, enum xattr_space space,
		 const char *name, const char *value, unsigned int flags)
{
	const struct xattr x = {(uint8_t)space, name, value, value ? (uint32_t)strlen(value) : 0};
	int rc = xattr_set(test_begin(d, user), path, &x, flags);

	done(d, rc);
	return rc;
}

static int remove_x(struct test_db *d, const char *user, const char *path, enum xattr_space space,
		    const char *name)
{
	const struct xattr x = {(uint8_t)space, name, NULL, 0};
	int rc = xattr_remove(test_begin(d, user), path, &x);

	done(d, rc);
	return rc;
}

/* What @user sees, "0.name=value 1.other="; "!" and the class for a refusal. */
static const char *seen(struct test_db *d, const char *user, const char *path)
{
	static char text[4096];
	struct xattrs x;
	size_t len = 0;
	int rc = xattr_list(test_begin(d, user), path, NULL, &x);

	text[0] = 0;
	for (uint32_t i = 0; i < x.n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u.%s=%.*s",
					i ? " " : "", x.a[i].space, x.a[i].name, (int)x.a[i].len,
					x.a[i].len ? (const char *)x.a[i].value : "");
	if (rc < 0)
		snprintf(text, sizeof(text), "!%s", strrchr(d->x.cls, '.') + 1);
	txn_write_abort(&d->t);
	return text;
}

static size_t rows(struct test_db *d, MDB_dbi table)
{
	MDB_stat st;

	(void)test_begin(d, "root");
	assert_int_equal(mdb_stat(d->t.t, table, &st), 0);
	txn_write_abort(&d->t);
	return st.ms_entries;
}

#define EITHER (XATTR_CREATE | XATTR_REPLACE)

/* ---- extended attributes ---- */

static void attributes_are_set_replaced_and_removed(void **state)
{
	struct test_db d;
	bool moved;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0777);
	assert_int_equal(make_file(&d, "alice", "/d/f", 0666), 0);
	assert_string_equal(seen(&d, "alice", "/d/f"), "");
	assert_int_equal(set_x(&d, "alice", "/d/f", XATTR_USER, "a", "1", 0), -EINVAL);
	assert_string_equal(d.x.text, "A flag must be specified.");
	assert_int_equal(set_x(&d, "alice", "/d/f", XATTR_USER, "a", "1", XATTR_REPLACE), -EIO);
	assert_string_equal(d.x.text,
			    "XAttr: a does not exist. The CREATE flag must be specified.");
	assert_int_equal(set_x(&d, "alice", "/d/f", XATTR_USER, "a", "1", XATTR_CREATE), 0);
	assert_int_equal(set_x(&d, "alice", "/d/f", XATTR_USER, "a", "2", XATTR_CREATE), -EIO);
	assert_string_equal(d.x.text,
			    "XAttr: a already exists. The REPLACE flag must be specified.");
	assert_int_equal(set_x(&d, "alice", "/d/f", XATTR_USER, "a", "2", XATTR_REPLACE), 0);
	assert_int_equal(set_x(&d, "alice", "/d/f", XATTR_USER, "empty", "", EITHER), 0);
	assert_string_equal(seen(&d, "alice", "/d/f"), "0.empty= 0.a=2");
	restart(&d);
	assert_string_equal(seen(&d, "alice", "/d/f"), "0.empty= 0.a=2");
	assert_int_equal(ns_rename(test_begin(&d, "root"), "/d/f", "/d/g", &moved), 0);
	done(&d, 0);
	assert_string_equal(seen(&d, "alice", "/d/g"), "0.empty= 0.a=2");
	assert_string_equal(seen(&d, "alice", "/d/f"), "!FileNotFoundException");
	assert_int_equal(remove_x(&d, "alice", "/d/g", XATTR_USER, "b"), -EIO);
	assert_string_equal(d.x.text, "No matching attributes found for remove operation");
	assert_int_equal(remove_x(&d, "alice", "/d/g", XATTR_USER, "a"), 0);
	assert_int_equal(remove_x(&d, "alice", "/d/g", XATTR_USER, "empty"), 0);
	assert_int_equal(rows(&d, d.db->xattr), 0);
	assert_int_equal(set_x(&d, "alice", "/d/g", XATTR_USER, "a", "1", EITHER), 0);
	assert_int_equal(set_x(&d, "root", "/d", XATTR_USER, "a", "1", EITHER), 0);
	assert_int_equal(rows(&d, d.db->xattr), 2);
	assert_int_equal(make_file(&d, "alice", "/d/g", 0666), 0); /* overwritten: a new file */
	assert_string_equal(seen(&d, "alice", "/d/g"), "");
	remove_path(&d, "/d");
	assert_int_equal(rows(&d, d.db->xattr), 0);
	test_db_fini(&d);
}

static void attributes_have_limits(void **state)
{
	char name[16], *big = calloc(1, XATTR_BYTES + 1);
	struct test_db d;

	(void)state;
	memset(big, 'x', XATTR_BYTES);
	start(&d);
	assert_int_equal(make_file(&d, "root", "/f", 0666), 0);
	assert_int_equal(set_x(&d, "root", "/f", XATTR_USER, "n", big, EITHER), -EINVAL);
	assert_string_equal(
		d.x.text,
		"The XAttr is too big. The maximum combined size of the name and value is 16384, "
		"but the total size is 16385");
	assert_int_equal(set_x(&d, "root", "/f", XATTR_USER, "n", big + 1, EITHER), 0);
	assert_int_equal(set_x(&d, "root", "/f", XATTR_USER, "caf\xe9", "1", EITHER), -EINVAL);
	for (int i = 1; i < XATTRS_PER_INODE; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		assert_int_equal(set_x(&d, "root", "/f", i % 2 ? XATTR_USER : XATTR_TRUSTED, name,
				       big + 1000, EITHER),
				 0);
	}
	assert_int_equal(set_x(&d, "root", "/f", XATTR_USER, "more", "1", EITHER), -EIO);
	assert_string_equal(d.x.text,
			    "Cannot add additional XAttr to inode, would exceed limit of 32");
	assert_int_equal(set_x(&d, "root", "/f", XATTR_USER, "n", "1", EITHER), 0);
	for (int i = 0; i < XATTRS_HIDDEN_MAX; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		assert_int_equal(
			set_x(&d, "root", "/.reserved/raw/f", XATTR_RAW, name, "1", EITHER), 0);
	}
	assert_int_equal(set_x(&d, "root", "/.reserved/raw/f", XATTR_RAW, "more", "1", EITHER),
			 -EIO);
	remove_path(&d, "/f");
	assert_int_equal(rows(&d, d.db->xattr), 0);
	test_db_fini(&d);
	free(big);
}

static void attributes_belong_to_whom_hdfs_says(void **state)
{
	struct test_db d;

	(void)state;
	start(&d);
	make(&d, "root", "/s", 01777);
	assert_int_equal(make_file(&d, "alice", "/s/f", 0600), 0);
	assert_int_equal(set_x(&d, "bob", "/s/f", XATTR_USER, "a", "1", EITHER), -EACCES);
	assert_string_equal(seen(&d, "bob", "/s/f"), "!AccessControlException");
	assert_int_equal(set_x(&d, "bob", "/s", XATTR_USER, "a", "1", EITHER), -EACCES);
	assert_string_equal(d.x.text, "Permission denied. user=bob is not the owner of inode=/s");
	assert_int_equal(set_x(&d, "root", "/s", XATTR_USER, "a", "1", EITHER), 0);
	assert_int_equal(set_x(&d, "alice", "/s/f", XATTR_TRUSTED, "t", "1", EITHER), -EACCES);
	assert_string_equal(d.x.text, "User doesn't have permission for xattr: trusted.t");
	assert_int_equal(set_x(&d, "root", "/s/f", XATTR_TRUSTED, "t", "1", EITHER), 0);
	assert_string_equal(seen(&d, "root", "/s/f"), "1.t=1");
	assert_string_equal(seen(&d, "alice", "/s/f"), "");
	for (enum xattr_space s = XATTR_SECURITY; s <= XATTR_RAW; s++)
		assert_int_equal(set_x(&d, "root", "/s/f", s, "x", "1", EITHER), -EACCES);
	assert_int_equal(set_x(&d, "root", "/s/f", XATTR_SPACES, "x", "1", EITHER), -EINVAL);
	assert_int_equal(set_x(&d, "alice", "/.reserved/raw/s/f", XATTR_RAW, "x", "1", EITHER),
			 -EACCES);
	assert_int_equal(set_x(&d, "root", "/.reserved/raw/s/f", XATTR_RAW, "x", "1", EITHER), 0);
	assert_string_equal(seen(&d, "alice", "/.reserved/raw/s/f"), "4.x=1");
	assert_string_equal(seen(&d, "root", "/s/f"), "1.t=1");
	/* The one attribute of its space. */
	assert_int_equal(set_x(&d, "alice", "/s/f", XATTR_SECURITY, XATTR_UNREADABLE, "1", EITHER),
			 -EACCES);
	assert_int_equal(set_x(&d, "root", "/s", XATTR_SECURITY, XATTR_UNREADABLE, NULL, EITHER),
			 -EIO);
	assert_int_equal(set_x(&d, "alice", "/s/f", XATTR_SECURITY, XATTR_UNREADABLE, NULL, EITHER),
			 0);
	assert_int_equal(remove_x(&d, "alice", "/s/f", XATTR_SECURITY, XATTR_UNREADABLE), -EACCES);
	test_db_fini(&d);
}

/* ---- access control lists ---- */

static const char *entry_text(const struct acl_entry *e)
{
	static const char types[] = "ugmo";
	static char text[128];

	snprintf(text, sizeof(text), "%s%c:%s:%u", e->scope ? "d:" : "", types[e->type], e->name,
		 e->perm);
	return text;
}

/* "u:alice:7,d:o::5" */
static struct acl *spec_of(const char *text)
{
	static struct acl l;
	static char buf[4096];
	char *save, *word;

	l.n = 0;
	snprintf(buf, sizeof(buf), "%s", text);
	for (word = strtok_r(buf, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		struct acl_entry *e = &l.e[l.n++];
		char *name;

		e->scope = !strncmp(word, "d:", 2) ? ACL_DEFAULT : ACL_ACCESS;
		word += e->scope ? 2 : 0;
		e->type = *word == 'u'   ? ACL_USER
			  : *word == 'g' ? ACL_GROUP
			  : *word == 'm' ? ACL_MASK
					 : ACL_OTHER;
		name = strchr(word, ':') + 1;
		*strchr(name, ':') = 0;
		e->name = name;
		e->perm = (uint8_t)(name[strlen(name) + 1] - '0');
	}
	return &l;
}

static int change(struct test_db *d, const char *user, const char *path, enum acl_change how,
		  const char *spec)
{
	int rc = acl_change(test_begin(d, user), path, how, spec_of(spec));

	done(d, rc);
	return rc;
}

/* "0751 u:alice:7,g::5": the bits and the extra entries. */
static const char *status(struct test_db *d, const char *path)
{
	static char text[4096];
	struct inode *n;
	struct acl l;
	size_t len;

	assert_int_equal(acl_status(test_begin(d, "root"), path, &n, &l), 0);
	len = (size_t)snprintf(text, sizeof(text), "%04o", n->perm);
	for (uint32_t i = 0; i < l.n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%c%s", i ? ',' : ' ',
					entry_text(&l.e[i]));
	assert_int_equal(l.n > 0, (n->has & INODE_HAS_ACL) != 0);
	assert_int_equal(l.n > 0 && l.e[0].scope == ACL_ACCESS,
			 (n->has & INODE_HAS_ACCESS_ACL) != 0);
	txn_write_abort(&d->t);
	return text;
}

static void lists_change_as_in_hdfs(void **state)
{
	struct test_db d;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0750);
	assert_string_equal(status(&d, "/d"), "0750");
	/* The mask is what named entries and group may, and takes the group's place. */
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_MERGE, "u:alice:7"), 0);
	assert_string_equal(status(&d, "/d"), "0770 u:alice:7,g::5");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_MERGE, "g:staff:1,m::4"), 0);
	assert_string_equal(status(&d, "/d"), "0740 u:alice:7,g::5,g:staff:1");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_FILTER, "u:alice:0"), 0);
	assert_string_equal(status(&d, "/d"), "0750 g::5,g:staff:1");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_FILTER, "m::0"), -EOPNOTSUPP);
	assert_string_equal(d.x.text,
			    "Invalid ACL: mask is required and cannot be deleted. Path: /d");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_FILTER, "g:staff:0"), 0);
	assert_string_equal(status(&d, "/d"), "0750");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_FILTER, "u::0"), -EOPNOTSUPP);
	assert_string_equal(
		d.x.text, "Invalid ACL: the user, group and other entries are required. Path: /d");
	/* Default entries that are missing are copied. */
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_MERGE, "d:u:bob:6"), 0);
	assert_string_equal(status(&d, "/d"), "0750 d:u::7,d:u:bob:6,d:g::5,d:m::7,d:o::0");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_REPLACE, "u::7,g::0,o::0,u:bob:3"), 0);
	assert_string_equal(status(&d, "/d"),
			    "0730 u:bob:3,g::0,d:u::7,d:u:bob:6,d:g::5,d:m::7,d:o::0");
	restart(&d);
	assert_string_equal(status(&d, "/d"),
			    "0730 u:bob:3,g::0,d:u::7,d:u:bob:6,d:g::5,d:m::7,d:o::0");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_NO_DEFAULT, ""), 0);
	assert_string_equal(status(&d, "/d"), "0730 u:bob:3,g::0");
	/* chmod changes the mask; without a list the group has its own rights again. */
	assert_int_equal(ns_set_perm(test_begin(&d, "root"), "/d", 01711), 0);
	done(&d, 0);
	assert_string_equal(status(&d, "/d"), "1711 u:bob:3,g::0");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_NONE, ""), 0);
	assert_string_equal(status(&d, "/d"), "1701");
	assert_int_equal(rows(&d, d.db->acl), 0);
	/* A mask alone makes a list. */
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_MERGE, "m::2"), 0);
	assert_string_equal(status(&d, "/d"), "1721 g::0");
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_REPLACE, ""), 0);
	assert_string_equal(status(&d, "/d"), "1701");
	remove_path(&d, "/d");
	test_db_fini(&d);
}

static void bad_lists_are_refused(void **state)
{
	static const struct {
		enum acl_change how;
		const char *spec, *text;
	} bad[] = {
		{ACL_CHANGE_REPLACE, "u::7,g::5",
		 "Invalid ACL: the user, group and other entries are required."},
		{ACL_CHANGE_REPLACE, "u::7,g::5,o::0,u:a:1,u:a:2",
		 "Invalid ACL: multiple entries with same scope, type and name."},
		{ACL_CHANGE_MERGE, "u:a:1,u:a:2",
		 "Invalid ACL: multiple entries with same scope, type and name."},
		{ACL_CHANGE_MERGE, "o:a:1",
		 "Invalid ACL: this entry type must not have a name: other:a:--x."},
		{ACL_CHANGE_MERGE, "d:o:a:6",
		 "Invalid ACL: this entry type must not have a name: default:other:a:rw-."},
		{ACL_CHANGE_MERGE, "d:u:a:6",
		 "Invalid ACL: only directories may have a default ACL. Path: /d/f"},
	};
	char spec[2048] = "", text[256];
	struct test_db d;
	size_t len = 0;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0777);
	assert_int_equal(make_file(&d, "alice", "/d/f", 0640), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(change(&d, "alice", "/d/f", bad[i].how, bad[i].spec), -EOPNOTSUPP);
		snprintf(text, sizeof(text), "%s Path: /d/f", bad[i].text);
		assert_string_equal(d.x.text, text);
		assert_string_equal(status(&d, "/d/f"), "0640");
	}
	for (int i = 0; i < ACL_SCOPE_MAX + 1; i++)
		len += (size_t)snprintf(spec + len, sizeof(spec) - len, "u:n%d:1,", i);
	assert_int_equal(change(&d, "alice", "/d/f", ACL_CHANGE_MERGE, spec), -EOPNOTSUPP);
	assert_string_equal(
		d.x.text,
		"Invalid ACL: ACL has 33 access entries, which exceeds maximum of 32. Path: /d/f");
	*strrchr(spec, 'u') = 0; /* 32 and the base ones are too many, too */
	assert_int_equal(change(&d, "alice", "/d/f", ACL_CHANGE_MERGE, spec), -EOPNOTSUPP);
	assert_string_equal(
		d.x.text,
		"Invalid ACL: ACL has 36 access entries, which exceeds maximum of 32. Path: /d/f");
	assert_int_equal(change(&d, "bob", "/d/f", ACL_CHANGE_MERGE, "u:bob:7"), -EACCES);
	assert_int_equal(change(&d, "root", "/d/none", ACL_CHANGE_MERGE, "u:bob:7"), -ENOENT);
	assert_string_equal(d.x.text, "Directory/File does not exist /d/none");
	assert_int_equal(rows(&d, d.db->acl), 0);
	test_db_fini(&d);
}

static int may(struct test_db *d, const char *user, const char *path, unsigned int access)
{
	struct ns_path w;
	int rc = ns_find(test_begin(d, user), path, &w);

	rc = rc ? rc : ns_check(&d->ns, w.last, access, w.path);
	txn_write_abort(&d->t);
	return rc;
}

static void lists_are_enforced(void **state)
{
	struct test_db d;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0777);
	assert_int_equal(make_file(&d, "alice", "/d/f", 0600), 0);
	assert_int_equal(ns_set_owner(test_begin(&d, "root"), "/d/f", NULL, "users"), 0);
	done(&d, 0);
	assert_int_equal(
		change(&d, "alice", "/d/f", ACL_CHANGE_MERGE, "u:bob:6,g:staff:4,g::2,o::1"), 0);
	assert_int_equal(may(&d, "alice", "/d/f", ACCESS_R | ACCESS_W), 0);
	assert_int_equal(may(&d, "alice", "/d/f", ACCESS_X), -EACCES);
	assert_int_equal(may(&d, "bob", "/d/f", ACCESS_R | ACCESS_W), 0);
	assert_int_equal(may(&d, "bob", "/d/f", ACCESS_X),
			 -EACCES); /* what others may is not for him */
	/* carol is of staff and of users: one group that may is enough, two halves are not. */
	assert_int_equal(may(&d, "carol", "/d/f", ACCESS_R), 0);
	assert_int_equal(may(&d, "carol", "/d/f", ACCESS_W), 0);
	assert_int_equal(may(&d, "carol", "/d/f", ACCESS_R | ACCESS_W), -EACCES);
	assert_string_equal(d.x.text, "Permission denied: user=carol, access=READ_WRITE, "
				      "inode=\"/d/f\":alice:users:-rw-rw---x");
	assert_int_equal(may(&d, "carol", "/d/f", ACCESS_X), -EACCES); /* nor for her */
	assert_int_equal(may(&d, "dora", "/d/f", ACCESS_X), 0);
	assert_int_equal(may(&d, "dora", "/d/f", ACCESS_R), -EACCES);
	/* The mask limits all but owner and others. */
	assert_int_equal(change(&d, "alice", "/d/f", ACL_CHANGE_MERGE, "m::4"), 0);
	assert_int_equal(may(&d, "bob", "/d/f", ACCESS_R), 0);
	assert_int_equal(may(&d, "bob", "/d/f", ACCESS_W), -EACCES);
	assert_int_equal(may(&d, "carol", "/d/f", ACCESS_W), -EACCES);
	/* On the way, too. */
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_MERGE, "u:bob:6"), 0);
	assert_int_equal(may(&d, "bob", "/d/f", ACCESS_R), -EACCES);
	assert_int_equal(may(&d, "dora", "/d/f", ACCESS_X), 0);
	/* Default entries alone change nothing. */
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_NONE, ""), 0);
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_MERGE, "d:u:bob:0"), 0);
	assert_int_equal(may(&d, "bob", "/d/f", ACCESS_R), 0);
	test_db_fini(&d);
}

/* It could have taken from anyone what the bits give to others. */
static void a_list_that_cannot_be_read_gives_nothing(void **state)
{
	struct ns_path w;
	struct test_db d;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0777);
	assert_int_equal(make_file(&d, "alice", "/d/f", 0644), 0);
	assert_int_equal(change(&d, "alice", "/d/f", ACL_CHANGE_MERGE, "u:bob:0"), 0);
	assert_int_equal(may(&d, "dora", "/d/f", ACCESS_R), 0);
	assert_int_equal(ns_find(test_begin(&d, "root"), "/d/f", &w), 0);
	assert_int_equal(acl_del(&d.t, w.last->id), 0);
	done(&d, 0);
	assert_int_equal(may(&d, "bob", "/d/f", ACCESS_R), -EACCES);
	assert_int_equal(may(&d, "dora", "/d/f", ACCESS_R), -EACCES);
	assert_int_equal(may(&d, "alice", "/d/f", ACCESS_R), 0);
	test_db_fini(&d);
}

static void new_inodes_inherit_default_entries(void **state)
{
	const uint16_t mode = 0777;
	struct test_db d;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0755);
	assert_int_equal(
		change(&d, "root", "/d", ACL_CHANGE_MERGE, "d:u::7,d:u:bob:7,d:g::5,d:o::1"), 0);
	/* The mode before the umask filters owner, mask and others. */
	assert_int_equal(make_file(&d, "root", "/d/f", 0664), 0);
	assert_string_equal(status(&d, "/d/f"), "0660 u:bob:7,g::5");
	assert_int_equal(
		ns_mkdirs(test_begin(&d, "root"), "/d/a/b", 0755, &mode, NS_MKDIRS_PARENTS), 0);
	done(&d, 0);
	assert_string_equal(status(&d, "/d/a"),
			    "0771 u:bob:7,g::5,d:u::7,d:u:bob:7,d:g::5,d:m::7,d:o::1");
	assert_string_equal(status(&d, "/d/a/b"),
			    "0771 u:bob:7,g::5,d:u::7,d:u:bob:7,d:g::5,d:m::7,d:o::1");
	/* A client that does not tell it: what the umask left. */
	make(&d, "root", "/d/old", 0700);
	assert_string_equal(status(&d, "/d/old"),
			    "0700 u:bob:7,g::5,d:u::7,d:u:bob:7,d:g::5,d:m::7,d:o::1");
	/* Base entries only: no list for a file. */
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_NO_DEFAULT, ""), 0);
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_MERGE, "d:u::6,d:g::3,d:o::0"), 0);
	assert_int_equal(make_file(&d, "root", "/d/g", 0666), 0);
	assert_string_equal(status(&d, "/d/g"), "0620");
	/* Without default entries the umask counts. */
	assert_int_equal(change(&d, "root", "/d", ACL_CHANGE_NO_DEFAULT, ""), 0);
	assert_int_equal(make_file(&d, "root", "/d/h", 0666), 0);
	assert_string_equal(status(&d, "/d/h"), "0644");
	remove_path(&d, "/d");
	assert_int_equal(rows(&d, d.db->acl), 0);
	test_db_fini(&d);
}

/* ---- symbolic links ---- */

static int link_to(struct test_db *d, const char *target, const char *path)
{
	int rc = ns_symlink(test_begin(d, "root"), target, path, false);

	done(d, rc);
	return rc;
}

static void links_lead_where_java_says(void **state)
{
	static const struct {
		const char *target, *ask, *leads;
	} cases[] = {
		{"/x/y", "/d/l", "/x/y"},
		{"/x/y", "/d/l/a/b", "/x/y/a/b"},
		{"f", "/d/l", "/d/f"},
		{"f", "/d/l/g", "/d/f/g"},
		{"../f", "/d/l", "/f"},
		{"./a//../b", "/d/l/c", "/d/b/c"},
		{"../../..", "/d/l", "/"},
		{"hdfs://other:1/x", "/d/l/y", "hdfs://other:1/x/y"},
		/* A scheme, or a host, stays what it is. */
		{"file:/x", "/d/l", "file:/x"},
		{"file:/x", "/d/l/y", "file:/x/y"},
		{"hdfs:/x/../z", "/d/l", "hdfs:/z"},
		{"hdfs:///x", "/d/l", "hdfs:/x"},
		{"//host:9000/x", "/d/l", "//host:9000/x"},
		{"//host:9000/x", "/d/l/y", "//host:9000/x/y"},
		{"//host:9000", "/d/l", "//host:9000"},
		{"hdfs://other:1", "/d/l/y", "hdfs://other:1/y"},
		{"///x", "/d/l", "/x"},
		{"//", "/d/l/y", "/y"},
		/* These are none. */
		{"./a:/b", "/d/l", "/d/a:/b"},
		{"x/s://y", "/d/l", "/d/x/s:/y"},
		{"/s://y", "/d/l", "/s:/y"},
		{"a:b", "/d/l", "/d/a:b"},
	};
	const char *leads;
	struct test_db d;
	struct ns_path w;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0755);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(link_to(&d, cases[i].target, "/d/l"), 0);
		assert_int_equal(ns_resolve(test_begin(&d, "root"), cases[i].ask, &w), -ELOOP);
		assert_string_equal(d.x.text, cases[i].leads);
		assert_int_equal(ns_link_target(&d.ns, cases[i].ask, &leads), 0);
		assert_string_equal(leads, cases[i].leads);
		txn_write_abort(&d.t);
		remove_path(&d, "/d/l");
	}
	test_db_fini(&d);
}

static void links_are_made_moved_and_removed(void **state)
{
	static const char *const bad[] = {"", "/.reserved", "/.reserved/raw/x", "caf\xe9"};
	struct test_db d;
	struct ns_path w;
	char by_id[64];
	bool moved;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0755);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(link_to(&d, bad[i], "/d/l"), -EINVAL);
	assert_int_equal(link_to(&d, "x", "/d/a:b"), -EINVAL);
	assert_int_equal(link_to(&d, "x", "/none/l"), -ENOENT);
	assert_int_equal(link_to(&d, "x", "/d"), -EIO);
	assert_string_equal(
		d.x.text,
		"failed to create link /d either because the filename is invalid or the file exists");
	assert_int_equal(link_to(&d, "there", "/d/l"), 0);
	assert_int_equal(link_to(&d, "there", "/d/l"), -EIO);
	restart(&d);
	assert_int_equal(ns_resolve_as(test_begin(&d, "root"), "/d/l", WALK_LINK, &w), 0);
	assert_int_equal(w.last->type, INODE_LINK);
	assert_int_equal(w.last->perm, 0777);
	assert_string_equal(w.last->target, "there");
	snprintf(by_id, sizeof(by_id), "/.reserved/.inodes/%llu", (unsigned long long)w.last->id);
	txn_write_abort(&d.t);
	assert_int_equal(make_file(&d, "root", "/d/l", 0666), -ELOOP);
	assert_int_equal(ns_set_perm(test_begin(&d, "root"), "/d/l", 0700), -ELOOP);
	txn_write_abort(&d.t);
	/* An id names the link itself. */
	assert_int_equal(ns_set_owner(test_begin(&d, "root"), by_id, "bob", NULL), 0);
	assert_int_equal(ns_set_times(&d.ns, by_id, 5, 6), 0);
	done(&d, 0);
	/* Renames and deletes are about the link. */
	assert_int_equal(ns_rename2(test_begin(&d, "root"), "/d/l", "/d/m", false), 0);
	done(&d, 0);
	assert_int_equal(make_file(&d, "root", "/d/there", 0666), 0);
	assert_int_equal(link_to(&d, "/d/t2", "/d/n"), 0);
	assert_int_equal(ns_rename2(test_begin(&d, "root"), "/d/n", "/d/t2", false), -EEXIST);
	txn_write_abort(&d.t);
	assert_int_equal(ns_rename(test_begin(&d, "root"), "/d/n", "/d/t2", &moved), 0);
	assert_false(moved);
	txn_write_abort(&d.t);
	assert_int_equal(ns_rename2(test_begin(&d, "root"), "/d/there", "/d/n", true),
			 0); /* over a link */
	done(&d, 0);
	assert_int_equal(ns_resolve(test_begin(&d, "root"), "/d/n", &w), 0);
	assert_int_equal(w.last->type, INODE_FILE);
	assert_int_equal(ns_resolve_as(&d.ns, "/d/m", WALK_LINK, &w), 0);
	assert_string_equal(w.last->owner, "bob");
	assert_int_equal(w.last->mtime, 5);
	txn_write_abort(&d.t);
	remove_path(&d, "/d/m");
	remove_path(&d, "/d");
	test_db_fini(&d);
}

static void names_are_utf8(void **state)
{
	struct test_db d;
	bool moved;

	(void)state;
	start(&d);
	make(&d, "root", "/d", 0755);
	assert_int_equal(
		ns_mkdirs(test_begin(&d, "root"), "/d/caf\xe9", 0755, NULL, NS_MKDIRS_PARENTS),
		-EINVAL);
	assert_string_equal(d.x.cls, "org.apache.hadoop.fs.InvalidPathException");
	txn_write_abort(&d.t);
	assert_int_equal(make_file(&d, "root", "/d/\xff", 0666), -EINVAL);
	assert_int_equal(ns_rename(test_begin(&d, "root"), "/d", "/\xed\xa0\x80", &moved), -EINVAL);
	txn_write_abort(&d.t);
	assert_int_equal(make_file(&d, "root", "/d/caf\xc3\xa9", 0666), 0);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attributes_are_set_replaced_and_removed),
		cmocka_unit_test(attributes_have_limits),
		cmocka_unit_test(attributes_belong_to_whom_hdfs_says),
		cmocka_unit_test(lists_change_as_in_hdfs),
		cmocka_unit_test(bad_lists_are_refused),
		cmocka_unit_test(lists_are_enforced),
		cmocka_unit_test(a_list_that_cannot_be_read_gives_nothing),
		cmocka_unit_test(new_inodes_inherit_default_entries),
		cmocka_unit_test(links_lead_where_java_says),
		cmocka_unit_test(links_are_made_moved_and_removed),
		cmocka_unit_test(names_are_utf8),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
