/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/ns.h"

#include <string.h>

#include "namenode-shim/db.h"
#include "namenode-shim/users.h"

int ns_io(struct ns *n, int rc)
{
	if (rc >= 0 || n->x->cls)
		return rc;
	exc_throw(n->x, EXC_IO, "the NameNode cannot use its namespace: %s", err_name(rc));
	return rc;
}

struct effect *ns_effect(struct ns *n, enum effect_kind kind)
{
	struct effect *e = arena_new(n->a, struct effect);

	e->kind = kind;
	*n->fx->last = e;
	n->fx->last = &e->next;
	return e;
}

/* ---- permissions ---- */

const char *ns_mode_text(const struct inode *node, char buf[static NS_MODE_TEXT])
{
	static const char bits[] = "rwxrwxrwx";

	buf[0] = node->type == INODE_DIR ? 'd' : '-';
	for (int i = 0; i < 9; i++)
		buf[i + 1] = node->perm & (0400 >> i) ? bits[i] : '-';
	if (node->perm & INODE_STICKY)
		buf[9] = node->perm & 1 ? 't' : 'T';
	buf[10] = 0;
	return buf;
}

static const char *const access_names[8] = {"NONE", "EXECUTE",      "WRITE",      "WRITE_EXECUTE",
					    "READ", "READ_EXECUTE", "READ_WRITE", "ALL"};

static bool allowed(struct ns *n, const struct inode *node, unsigned int access)
{
	if (!n->enforce || n->super)
		return true;
	if (!strcmp(n->user, node->owner))
		return ((unsigned int)node->perm >> 6 & access) == access;
	if (users_in_group(n->users, n->user, node->group))
		return ((unsigned int)node->perm >> 3 & access) == access;
	return (node->perm & access) == access;
}

int ns_check(struct ns *n, const struct inode *node, unsigned int access, const char *path)
{
	char mode[NS_MODE_TEXT];

	if (allowed(n, node, access))
		return 0;
	return exc_throw(n->x, EXC_ACCESS,
			 "Permission denied: user=%s, access=%s, inode=\"%s\":%s:%s:%s", n->user,
			 access_names[access & 7], path, node->owner, node->group,
			 ns_mode_text(node, mode));
}

int ns_check_owner(struct ns *n, const struct walk *w)
{
	if (!n->enforce || n->super || !strcmp(n->user, w->last->owner))
		return 0;
	return exc_throw(n->x, EXC_ACCESS,
			 "Permission denied. user=%s is not the owner of inode=%s", n->user,
			 w->path);
}

/* ---- paths ---- */

static int invalid(struct ns *n, const char *path, const char *why)
{
	return exc_throw(n->x, EXC_INVALID_PATH, "Invalid path name %.200s: %s", path, why);
}

static int check_component(struct ns *n, const char *path, const char *name, size_t len)
{
	if (!len)
		return invalid(n, path, "empty component");
	if ((len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
		return invalid(n, path, "relative component");
	if (memchr(name, ':', len))
		return invalid(n, path, "a component may not contain ':'");
	return 0;
}

/* Cut @path into components. */
static int split(struct ns *n, const char *path, struct walk *w)
{
	size_t len = strlen(path), count = 0;
	const char *p;

	if (path[0] != '/')
		return invalid(n, path, "it must be absolute");
	if (len > INODE_PATH_MAX)
		return invalid(n, path, "longer than 8000 bytes");
	if (len > 1 && path[len - 1] == '/')
		len--;
	w->path = arena_strndup(n->a, path, len);
	for (p = w->path; *p; p++)
		count += *p == '/';
	if (count > INODE_DEPTH_MAX)
		return invalid(n, path, "more than 1000 components");
	w->name = arena_array(n->a, const char *, count + 1);
	w->chain = arena_array(n->a, struct inode *, count + 2);
	if (len == 1)
		return 0;
	for (p = w->path + 1;; p++) {
		const size_t clen = strcspn(p, "/");
		int rc = check_component(n, path, p, clen);

		if (rc < 0)
			return rc;
		w->name[w->depth++] = arena_strndup(n->a, p, clen);
		p += clen;
		if (!*p)
			return 0;
	}
}

const char *walk_path_of(struct ns *n, const struct walk *w, uint32_t i)
{
	const char *p = w->path;

	if (!i)
		return "/";
	for (uint32_t k = 0; k < i; k++)
		p += 1 + strcspn(p + 1, "/");
	return arena_strndup(n->a, w->path, (size_t)(p - w->path));
}

int ns_walk(struct ns *n, const char *path, struct walk *w)
{
	uint64_t id = INODE_ROOT;
	int rc;

	*w = (struct walk){0};
	rc = split(n, path, w);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0;; i++) {
		struct inode *node;

		rc = inode_get(n->t, id, n->a, &node);
		if (rc < 0)
			return ns_io(n, rc == -ENOENT ? -EBADMSG : rc); /* an entry without inode */
		w->chain[w->have++] = node;
		if (i == w->depth) {
			w->last = node;
			return 0;
		}
		if (node->type != INODE_DIR)
			return exc_throw(n->x, EXC_PARENT_NOT_DIR, "%s (is not a directory)",
					 walk_path_of(n, w, i));
		if (n->enforce && !n->super) {
			rc = ns_check(n, node, ACCESS_X, walk_path_of(n, w, i));
			if (rc < 0)
				return rc;
		}
		rc = dirent_get(n->t, node->id, w->name[i], strlen(w->name[i]), &id);
		if (rc == -ENOENT)
			return 0;
		if (rc < 0)
			return ns_io(n, rc);
	}
}

int ns_find(struct ns *n, const char *path, struct walk *w)
{
	int rc = ns_walk(n, path, w);

	if (!rc && !w->last)
		rc = exc_throw(n->x, EXC_NOT_FOUND, "File does not exist: %s", path);
	return rc;
}

int ns_find_file(struct ns *n, const char *path, struct walk *w)
{
	int rc = ns_find(n, path, w);

	if (!rc && w->last->type != INODE_FILE)
		rc = exc_throw(n->x, EXC_NOT_FOUND, "Path is not a file: %s", path);
	return rc;
}
