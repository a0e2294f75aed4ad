/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: after any sequence of operations the namespace equals a slow model of it (a list
 * of paths), operation by operation with the same outcome, also after the database is reopened; a
 * failed operation changes nothing. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/test_db.h"

#define PATHS_MAX 4096
#define STEPS 6000

/* ---- the model: a list of absolute paths ---- */

struct model {
	struct {
		char path[128];
		bool dir;
	} e[PATHS_MAX];
	int n;
};

static void copy_path(char *out, const char *path)
{
	const size_t len = strlen(path);

	assert_true(len < 128);
	memcpy(out, path, len + 1);
}

static int m_find(const struct model *m, const char *path)
{
	for (int i = 0; i < m->n; i++)
		if (!strcmp(m->e[i].path, path))
			return i;
	return -1;
}

static bool m_is_dir(const struct model *m, const char *path)
{
	int i = m_find(m, path);

	return i >= 0 && m->e[i].dir;
}

static bool below(const char *path, const char *top)
{
	size_t len = strlen(top);

	if (!strcmp(top, "/"))
		return path[1] != 0;
	return !strncmp(path, top, len) && path[len] == '/';
}

static void m_add(struct model *m, const char *path, bool dir)
{
	assert_true(m->n < PATHS_MAX);
	copy_path(m->e[m->n].path, path);
	m->e[m->n++].dir = dir;
}

static void m_remove(struct model *m, const char *top)
{
	for (int i = 0; i < m->n;)
		if (!strcmp(m->e[i].path, top) || below(m->e[i].path, top))
			m->e[i] = m->e[--m->n];
		else
			i++;
}

static bool m_empty(const struct model *m, const char *top)
{
	for (int i = 0; i < m->n; i++)
		if (below(m->e[i].path, top))
			return false;
	return true;
}

static void parent(const char *path, char *out)
{
	char *slash;

	copy_path(out, path);
	slash = strrchr(out, '/');
	slash[slash == out] = 0;
}

/* -ENOTDIR when a component on the way is a file. */
static int m_way(const struct model *m, const char *path)
{
	char up[128];

	if (!strcmp(path, "/"))
		return 0;
	parent(path, up);
	if (m_find(m, up) >= 0)
		return m_is_dir(m, up) ? 0 : -ENOTDIR;
	return m_way(m, up);
}

static void m_make_dirs(struct model *m, const char *path)
{
	char up[128];

	if (m_find(m, path) >= 0)
		return;
	parent(path, up);
	m_make_dirs(m, up);
	m_add(m, path, true);
}

static int m_mkdirs(struct model *m, const char *path)
{
	int rc = m_way(m, path);

	if (rc < 0)
		return rc;
	if (m_find(m, path) >= 0)
		return m_is_dir(m, path) ? 0 : -EEXIST;
	m_make_dirs(m, path);
	return 0;
}

static int m_create(struct model *m, const char *path, bool overwrite)
{
	char up[128];
	int rc = m_way(m, path);

	if (rc < 0)
		return rc;
	if (m_is_dir(m, path))
		return -EEXIST;
	if (m_find(m, path) >= 0)
		return overwrite ? 0 : -EEXIST;
	parent(path, up);
	m_make_dirs(m, up);
	m_add(m, path, false);
	return 0;
}

static int m_delete(struct model *m, const char *path, bool recursive, bool *done)
{
	int rc = m_way(m, path);

	*done = false;
	if (rc < 0)
		return rc;
	if (m_find(m, path) < 0)
		return 0;
	if (!recursive && !m_empty(m, path))
		return -ENOTEMPTY;
	if (!strcmp(path, "/"))
		return 0; /* the root stays */
	m_remove(m, path);
	*done = true;
	return 0;
}

static void m_move(struct model *m, const char *src, const char *dst)
{
	char to[256];

	m_remove(m, dst);
	for (int i = 0; i < m->n; i++)
		if (!strcmp(m->e[i].path, src) || below(m->e[i].path, src)) {
			snprintf(to, sizeof(to), "%s%s", dst, m->e[i].path + strlen(src));
			assert_true(strlen(to) < 128);
			memcpy(m->e[i].path, to, strlen(to) + 1);
		}
}

static int m_rename2(struct model *m, const char *src, const char *dst, bool overwrite)
{
	char up[128];
	int rc = m_way(m, src);

	rc = rc ? rc : m_way(m, dst);
	if (rc < 0)
		return rc;
	if (m_find(m, src) < 0)
		return -ENOENT;
	if (!strcmp(src, "/") || !strcmp(dst, "/"))
		return -EIO;
	if (!strcmp(src, dst))
		return -EEXIST;
	if (below(dst, src))
		return -EIO;
	parent(dst, up);
	if (m_find(m, up) < 0)
		return -ENOENT;
	if (m_find(m, dst) >= 0) {
		if (m_is_dir(m, src) != m_is_dir(m, dst))
			return -EIO;
		if (!overwrite)
			return -EEXIST;
		if (!m_empty(m, dst))
			return -EIO;
	}
	m_move(m, src, dst);
	return 0;
}

/* *done as the old rename answers. */
static int m_rename(struct model *m, const char *src, const char *dst, bool *done)
{
	char to[256], up[128];
	int rc = m_way(m, src);

	*done = false;
	rc = rc ? rc : m_way(m, dst);
	if (rc < 0)
		return rc;
	if (m_find(m, src) < 0 || !strcmp(src, "/"))
		return 0;
	snprintf(to, sizeof(to), "%s", dst);
	if (m_is_dir(m, dst))
		snprintf(to, sizeof(to), "%s%s", strcmp(dst, "/") ? dst : "", strrchr(src, '/'));
	if (!strcmp(src, to)) {
		*done = true;
		return 0;
	}
	parent(to, up);
	if (below(to, src) || m_find(m, to) >= 0 || !m_is_dir(m, up))
		return 0;
	m_move(m, src, to);
	*done = true;
	return 0;
}

/* ---- comparison ---- */

struct compare {
	struct test_db *d;
	const struct model *m;
	const char *at;
	int count;
};

static int compare_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct compare *c = arg;
	struct compare deeper = *c;
	struct inode *n;
	char path[512];

	snprintf(path, sizeof(path), "%s/%.*s", strcmp(c->at, "/") ? c->at : "", (int)len, name);
	assert_int_equal(inode_get(&c->d->t, id, &c->d->a, &n), 0);
	assert_true(m_find(c->m, path) >= 0);
	assert_int_equal(n->type == INODE_DIR, m_is_dir(c->m, path));
	deeper.at = path;
	deeper.count = 0;
	if (n->type == INODE_DIR) {
		assert_int_equal(dirent_each(&c->d->t, id, NULL, 0, compare_entry, &deeper), 0);
		c->count += deeper.count;
	}
	c->count++;
	return 0;
}

static void compare_all(struct test_db *d, const struct model *m)
{
	struct compare c = {.d = d, .m = m, .at = "/"};

	test_begin(d, "root");
	assert_int_equal(dirent_each(&d->t, INODE_ROOT, NULL, 0, compare_entry, &c), 0);
	assert_int_equal(c.count + 1, m->n);
	txn_write_abort(&d->t);
}

static void random_path(char *out)
{
	int depth = rand() % 4;
	char *p = out;

	if (!depth)
		p += snprintf(p, 2, "/");
	for (int i = 0; i < depth; i++)
		p += snprintf(p, 3, "/%c", 'a' + rand() % 3);
}

static void step(struct test_db *d, struct model *m)
{
	struct ns *n = test_begin(d, "root");
	struct inode *file;
	struct ns_path w;
	char a[128], b[128];
	bool flag = rand() % 2, done = false, mdone = false;
	int rc, want;

	random_path(a);
	random_path(b);
	switch (rand() % 5) {
	case 0:
		want = m_mkdirs(m, a);
		rc = ns_mkdirs(n, a, 0755, NULL, true);
		break;
	case 1: {
		const struct ns_create c = {.path = a,
					    .client = "c",
					    .perm = 0644,
					    .repl = 3,
					    .block_size = 1 << 20,
					    .create = true,
					    .overwrite = flag,
					    .create_parent = true};
		want = m_create(m, a, flag);
		rc = ns_resolve_create(n, &c, &w);
		rc = rc ? rc : ns_create(n, &c, &w, &file);
		break;
	}
	case 2:
		want = m_delete(m, a, flag, &mdone);
		rc = ns_delete(n, a, flag, &done);
		break;
	case 3:
		want = m_rename(m, a, b, &mdone);
		rc = ns_rename(n, a, b, &done);
		break;
	default:
		want = m_rename2(m, a, b, flag);
		rc = ns_rename2(n, a, b, flag);
		break;
	}
	assert_int_equal(rc, want);
	assert_int_equal(done, mdone);
	assert_int_equal(rc < 0, d->x.cls != NULL);
	assert_int_equal(test_commit(d), 0);
}

static void random_operations_agree_with_a_slow_model(void **state)
{
	struct model *m = calloc(1, sizeof(*m));
	struct test_db d;

	(void)state;
	test_db_init(&d);
	mdb_env_set_flags(d.db->env, MDB_NOSYNC, 1); /* speed; crashes are tests/integration's */
	m_add(m, "/", true);
	srand(7);
	for (int i = 0; i < STEPS; i++) {
		step(&d, m);
		if (i % 100 == 0)
			compare_all(&d, m);
	}
	test_db_reopen(&d);
	compare_all(&d, m);
	test_db_fini(&d);
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_operations_agree_with_a_slow_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
