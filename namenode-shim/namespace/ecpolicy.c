/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/ecpolicy.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cursor.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns.h"

#define ROW_BYTES 17 /* id, state, codec, k, m, cell, run */

/* ---- rows ---- */

struct row {
	struct ecpol pol;
	uint64_t run; /* in which it was disabled */
};

static bool any(struct txn *t, MDB_dbi dbi)
{
	MDB_stat st;

	return !mdb_stat(t->t, dbi, &st) && st.ms_entries;
}

static int row_decode(const MDB_val *v, struct row *ret)
{
	struct rd r = rd_init(v->mv_data, v->mv_size);
	const uint8_t id = rd_u8(&r), state = rd_u8(&r), codec = rd_u8(&r), k = rd_u8(&r),
		      m = rd_u8(&r);
	const uint32_t cell = rd_be32(&r);
	struct ec_policy p;

	ret->run = rd_be64(&r);
	if (r.bad || state < ECPOL_DISABLED || state > ECPOL_REMOVED ||
	    ec_policy_make((enum ec_codec)codec, k, m, cell, id, &p, NULL) < 0)
		return -EBADMSG;
	ret->pol = (struct ecpol){p, (enum ecpol_state)state};
	return 0;
}

static int row_put(struct txn *t, const struct ec_rules *rules, const struct ecpol *e)
{
	uint8_t b[ROW_BYTES];
	struct wr w = wr_init(b, sizeof(b));

	wr_u8(&w, e->p.id);
	wr_u8(&w, (uint8_t)e->state);
	wr_u8(&w, (uint8_t)e->p.codec);
	wr_u8(&w, e->p.k);
	wr_u8(&w, e->p.m);
	wr_be32(&w, e->p.cell);
	wr_be64(&w, rules->run);
	return txn_put(t, t->db->ecpol, &e->p.id, 1, b, sizeof(b));
}

static int row_get(struct txn *t, uint8_t id, struct row *ret)
{
	const struct ec_policy *own = ec_policy_by_id(id);
	MDB_val v;
	int rc = txn_get(t, t->db->ecpol, &id, 1, &v);

	rc = rc ? rc : row_decode(&v, ret);
	/* A policy of other parts than its files were written with would make rubbish of them. */
	if (!rc && (ret->pol.p.id != id || (own && !ec_policy_same(own, &ret->pol.p))))
		rc = -EBADMSG;
	return rc;
}

/* ---- policies ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ecpol *)a)->p.name, ((const struct ecpol *)b)->p.name);
}

/* The row, HDFS's own without one, or -ENOENT; the default policy counts as enabled in every new
 * run. */
static int get(struct txn *t, const struct ec_rules *rules, uint8_t id, struct ecpol *ret)
{
	const struct ec_policy *own = ec_policy_by_id(id);
	struct row row = {.run = 0};
	int rc = any(t, t->db->ecpol) ? row_get(t, id, &row) : -ENOENT;

	if (rc == -ENOENT && own && own->codec != EC_CODEC_REPLICATION) {
		row.pol = (struct ecpol){*own, ECPOL_DISABLED};
		rc = 0;
	}
	if (rc < 0)
		return rc;
	if (row.pol.state == ECPOL_DISABLED && row.run != rules->run &&
	    !strcmp(row.pol.p.name, rules->dflt))
		row.pol.state = ECPOL_ENABLED;
	*ret = row.pol;
	return 0;
}

int ecpol_list(struct txn *t, const struct ec_rules *rules, struct ecpol *ret, size_t *ret_n)
{
	size_t n = 0;

	for (unsigned id = 1; id <= EC_ID_LAST; id++) {
		const int rc = n < ECPOL_MAX ? get(t, rules, (uint8_t)id, &ret[n]) : -EBADMSG;

		if (rc < 0 && rc != -ENOENT)
			return rc;
		n += !rc;
	}
	qsort(ret, n, sizeof(*ret), by_name);
	*ret_n = n;
	return 0;
}

int ecpol_find(struct txn *t, const struct ec_rules *rules, const char *name, struct ecpol *ret)
{
	struct ecpol all[ECPOL_MAX];
	size_t n;
	int rc = ecpol_list(t, rules, all, &n);

	for (size_t i = 0; i < n && !rc; i++)
		if (!strcmp(all[i].p.name, name)) {
			*ret = all[i];
			return 0;
		}
	return rc ? rc : -ENOENT;
}

int ecpol_enabled_text(struct txn *t, const struct ec_rules *rules, struct arena *a,
		       const char **ret)
{
	struct ecpol all[ECPOL_MAX];
	const char *text = "";
	size_t n;
	int rc = ecpol_list(t, rules, all, &n);

	for (size_t i = 0; i < n && !rc; i++)
		if (all[i].state == ECPOL_ENABLED)
			text = arena_printf(a, "%s%s%s", text, *text ? ", " : "", all[i].p.name);
	if (!rc)
		*ret = text;
	return rc;
}

static const struct ec_policy *keep(struct arena *a, const struct ec_policy *p)
{
	const struct ec_policy *own = ec_policy_by_id(p->id);
	struct ec_policy *copy;

	if (own)
		return own;
	copy = arena_new(a, struct ec_policy);
	*copy = *p;
	return copy;
}

int ecpol_check_enabled(struct ns *n, const struct ec_rules *rules, const char *name,
			const struct ec_policy **ret)
{
	const struct ec_policy *own = ec_policy_by_name(name);
	const char *text;
	struct ecpol e;
	int rc;

	if (own && own->codec == EC_CODEC_REPLICATION) {
		*ret = own;
		return 0;
	}
	rc = ecpol_find(n->t, rules, name, &e);
	if (!rc && e.state == ECPOL_ENABLED) {
		*ret = keep(n->a, &e.p);
		return 0;
	}
	if (!rc || rc == -ENOENT)
		rc = ecpol_enabled_text(n->t, rules, n->a, &text);
	return rc ? ns_io(n, rc)
		  : exception_throw(
			    n->x, EXC_ILLEGAL_ARGUMENT,
			    "Policy '%s' does not match any enabled erasure coding policies: [%s]. An "
			    "erasure coding policy can be enabled by enableErasureCodingPolicy API.",
			    name, text);
}

int ecpol_set_state(struct ns *n, const struct ec_rules *rules, const char *name,
		    enum ecpol_state to)
{
	const char *enabled;
	struct ecpol e;
	int rc = ecpol_find(n->t, rules, name, &e);

	if (rc == -ENOENT)
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				       "The policy name %s does not exist", name);
	if (rc < 0)
		return ns_io(n, rc);
	if (to == ECPOL_REMOVED && ec_policy_by_id(e.p.id))
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				       "System erasure coding policy %s cannot be removed", name);
	if (to == ECPOL_DISABLED && e.state != ECPOL_ENABLED)
		return 0; /* one that was removed stays so */
	e.state = to;
	rc = row_put(n->t, rules, &e);
	rc = rc ? rc : ecpol_enabled_text(n->t, rules, n->a, &enabled);
	if (!rc)
		ns_effect(n, EFFECT_POLICIES)->holder = enabled;
	return ns_io(n, rc);
}

/* One of the same parts, which includes one of the same name; its id is the largest when there is
 * none. */
static bool find_parts(const struct ecpol *all, size_t n, const struct ec_policy *p,
		       uint8_t *ret_last, struct ec_policy *ret)
{
	*ret_last = EC_ID_USER_FIRST - 1;
	for (size_t i = 0; i < n; i++) {
		if (ec_policy_same(&all[i].p, p)) {
			*ret = all[i].p;
			return true;
		}
		if (all[i].p.id > *ret_last)
			*ret_last = all[i].p.id;
	}
	return false;
}

int ecpol_add(struct ns *n, const struct ec_rules *rules, const char *codec,
	      const struct ec_policy *parts, struct ec_policy *ret, struct err *err)
{
	struct ecpol all[ECPOL_MAX], e = {.state = ECPOL_DISABLED};
	enum ec_codec c;
	uint8_t last;
	size_t count;
	int rc;

	if (!rules->may_add)
		return err_set(err, -EINVAL,
			       "Addition of user defined erasure coding policy is disabled.");
	rc = ec_policy_may_add(codec, parts->k, parts->m, parts->cell, rules->cell_max, err);
	rc = rc ? rc : ec_codec_find(codec, &c);
	rc = rc ? rc : ec_policy_make(c, parts->k, parts->m, parts->cell, EC_ID_NONE, &e.p, err);
	rc = rc ? rc : ecpol_list(n->t, rules, all, &count);
	if (rc < 0 || find_parts(all, count, &e.p, &last, ret))
		return rc;
	if (last == EC_ID_LAST)
		return err_set(
			err, -EINVAL,
			"Adding erasure coding policy failed because the number of "
			"policies stored in the system already reached the threshold, which is %u",
			(unsigned)EC_ID_LAST);
	e.p.id = (uint8_t)(last + 1);
	rc = row_put(n->t, rules, &e);
	if (!rc)
		*ret = e.p;
	return rc;
}

const char *ecpol_text(struct arena *a, const struct ec_policy *p)
{
	return arena_printf(
		a,
		"ErasureCodingPolicy=[Name=%s, Schema=[ECSchema=[Codec=%s, numDataUnits=%u, "
		"numParityUnits=%u]], CellSize=%u, Id=%u]",
		p->name, ec_codec_name(p->codec), p->k, p->m, p->cell, p->id);
}

/* ---- directories ---- */

static int own_get(struct txn *t, uint64_t dir, uint8_t *ret)
{
	const uint64_t key = htobe64(dir);
	MDB_val v;
	int rc = txn_get(t, t->db->ecdir, &key, sizeof(key), &v);

	if (!rc && v.mv_size != 1)
		rc = -EBADMSG;
	if (!rc)
		*ret = *(const uint8_t *)v.mv_data;
	return rc;
}

int ecdir_set(struct ns *n, const struct ec_rules *rules, const char *path, const char *name)
{
	const struct ec_policy *p = NULL;
	struct ns_path w;
	uint64_t key;
	int rc = ecpol_check_enabled(n, rules, name && *name ? name : rules->dflt, &p);

	rc = rc ? rc : ns_resolve_change(n, path, &w);
	if (!rc && w.last)
		rc = ns_check(n, w.last, ACCESS_W, w.path);
	rc = rc ? rc : ns_found(n, &w, "Path not found: ", "");
	if (!rc && w.last->type == INODE_FILE)
		rc = exception_throw(n->x, EXC_IO,
				     "Attempt to set an erasure coding policy for a file %s",
				     w.path);
	if (rc < 0)
		return rc;
	key = htobe64(w.last->id);
	return ns_io(n, txn_put(n->t, n->t->db->ecdir, &key, sizeof(key), &p->id, 1));
}

int ecdir_unset(struct ns *n, const char *path)
{
	struct ns_path w;
	uint8_t id;
	int rc = ns_resolve_change(n, path, &w);

	if (!rc && w.last)
		rc = ns_check(n, w.last, ACCESS_W, w.path);
	rc = rc ? rc : ns_found(n, &w, "Path not found: ", "");
	if (!rc && w.last->type == INODE_FILE)
		rc = exception_throw(n->x, EXC_IO,
				     "Cannot unset an erasure coding policy on a file %s", w.path);
	if (rc < 0)
		return rc;
	rc = own_get(n->t, w.last->id, &id);
	if (rc == -ENOENT)
		return exception_throw(n->x, EXC_NO_EC_POLICY,
				       "No erasure coding policy explicitly set on %s", w.path);
	return ns_io(n, rc ? rc : ecdir_del(n->t, w.last->id));
}

int ecdir_del(struct txn *t, uint64_t dir)
{
	const uint64_t key = htobe64(dir);
	int rc = any(t, t->db->ecdir) ? txn_del(t, t->db->ecdir, &key, sizeof(key)) : 0;

	return rc == -ENOENT ? 0 : rc;
}

/* What was set on @n or the nearest directory above it. -ENOENT: nothing. -EBADMSG: the disk says
 * that a directory is below itself, or below none. */
static int nearest(struct txn *t, const struct inode *n, struct arena *a, uint8_t *ret)
{
	struct inode_climb c = {0};
	struct inode *up;

	if (!any(t, t->db->ecdir))
		return -ENOENT;
	for (;;) {
		int rc = own_get(t, n->id, ret);

		if (rc != -ENOENT || n->id == INODE_ROOT)
			return rc;
		rc = inode_up(t, n, a, &c, &up);
		if (rc < 0)
			return rc;
		n = up;
	}
}

int ecdir_of(struct txn *t, const struct inode *n, struct arena *a, const struct ec_policy **ret)
{
	struct row row;
	uint8_t id;
	int rc;

	*ret = n->ec;
	if (n->type != INODE_DIR)
		return 0;
	rc = nearest(t, n, a, &id);
	if (rc < 0 || id == EC_ID_REPLICATION)
		return rc == -ENOENT ? 0 : rc;
	*ret = ec_policy_by_id(id);
	if (*ret)
		return 0;
	rc = row_get(t, id, &row);
	if (!rc)
		*ret = keep(a, &row.pol.p);
	return rc == -ENOENT ? -EBADMSG : rc;
}

int ecdir_name(struct txn *t, const struct inode *n, struct arena *a, char ret[static EC_NAME_MAX])
{
	const struct ec_policy *p;
	uint8_t id;
	int rc = ecdir_of(t, n, a, &p);

	*ret = 0;
	if (!rc && !p && n->type == INODE_DIR && !nearest(t, n, a, &id))
		p = ec_policy_by_id(id);
	if (p)
		memcpy(ret, p->name, EC_NAME_MAX);
	return rc;
}
