/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/dircache.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_LOG 6
/* by id; two of the same place: the second is passed over if the first was changed */
#define SLOTS (1u << SLOTS_LOG)
#define NAMES_LOG 8
#define NAMES (1u << NAMES_LOG)
#define NAME_MAX_LEN 255u /* as of INODE_NAME_MAX; a longer one is in no entry */
#define MIX 0x9e3779b97f4a7c15ull

struct slot {
	uint64_t id; /* 0: empty */
	uint64_t parent;
	uint8_t *record; /* owned; stays for the next one */
	size_t len, cap;
	bool changed;
	uint8_t name_len; /* 0: not to be found by name */
	char name[NAME_MAX_LEN];
};

struct dircache {
	uint32_t used; /* slots; 0: there is nothing to clear */
	struct slot slot[SLOTS];
	uint8_t by_name[NAMES]; /* slot + 1, or 0 */
};
_Static_assert(SLOTS < UINT8_MAX, "fits by_name");

struct dircache *dircache_new(void)
{
	return calloc(1, sizeof(struct dircache));
}

void dircache_free(struct dircache *c)
{
	for (uint32_t i = 0; c && i < SLOTS; i++)
		free(c->slot[i].record);
	free(c);
}

void dircache_clear(struct dircache *c)
{
	if (!c || !c->used)
		return;
	for (uint32_t i = 0; i < SLOTS; i++) {
		c->slot[i].id = 0;
		c->slot[i].changed = false;
	}
	memset(c->by_name, 0, sizeof(c->by_name));
	c->used = 0;
}

static uint32_t place(uint64_t id)
{
	return (uint32_t)(id * MIX >> (64 - SLOTS_LOG));
}

static uint32_t name_place(uint64_t parent, const char *name, size_t len)
{
	uint64_t h = parent * MIX;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * MIX;
	return (uint32_t)(h >> (64 - NAMES_LOG));
}

static struct slot *slot_of(const struct dircache *c, uint64_t id)
{
	const struct slot *s = c ? &c->slot[place(id)] : NULL;

	return s && id && s->id == id ? (struct slot *)(uintptr_t)s : NULL;
}

static bool is_named(const struct slot *s, uint64_t parent, const char *name, size_t len)
{
	return s->id && s->name_len && s->parent == parent && s->name_len == len &&
	       !memcmp(s->name, name, len);
}

static bool fill(struct slot *s, size_t len)
{
	uint8_t *p;

	if (len > s->cap) {
		p = realloc(s->record, len);
		if (!p)
			return false;
		s->record = p;
		s->cap = len;
	}
	s->len = len;
	return true;
}

static void set_name(struct dircache *c, struct slot *s, uint64_t parent, const char *name)
{
	const size_t len = strlen(name);

	if (s->name_len)
		dircache_forget_name(c, s->parent, s->name, s->name_len);
	s->parent = parent;
	s->name_len = len > NAME_MAX_LEN ? 0 : (uint8_t)len;
	if (!s->name_len)
		return; /* the root, for one */
	memcpy(s->name, name, len);
	c->by_name[name_place(parent, name, len)] = (uint8_t)(s - c->slot + 1);
}

const void *dircache_get(const struct dircache *c, uint64_t id, size_t *ret_len)
{
	const struct slot *s = slot_of(c, id);

	if (!s)
		return NULL;
	*ret_len = s->len;
	return s->record;
}

void dircache_add(struct dircache *c, uint64_t id, uint64_t parent, const char *name,
		  const void *record, size_t len)
{
	struct slot *s = c ? &c->slot[place(id)] : NULL;

	if (!s || s->changed || !fill(s, len))
		return;
	if (!s->id)
		s->name_len = 0;
	memcpy(s->record, record, len);
	s->id = id;
	c->used++;
	set_name(c, s, parent, name);
}

void *dircache_change(struct dircache *c, uint64_t id, uint64_t parent, const char *name,
		      size_t len)
{
	struct slot *s = slot_of(c, id);

	if (!s)
		return NULL;
	if (!fill(s, len)) {
		dircache_drop(c, id);
		return NULL;
	}
	s->changed = true;
	set_name(c, s, parent, name);
	return s->record;
}

void dircache_drop(struct dircache *c, uint64_t id)
{
	struct slot *s = slot_of(c, id);

	if (!s)
		return;
	if (s->name_len)
		dircache_forget_name(c, s->parent, s->name, s->name_len);
	s->id = 0;
	s->changed = false;
}

bool dircache_find(const struct dircache *c, uint64_t parent, const char *name, size_t len,
		   uint64_t *ret_id)
{
	const uint8_t i = c && c->used ? c->by_name[name_place(parent, name, len)] : 0;

	if (!i || !is_named(&c->slot[i - 1], parent, name, len))
		return false;
	*ret_id = c->slot[i - 1].id;
	return true;
}

void dircache_forget_name(struct dircache *c, uint64_t parent, const char *name, size_t len)
{
	uint8_t *i = c && c->used ? &c->by_name[name_place(parent, name, len)] : NULL;

	if (i && *i && is_named(&c->slot[*i - 1], parent, name, len)) {
		c->slot[*i - 1].name_len = 0;
		*i = 0;
	}
}

int dircache_each_changed(struct dircache *c,
			  int (*fn)(void *arg, uint64_t id, const void *record, size_t len),
			  void *arg)
{
	int rc = 0;

	for (uint32_t i = 0; c && c->used && i < SLOTS && rc >= 0; i++)
		if (c->slot[i].id && c->slot[i].changed)
			rc = fn(arg, c->slot[i].id, c->slot[i].record, c->slot[i].len);
	return rc;
}
