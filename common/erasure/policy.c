/* SPDX-License-Identifier: Apache-2.0 */
#include "common/erasure/policy.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define KIB 1024u
#define CODECS (EC_CODEC_XOR + 1)

static const char *const codec_names[CODECS] = {
	[EC_CODEC_REPLICATION] = "replication",
	[EC_CODEC_RS] = "rs",
	[EC_CODEC_RS_LEGACY] = "rs-legacy",
	[EC_CODEC_XOR] = "xor",
};

/* What Java's toUpperCase() makes of them at the beginning of a policy's name. */
static const char *const codec_prefixes[CODECS] = {
	[EC_CODEC_RS] = "RS",
	[EC_CODEC_RS_LEGACY] = "RS-LEGACY",
	[EC_CODEC_XOR] = "XOR",
};

static const struct ec_policy replication = {
	EC_REPLICATION_NAME, EC_CODEC_REPLICATION, EC_ID_REPLICATION, 1, 2, 1024 * KIB};

static const struct ec_policy builtin[] = {
	{"RS-6-3-1024k", EC_CODEC_RS, EC_ID_RS_6_3, 6, 3, 1024 * KIB},
	{"RS-3-2-1024k", EC_CODEC_RS, EC_ID_RS_3_2, 3, 2, 1024 * KIB},
	{"RS-LEGACY-6-3-1024k", EC_CODEC_RS_LEGACY, EC_ID_RS_LEGACY_6_3, 6, 3, 1024 * KIB},
	{"XOR-2-1-1024k", EC_CODEC_XOR, EC_ID_XOR_2_1, 2, 1, 1024 * KIB},
	{"RS-10-4-1024k", EC_CODEC_RS, EC_ID_RS_10_4, 10, 4, 1024 * KIB},
};

#define BUILTIN (sizeof(builtin) / sizeof(builtin[0]))

const char *ec_codec_name(enum ec_codec codec)
{
	assert(codec < CODECS);
	return codec_names[codec];
}

int ec_codec_find(const char *name, enum ec_codec *ret)
{
	for (unsigned i = 0; i < CODECS; i++)
		if (!strcmp(name, codec_names[i])) {
			*ret = (enum ec_codec)i;
			return 0;
		}
	return -ENOENT;
}

const struct ec_policy *ec_policy_by_id(uint32_t id)
{
	if (id == EC_ID_REPLICATION)
		return &replication;
	for (size_t i = 0; i < BUILTIN; i++)
		if (builtin[i].id == id)
			return &builtin[i];
	return NULL;
}

const struct ec_policy *ec_policy_by_name(const char *name)
{
	if (!strcasecmp(name, EC_REPLICATION_NAME))
		return &replication;
	for (size_t i = 0; i < BUILTIN; i++)
		if (!strcmp(builtin[i].name, name))
			return &builtin[i];
	return NULL;
}

int ec_policy_make(enum ec_codec codec, uint32_t k, uint32_t m, uint32_t cell, uint32_t id,
		   struct ec_policy *ret, struct err *err)
{
	struct ec_policy p = {
		.codec = codec, .id = (uint8_t)id, .k = (uint8_t)k, .m = (uint8_t)m, .cell = cell};

	if (codec >= CODECS || codec == EC_CODEC_REPLICATION)
		return err_set(err, -EINVAL,
			       "no codec of an erasure-coding policy; there are rs, "
			       "rs-legacy and xor");
	if (!k || !m || k > EC_UNITS_MAX || m > EC_UNITS_MAX - k)
		return err_set(err, -EINVAL,
			       "%u data and %u parity units: each must be at least 1, "
			       "and both together at most %u",
			       k, m, EC_UNITS_MAX);
	if (codec == EC_CODEC_XOR && m != 1)
		return err_set(err, -EINVAL, "xor with %u parity units: it has exactly 1", m);
	if (!cell || cell % EC_CELL_STEP || cell > EC_CELL_MAX)
		return err_set(err, -EINVAL,
			       "cells of %u bytes: they must be a multiple of %u and at "
			       "most %u",
			       cell, EC_CELL_STEP, EC_CELL_MAX);
	if (id > EC_ID_LAST && id != EC_ID_NONE)
		return err_set(err, -EINVAL, "policy id %u is above %u", id, (unsigned)EC_ID_LAST);
	(void)snprintf(p.name, sizeof(p.name), "%s-%u-%u-%uk", codec_prefixes[codec], k, m,
		       cell / KIB);
	*ret = p;
	return 0;
}

/* A decimal number of at most six digits without leading zeros; @*s moves behind it. */
static bool take_number(const char **s, uint32_t *ret)
{
	uint32_t v = 0;
	unsigned digits = 0;

	for (; **s >= '0' && **s <= '9'; (*s)++, digits++) {
		if (digits == 6)
			return false;
		v = v * 10 + (uint32_t)(**s - '0');
	}
	*ret = v;
	return v > 0 && (*s)[-(int)digits] != '0';
}

static bool take_char(const char **s, char c)
{
	return **s == c && *(*s)++;
}

/* The longest prefix wins: "RS-LEGACY-" before "RS-". */
static bool take_codec(const char **s, enum ec_codec *ret)
{
	size_t best = 0;

	for (unsigned i = 0; i < CODECS; i++) {
		const size_t n = codec_prefixes[i] ? strlen(codec_prefixes[i]) : 0;

		if (n > best && !strncmp(*s, codec_prefixes[i], n) && (*s)[n] == '-') {
			best = n;
			*ret = (enum ec_codec)i;
		}
	}
	*s += best ? best + 1 : 0;
	return best > 0;
}

int ec_policy_parse(const char *name, struct ec_policy *ret, struct err *err)
{
	const struct ec_policy *known = ec_policy_by_name(name);
	const char *s = name;
	enum ec_codec codec;
	uint32_t k, m, cell;

	if (known) {
		*ret = *known;
		return 0;
	}
	if (!take_codec(&s, &codec) || !take_number(&s, &k) || !take_char(&s, '-') ||
	    !take_number(&s, &m) || !take_char(&s, '-') || !take_number(&s, &cell) ||
	    !take_char(&s, 'k') || *s)
		return err_set(
			err, -EINVAL,
			"'%.64s' is no erasure-coding policy; write one like " EC_DEFAULT_POLICY
			": codec (RS or XOR), data units, parity units, "
			"cell size in KiB",
			name);
	if (cell > EC_CELL_MAX / KIB)
		return err_set(err, -EINVAL, "'%.64s': cells above %u KiB", name,
			       EC_CELL_MAX / KIB);
	return ec_policy_make(codec, k, m, cell * KIB, EC_ID_NONE, ret, err);
}

bool ec_policy_same(const struct ec_policy *a, const struct ec_policy *b)
{
	return a->codec == b->codec && a->k == b->k && a->m == b->m && a->cell == b->cell;
}

int ec_policy_may_add(const char *codec, uint32_t k, uint32_t m, uint32_t cell, uint32_t cell_max,
		      struct err *err)
{
	struct ec_policy p;
	enum ec_codec c;

	if (ec_codec_find(codec, &c) < 0 || c == EC_CODEC_REPLICATION)
		return err_set(err, -EINVAL, "Codec name %.64s is not supported", codec);
	if (k > EC_UNITS_MAX || m > EC_UNITS_MAX - k)
		return err_set(err, -EINVAL,
			       "Number of data and parity blocks in an EC group %llu "
			       "should not exceed maximum %u",
			       (unsigned long long)k + m, EC_UNITS_MAX);
	if (cell > cell_max)
		return err_set(err, -EINVAL, "Cell size %u should not exceed maximum %u bytes",
			       cell, cell_max);
	return ec_policy_make(c, k, m, cell, EC_ID_NONE, &p, err);
}

int ec_policy_can_code(const struct ec_policy *p, struct err *err)
{
	if (p->codec == EC_CODEC_RS_LEGACY)
		return err_set(err, -ENOTSUP,
			       "%s is of the old codec rs-legacy, which dfs-rdma does "
			       "not code; its files can be read and rewritten with a stock client",
			       p->name);
	if (p->codec == EC_CODEC_REPLICATION)
		return err_set(err, -ENOTSUP, "%s is no erasure-coding policy", p->name);
	return 0;
}
