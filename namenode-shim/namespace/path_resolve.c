/* SPDX-License-Identifier: Apache-2.0 */
/* From a path to its inodes: names, links, /.reserved, and the permissions of whoever asks. */
#include "namenode-shim/namespace/ns.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/acl.h"
#include "namenode-shim/namespace/ns_internal.h"

int ns_io(struct ns *n, int rc)
{
	if (rc >= 0 || n->x->cls)
		return rc;
	exception_throw(n->x, EXC_IO, "the NameNode cannot use its namespace: %s", err_name(rc));
	return rc;
}

struct effect *ns_effect(struct ns *n, enum effect_kind kind)
{
	struct effect *e = arena_new(n->a, struct effect);

	e->kind = kind;
	n->effects->kinds |= EFFECT_BIT(kind);
	*n->effects->last = e;
	n->effects->last = &e->next;
	return e;
}

/* ---- permissions ---- */

static const char *mode_text(const struct inode *node, char buf[11])
{
	static const char bits[] = "rwxrwxrwx";

	buf[0] = node->type == INODE_DIR ? 'd' : '-'; /* a link too, as HDFS */
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
	if (node->has & INODE_HAS_ACCESS_ACL)
		return acl_allows(n, node, access);
	if (!strcmp(n->user, node->owner))
		return ((unsigned int)node->perm >> 6 & access) == access;
	if (users_in_group(n->users, n->user, node->group))
		return ((unsigned int)node->perm >> 3 & access) == access;
	return (node->perm & access) == access;
}

/* `inode="/x":owner:group:drwxr-xr-x`, as every refusal names what it is about. */
static const char *inode_text(struct ns *n, const struct inode *node, const char *path)
{
	char mode[11];

	return arena_printf(n->a, "\"%s\":%s:%s:%s", path, node->owner, node->group,
			    mode_text(node, mode));
}

int ns_check(struct ns *n, const struct inode *node, unsigned int access, const char *path)
{
	if (allowed(n, node, access))
		return 0;
	return exception_throw(n->x, EXC_ACCESS, "Permission denied: user=%s, access=%s, inode=%s",
			       n->user, access_names[access & 7], inode_text(n, node, path));
}

int ns_check_owner(struct ns *n, const struct ns_path *w)
{
	if (n->super || !strcmp(n->user, w->last->owner))
		return 0;
	return exception_throw(n->x, EXC_ACCESS,
			       "Permission denied. user=%s is not the owner of inode=%s", n->user,
			       w->path);
}

struct inode *ns_path_parent(const struct ns_path *w)
{
	return w->have > w->depth ? w->chain[w->depth - 1] : w->chain[w->have - 1];
}

/* The same for component @i of a walk: its path is only put together for a refusal. */
static int check_at(struct ns *n, const struct ns_path *w, uint32_t i, unsigned int access)
{
	return allowed(n, w->chain[i], access)
		       ? 0
		       : ns_check(n, w->chain[i], access, ns_path_text(n, w, i));
}

int ns_check_ancestor(struct ns *n, const struct ns_path *w)
{
	return w->depth ? check_at(n, w, w->last ? w->depth - 1 : w->have - 1, ACCESS_W) : 0;
}

int ns_refuse_sticky(struct ns *n, const struct inode *node, const char *path,
		     const struct inode *dir, const char *dir_path)
{
	return exception_throw(n->x, EXC_ACCESS,
			       "Permission denied by sticky bit: user=%s, path=%s, parent=%s",
			       n->user, inode_text(n, node, path), inode_text(n, dir, dir_path));
}

int ns_check_remove(struct ns *n, const struct ns_path *w)
{
	const struct inode *up;
	int rc;

	if (!w->depth || w->have < w->depth)
		return 0; /* the root, or nothing there and no directory that could hold it */
	up = w->chain[w->depth - 1];
	rc = check_at(n, w, w->depth - 1, ACCESS_W);
	if (rc < 0 || !w->last || !n->enforce || n->super || !(up->perm & INODE_STICKY) ||
	    !strcmp(n->user, up->owner) || !strcmp(n->user, w->last->owner))
		return rc;
	return ns_refuse_sticky(n, w->last, w->path, up, ns_path_text(n, w, w->depth - 1));
}

/* ---- paths ---- */

bool ns_valid_name(const char *path)
{
	const char *p = path;

	if (*p != '/' || !utf8_is_valid(path))
		return false;
	while (*p) {
		const size_t len = strcspn(++p, "/");
		const bool end = !p[len];

		if ((!len && !end) || memchr(p, ':', len) || (len == 1 && p[0] == '.') ||
		    (len == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += len;
	}
	return true;
}

/* Characters as Java counts them: UTF-16 units. */
static size_t utf16_len(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((uint8_t)*s & 0xc0) != 0x80 ? 1u + ((uint8_t)*s >= 0xf0) : 0u;
	return n;
}

int ns_check_length(struct ns *n, const char *op, const char *path)
{
	size_t depth = 0;

	for (const char *p = path; *p; p++)
		depth += *p == '/' && p[1] && p[1] != '/';
	if (utf16_len(path) <= INODE_PATH_MAX && depth <= INODE_DEPTH_MAX)
		return 0;
	return exception_throw(n->x, EXC_IO,
			       "%s: Pathname too long.  Limit %d characters, %d levels.", op,
			       INODE_PATH_MAX, INODE_DEPTH_MAX);
}

/* Cut @path into components; empty ones do not count, everything else is a name to look for. */
static int split(struct ns *n, const char *path, struct ns_path *w)
{
	size_t count = 0;

	if (path[0] != '/')
		return exception_throw(n->x, EXC_ASSERTION, "Absolute path required, but got '%s'",
				       path);
	for (const char *p = path; *p; p++)
		count += *p == '/';
	w->name = arena_array(n->a, const char *, count + 1);
	w->depth = 0;
	for (const char *p = path; *p;) {
		const size_t len = strcspn(++p, "/");

		if (len)
			w->name[w->depth++] = arena_strndup(n->a, p, len);
		p += len;
	}
	return 0;
}

static const char *join(struct ns *n, const char *const *name, uint32_t depth)
{
	size_t len = 1;
	char *path, *p;

	for (uint32_t i = 0; i < depth; i++)
		len += 1 + strlen(name[i]);
	p = path = arena_alloc(n->a, len + 1);
	*p++ = '/';
	for (uint32_t i = 0; i < depth; i++) {
		const size_t k = strlen(name[i]);

		memcpy(p, name[i], k);
		p += k;
		if (i + 1 < depth)
			*p++ = '/';
	}
	return path;
}

/* ---- /.reserved: inodes by number, and the same tree once more as "raw" ---- */

static int number_io(struct ns *n, const struct ns_path *w, int rc)
{
	return rc == -ENOENT ? exception_throw(n->x, EXC_NOT_FOUND,
					       "File for given inode path does not exist: %s",
					       join(n, w->name, w->depth))
			     : ns_io(n, rc);
}

static int inode_by_number(struct ns *n, const struct ns_path *w, struct inode **ret)
{
	char *end;
	const long long id = strtoll(w->name[2], &end, 10);

	if (end == w->name[2] || *end)
		return exception_throw(n->x, EXC_NOT_FOUND, "Invalid inode path: %s",
				       join(n, w->name, w->depth));
	return number_io(n, w, inode_get_tail(n->t, (uint64_t)id, n->a, ret));
}

/* /.reserved/.inodes/ID/rest is the path of the inode and the rest. */
static int resolve_number(struct ns *n, struct ns_path *w)
{
	struct ns_path rest = *w;
	struct inode *node;
	uint32_t skip = 3;
	char *path;
	int rc = inode_by_number(n, w, &node);

	if (!rc && w->depth > 3 && !strcmp(w->name[3], "..")) { /* as NFS gateways ask */
		rc = node->id == INODE_ROOT ? 0 : inode_get(n->t, node->parent, n->a, &node);
		/* of what was deleted and goes bit by bit there is none */
		rc = number_io(n, w, rc);
		skip = w->depth; /* HDFS forgets what follows */
	}
	rc = rc ? rc : number_io(n, w, inode_path(n->t, node, n->a, &path));
	rc = rc ? rc : split(n, path, w);
	if (rc < 0)
		return rc;
	rest.name += skip;
	rest.depth -= skip;
	w->by_id = !rest.depth;
	return split(n, arena_printf(n->a, "%s/%s", path, join(n, rest.name, rest.depth)), w);
}

static int resolve_reserved(struct ns *n, struct ns_path *w)
{
	if (!w->depth || strcmp(w->name[0], INODE_RESERVED))
		return 0;
	if (w->depth == 1) {
		w->reserved = true;
		return 0;
	}
	if (!strcmp(w->name[1], ".inodes"))
		return w->depth > 2 ? resolve_number(n, w) : 0;
	if (strcmp(w->name[1], "raw") || (w->depth == 3 && !strcmp(w->name[2], INODE_RESERVED)))
		return 0;
	w->name += 2;
	w->depth -= 2;
	return 0;
}

const char *ns_path_text(struct ns *n, const struct ns_path *w, uint32_t i)
{
	return join(n, w->name, i);
}

/* ---- symbolic links ---- */

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Bytes of "scheme:" at the begin of @text, if a path from the root follows; else 0. */
static size_t scheme_len(const char *text)
{
	const size_t len = strspn(text, LETTERS) ? strspn(text, LETTERS "0123456789+-.") : 0;

	return len && text[len] == ':' && text[len + 1] == '/' ? len + 1 : 0;
}

/* @path without empty, "." and ".." components. */
static const char *normalize(struct ns *n, const char *path)
{
	char *out = arena_alloc(n->a, strlen(path) + 2);
	size_t len = 0;

	for (const char *p = path; *p;) {
		const size_t k = strcspn(p += strspn(p, "/"), "/");

		if (k == 2 && !memcmp(p, "..", 2)) {
			while (len && out[--len] != '/')
				;
		} else if (k && !(k == 1 && *p == '.')) {
			out[len++] = '/';
			memcpy(out + len, p, k);
			len += k;
		}
		p += k;
	}
	if (!len)
		out[len++] = '/';
	out[len] = 0;
	return out;
}

/* Component @i - 1 of the walk is a link: clients go on at the path that the text says. Its target
 * is read as Java's
 * Path reads it: "scheme:" and "//host:port", each if it is there, then the path. */
static int unresolved(struct ns *n, const struct ns_path *w, uint32_t i)
{
	const char *target = w->chain[i]->target, *path = target + scheme_len(target), *text = "";
	int head = (int)(path - target);

	if (path[0] == '/' && path[1] == '/' && path[2]) {
		path += 2 + strcspn(path + 2, "/");
		/* no host: as if "//" were not there */
		head = path - target > head + 2 ? (int)(path - target) : head;
	}
	if (path == target && *path != '/')
		text = join(n, w->name, i - 1);
	text = arena_printf(n->a, "%s/%s", text, path);
	if (i < w->depth)
		text = arena_printf(n->a, "%s%s", text, join(n, w->name + i, w->depth - i));
	return exception_throw(n->x, EXC_UNRESOLVED, "%.*s%s", head, target,
			       *path || i < w->depth ? normalize(n, text) : "");
}

int ns_link_target(struct ns *n, const char *path, const char **ret)
{
	struct ns_path w;
	int rc = ns_resolve(n, path, &w);

	if (rc == -ELOOP) {
		n->x->cls = NULL;
		*ret = n->x->text;
		return 0;
	}
	rc = rc ? rc : ns_found(n, &w, "File does not exist: ", "");
	return rc ? rc : exception_throw(n->x, EXC_IO, "Path %s is not a symbolic link", path);
}

/* ---- the way ---- */

/* What stands on the way, or at its end, and is no directory. */
static int not_a_way(struct ns *n, const struct ns_path *w, uint32_t i, unsigned int how)
{
	if (w->chain[i]->type == INODE_LINK)
		return unresolved(n, w, i);
	return exception_throw(n->x, how & WALK_MAKE ? EXC_PARENT_NOT_DIR : EXC_TRAVERSE,
			       "%s (is not a directory)", ns_path_text(n, w, i));
}

static int follow(struct ns *n, struct ns_path *w, unsigned int how)
{
	int (*const get)(struct txn *, uint64_t, struct arena *, struct inode **) =
		how & WALK_TAIL ? inode_get_tail : inode_get;
	uint64_t id = INODE_ROOT;

	for (uint32_t i = 0;; i++) {
		struct inode *node;
		int rc = get(n->t, id, n->a, &node);

		if (rc < 0)
			return ns_io(n, rc == -ENOENT ? -EBADMSG : rc); /* an entry without inode */
		if (i == 0 && node->type != INODE_DIR)
			return ns_io(n, -EBADMSG); /* a root that is none */
		w->chain[w->have++] = node;
		if (i == w->depth && (node->type != INODE_LINK || how & WALK_LINK)) {
			w->last = node;
			return 0;
		}
		if (node->type != INODE_DIR)
			return not_a_way(n, w, i, how);
		rc = check_at(n, w, i, ACCESS_X);
		if (rc < 0)
			return rc;
		rc = dirent_get(n->t, node->id, w->name[i], strlen(w->name[i]), &id);
		if (rc == -ENOENT)
			return 0;
		if (rc < 0)
			return ns_io(n, rc);
	}
}

int ns_resolve_as(struct ns *n, const char *path, unsigned int how, struct ns_path *w)
{
	int rc;

	*w = (struct ns_path){0};
	rc = split(n, path, w);
	rc = rc ? rc : resolve_reserved(n, w);
	if (rc < 0)
		return rc;
	w->path = join(n, w->name, w->depth);
	w->chain = arena_array(n->a, struct inode *, w->depth + 2u);
	if (w->by_id && how & WALK_LINK_ID)
		how |= WALK_LINK;
	rc = follow(n, w, how);
	if (!rc && w->reserved && how & WALK_CHANGE)
		rc = exception_throw(n->x, EXC_INVALID_PATH, "Invalid path name %s", w->path);
	return rc;
}

int ns_found(struct ns *n, const struct ns_path *w, const char *before, const char *after)
{
	return w->last ? 0 : exception_throw(n->x, EXC_NOT_FOUND, "%s%s%s", before, w->path, after);
}

int ns_find(struct ns *n, const char *path, struct ns_path *w)
{
	int rc = ns_resolve(n, path, w);

	return rc ? rc : ns_found(n, w, "File does not exist: ", "");
}

int ns_find_file(struct ns *n, const char *path, struct ns_path *w)
{
	int rc = ns_find(n, path, w);

	if (!rc && w->last->type != INODE_FILE)
		rc = exception_throw(n->x, EXC_NOT_FOUND, "Path is not a file: %s", w->path);
	return rc;
}
