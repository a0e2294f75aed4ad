/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/storage_policy.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns.h"

/* clang-format off */
#define T(...) {{__VA_ARGS__}}
/* clang-format on */
#define SSD STORAGE_SSD
#define DISK STORAGE_DISK
#define ARCHIVE STORAGE_ARCHIVE
#define PROVIDED STORAGE_PROVIDED

const struct storage_policy policies[] = {
	{1, "PROVIDED", T(PROVIDED, DISK), T(PROVIDED, DISK), T(PROVIDED, DISK)},
	{POLICY_COLD, "COLD", T(ARCHIVE), T(0), T(0)},
	{5, "WARM", T(DISK, ARCHIVE), T(DISK, ARCHIVE), T(DISK, ARCHIVE)},
	{POLICY_HOT, "HOT", T(DISK), T(0), T(ARCHIVE)},
	{10, "ONE_SSD", T(SSD, DISK), T(SSD, DISK), T(SSD, DISK)},
	{POLICY_ALL_SSD, "ALL_SSD", T(SSD), T(DISK), T(DISK)},
	{14, "ALL_NVDIMM", T(STORAGE_NVDIMM), T(DISK), T(DISK)},
	{POLICY_LAZY_PERSIST, "LAZY_PERSIST", T(STORAGE_RAM_DISK, DISK), T(DISK), T(DISK)},
};
const size_t policy_count = sizeof(policies) / sizeof(policies[0]);

const struct storage_policy *storage_policy_find(const char *name)
{
	for (size_t i = 0; i < policy_count; i++)
		if (!strcasecmp(name, policies[i].name))
			return &policies[i];
	return NULL;
}

const struct storage_policy *storage_policy_by_id(unsigned int id)
{
	for (size_t i = 0; i < policy_count; i++)
		if (policies[i].id == id)
			return &policies[i];
	return NULL;
}

const struct storage_policy *storage_policy_in_force(unsigned int id, bool striped)
{
	const struct storage_policy *p = storage_policy_by_id(id);

	if (!p || (striped && p->id != POLICY_COLD && p->id != POLICY_ALL_SSD))
		p = storage_policy_by_id(POLICY_HOT);
	return p;
}

const struct storage_policy *storage_policy_of_file(struct txn *t, const struct inode *n,
						    struct arena *a)
{
	return storage_policy_in_force(storage_policy_of(t, n, a), n->ec);
}

void storage_policy_types_wanted(const struct storage_policy *p, uint32_t total,
				 uint16_t ret[STORAGE_TYPES])
{
	uint32_t n = 0;
	uint8_t last = 0;

	memset(ret, 0, STORAGE_TYPES * sizeof(*ret));
	for (const uint8_t *t = p->create.type; *t && n < total; t++)
		if (*t != STORAGE_RAM_DISK) {
			last = *t;
			ret[last]++;
			n++;
		}
	ret[last] = (uint16_t)(ret[last] + total - n);
}

const char *storage_type_name(unsigned int type)
{
	static const char *const names[STORAGE_TYPES] = {
		"", "DISK", "SSD", "ARCHIVE", "RAM_DISK", "PROVIDED", "NVDIMM", ""};

	return names[type % STORAGE_TYPES];
}

bool storage_policy_any(struct txn *t)
{
	MDB_stat st;

	return !mdb_stat(t->t, t->db->policy, &st) && st.ms_entries;
}

static unsigned int own(struct txn *t, uint64_t inode)
{
	const uint64_t key = htobe64(inode);
	MDB_val v;

	if (txn_get(t, t->db->policy, &key, sizeof(key), &v) < 0 || v.mv_size != 1 ||
	    !storage_policy_by_id(*(const uint8_t *)v.mv_data))
		return POLICY_NONE;
	return *(const uint8_t *)v.mv_data;
}

unsigned int storage_policy_of(struct txn *t, const struct inode *n, struct arena *a)
{
	struct inode_climb c = {0};
	struct inode *up;

	if (!storage_policy_any(t))
		return POLICY_NONE;
	for (;;) {
		const unsigned int id = own(t, n->id);

		if (id || n->id == INODE_ROOT || inode_up(t, n, a, &c, &up) < 0)
			return id;
		n = up;
	}
}

int storage_policy_put(struct txn *t, uint64_t inode, unsigned int id)
{
	const uint64_t key = htobe64(inode);
	const uint8_t v = (uint8_t)id;

	return id ? txn_put(t, t->db->policy, &key, sizeof(key), &v, sizeof(v))
		  : storage_policy_del(t, inode);
}

int storage_policy_del(struct txn *t, uint64_t inode)
{
	const uint64_t key = htobe64(inode);
	int rc = storage_policy_any(t) ? txn_del(t, t->db->policy, &key, sizeof(key)) : 0;

	return rc == -ENOENT ? 0 : rc;
}

int storage_policy_check_name(struct ns *n, const char *name, const struct storage_policy **ret)
{
	*ret = storage_policy_find(name);
	return *ret ? 0
		    : exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				      "Cannot find a block policy with the name %s", name);
}

/* A file in memory first cannot become one later, nor the reverse. */
static int check_file(struct ns *n, const struct inode *f, const struct storage_policy *to)
{
	if (to && to->id == POLICY_LAZY_PERSIST)
		return exception_throw(
			n->x, EXC_ILLEGAL_ARGUMENT,
			"Policy BlockStoragePolicy{LAZY_PERSIST:15, storageTypes=[RAM_DISK, "
			"DISK], creationFallbacks=[DISK], replicationFallbacks=[DISK]} "
			"cannot be set after file creation.");
	if (own(n->t, f->id) == POLICY_LAZY_PERSIST)
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				       "Existing policy LAZY_PERSIST cannot be changed after file "
				       "creation.");
	return 0;
}

int storage_policy_set(struct ns *n, const char *path, const char *name)
{
	const struct storage_policy *to = NULL;
	struct ns_path w;
	int rc = name ? storage_policy_check_name(n, name, &to) : 0;

	rc = rc ? rc : ns_resolve_change(n, path, &w);
	if (!rc && w.last)
		rc = ns_check(n, w.last, ACCESS_W, w.path);
	rc = rc ? rc : ns_found(n, &w, "File/Directory does not exist: ", "");
	if (!rc && w.last->type == INODE_FILE)
		rc = check_file(n, w.last, to);
	return rc ? rc : ns_io(n, storage_policy_put(n->t, w.last->id, to ? to->id : POLICY_NONE));
}
