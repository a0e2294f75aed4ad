/* SPDX-License-Identifier: Apache-2.0 */
/* How access control lists change: merged with, freed of or replaced by what a client says. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "namenode-shim/namespace/acl.h"

#define SCOPES 2

/* A list under way. Masks wait until it is known whether they count. */
struct edit {
	struct acl *to;
	struct acl_entry mask[SCOPES];
	bool has_mask[SCOPES];
	bool mask_dirty[SCOPES]; /* the client said something about the mask */
	bool dirty[SCOPES];      /* or about any entry */
};

int acl_compare(const struct acl_entry *a, const struct acl_entry *b)
{
	const int by_name = strcmp(a->name, b->name);

	if (a->scope != b->scope)
		return a->scope < b->scope ? -1 : 1;
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	return by_name < 0 ? -1 : by_name > 0;
}

static int compare(const void *a, const void *b)
{
	return acl_compare(a, b);
}

static void sort(struct acl *l)
{
	qsort(l->e, l->n, sizeof(l->e[0]), compare);
}

static const struct acl_entry *find(const struct acl *l, const struct acl_entry *key)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (!acl_compare(&l->e[i], key))
			return &l->e[i];
	return NULL;
}

static const struct acl_entry *find_base(const struct acl *l, enum acl_scope scope,
					 enum acl_type type)
{
	const struct acl_entry key = {(uint8_t)scope, (uint8_t)type, 0, ""};

	return find(l, &key);
}

static int check_count(const struct acl *l, struct err *err)
{
	uint32_t n[SCOPES] = {0};

	for (uint32_t i = 0; i < l->n; i++)
		n[l->e[i].scope]++;
	for (int s = 0; s < SCOPES; s++)
		if (n[s] > ACL_SCOPE_MAX)
			return err_set(
				err, -EINVAL,
				"Invalid ACL: ACL has %u %s entries, which exceeds maximum of %d.",
				n[s], s == ACL_ACCESS ? "access" : "default", ACL_SCOPE_MAX);
	return 0;
}

/* As Java prints an entry. */
static void entry_text(const struct acl_entry *e, char *buf, size_t size)
{
	static const char *const types[] = {"user", "group", "mask", "other"};
	static const char *const perms[] = {"---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx"};

	snprintf(buf, size, "%s%s:%.200s:%s", e->scope == ACL_DEFAULT ? "default:" : "",
		 types[e->type & 3], e->name, perms[e->perm & 7]);
}

static int check_entries(const struct acl *l, struct err *err)
{
	char text[256];

	for (uint32_t i = 0; i < l->n; i++) {
		const struct acl_entry *e = &l->e[i];

		if (i && !acl_compare(e - 1, e))
			return err_set(
				err, -EINVAL,
				"Invalid ACL: multiple entries with same scope, type and name.");
		if (*e->name && (e->type == ACL_MASK || e->type == ACL_OTHER)) {
			entry_text(e, text, sizeof(text));
			return err_set(err, -EINVAL,
				       "Invalid ACL: this entry type must not have a name: %s.",
				       text);
		}
	}
	return 0;
}

static int check_base(const struct acl *l, struct err *err)
{
	static const enum acl_type base[ACL_BASE] = {ACL_USER, ACL_GROUP, ACL_OTHER};
	const bool has_default = l->n && l->e[l->n - 1].scope == ACL_DEFAULT;

	for (int i = 0; i < ACL_BASE; i++) {
		if (!find_base(l, ACL_ACCESS, base[i]))
			return err_set(
				err, -EINVAL,
				"Invalid ACL: the user, group and other entries are required.");
		if (has_default && !find_base(l, ACL_DEFAULT, base[i]))
			return err_set(
				err, -EINVAL,
				"Invalid default ACL: the user, group and other entries are required.");
	}
	return 0;
}

static int finish(struct acl *l, struct err *err)
{
	int rc = check_count(l, err);

	if (rc < 0)
		return rc;
	sort(l);
	rc = check_entries(l, err);
	return rc ? rc : check_base(l, err);
}

static void add(struct acl *l, const struct acl_entry *e)
{
	if (l->n < ACL_EDIT_MAX) /* always so: see there */
		l->e[l->n++] = *e;
}

/* Default entries that are missing beside others are those of the access list. */
static void copy_defaults(struct acl *l)
{
	static const enum acl_type base[ACL_BASE] = {ACL_USER, ACL_GROUP, ACL_OTHER};
	bool any = false;

	for (uint32_t i = 0; i < l->n; i++)
		any = any || l->e[i].scope == ACL_DEFAULT;
	for (int i = 0; i < ACL_BASE && any; i++) {
		const struct acl_entry *from = find_base(l, ACL_ACCESS, base[i]);

		if (from && !find_base(l, ACL_DEFAULT, base[i])) {
			const struct acl_entry copy = {ACL_DEFAULT, (uint8_t)base[i], from->perm,
						       ""};

			add(l, &copy);
		}
	}
}

/* The mask of a scope: as told; as it was, if nothing was said; else all that the entries it is for
 * may. */
static int add_masks(struct edit *ed, struct err *err)
{
	struct acl *l = ed->to;
	bool found[SCOPES] = {0}, needed[SCOPES] = {0};
	uint8_t all[SCOPES] = {0};

	for (uint32_t i = 0; i < l->n; i++) {
		const struct acl_entry *e = &l->e[i];

		found[e->scope] = true;
		if (e->type == ACL_GROUP || *e->name)
			all[e->scope] |= e->perm;
		needed[e->scope] = needed[e->scope] || *e->name;
	}
	for (uint8_t s = 0; s < SCOPES; s++) {
		const struct acl_entry made = {s, ACL_MASK, all[s], ""};

		if (!found[s])
			continue;
		if (!ed->has_mask[s] && needed[s] && ed->mask_dirty[s])
			return err_set(err, -EINVAL,
				       "Invalid ACL: mask is required and cannot be deleted.");
		if (ed->has_mask[s] && (!ed->dirty[s] || ed->mask_dirty[s]))
			add(l, &ed->mask[s]);
		else if (needed[s])
			add(l, &made);
	}
	return 0;
}

/* An entry of the list to be; @said: the client's. */
static void take(struct edit *ed, const struct acl_entry *e, bool said)
{
	ed->dirty[e->scope] = ed->dirty[e->scope] || said;
	if (e->type != ACL_MASK) {
		add(ed->to, e);
		return;
	}
	ed->mask[e->scope] = *e;
	ed->has_mask[e->scope] = true;
	ed->mask_dirty[e->scope] = ed->mask_dirty[e->scope] || said;
}

static int end(struct edit *ed, struct err *err)
{
	int rc;

	copy_defaults(ed->to);
	rc = add_masks(ed, err);
	return rc ? rc : finish(ed->to, err);
}

static int begin(struct edit *ed, struct acl *spec, struct acl *ret, struct err *err)
{
	int rc = check_count(spec, err);

	*ed = (struct edit){.to = ret};
	ret->n = 0;
	sort(spec);
	return rc;
}

int acl_merge(const struct acl *old, struct acl *spec, struct acl *ret, struct err *err)
{
	struct edit ed;
	int rc = begin(&ed, spec, ret, err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < old->n; i++) {
		const struct acl_entry *said = find(spec, &old->e[i]);

		take(&ed, said ? said : &old->e[i], said != NULL);
	}
	for (uint32_t i = 0; i < spec->n; i++)
		if (!find(old, &spec->e[i]))
			take(&ed, &spec->e[i], true);
	return end(&ed, err);
}

int acl_filter(const struct acl *old, struct acl *spec, struct acl *ret, struct err *err)
{
	struct edit ed;
	int rc = begin(&ed, spec, ret, err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < old->n; i++) {
		const struct acl_entry *e = &old->e[i];

		if (!find(spec, e)) {
			take(&ed, e, false);
			continue;
		}
		ed.dirty[e->scope] = true;
		ed.mask_dirty[e->scope] = ed.mask_dirty[e->scope] || e->type == ACL_MASK;
	}
	return end(&ed, err);
}

int acl_replace(const struct acl *old, struct acl *spec, struct acl *ret, struct err *err)
{
	struct edit ed;
	int rc = begin(&ed, spec, ret, err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < spec->n; i++)
		take(&ed, &spec->e[i], true);
	for (uint32_t i = 0; i < old->n; i++)
		if (!ed.dirty[old->e[i].scope])
			take(&ed, &old->e[i], false);
	return end(&ed, err);
}

int acl_without_default(const struct acl *old, struct acl *ret, struct err *err)
{
	ret->n = 0;
	for (uint32_t i = 0; i < old->n; i++)
		if (old->e[i].scope == ACL_ACCESS)
			add(ret, &old->e[i]);
	return finish(ret, err);
}
