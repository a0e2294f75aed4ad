/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator may say about connections and memory regions (verbs.h). */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "common/base/conf.h"
#include "common/reactor/reactor.h"
#include "common/transport/verbs_internal.h"

#define ACK_UNIT_NS 4096u /* the device waits this, times a power of two */
#define ACK_MS_MAX 10000u /* below VERBS_PATIENCE_NS with a few retries */
#define RETRIES_MAX 7u    /* three bits */
#define CLASS_MAX 255u

const struct verbs_tuning verbs_tuning_default = {
	.traffic_class = -1,
	.ack_exp = 16,
	.retries = RETRIES_MAX,
	.relaxed = true,
	.use_rails = true,
};

/* The least one that is no shorter. */
static uint8_t ack_exp_of(uint64_t ms)
{
	uint8_t exp = 1; /* 0: for ever */

	while ((uint64_t)ACK_UNIT_NS << exp < ms * NS_PER_MS)
		exp++;
	return exp;
}

/* auto, off, or addresses. */
static int rails_read(const struct conf *c, struct verbs_tuning *t, struct err *err)
{
	const char *text = conf_get_or(c, "dfs.rdma.rails", "auto");
	char copy[VERBS_RAILS * NET_TEXT_MAX], *rest = copy, *one;

	t->use_rails = strcmp(text, "off") != 0;
	if (!t->use_rails || !strcmp(text, "auto"))
		return 0;
	if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
		return err_set(err, -EINVAL, "dfs.rdma.rails names more than %u addresses",
			       VERBS_RAILS);
	while ((one = strtok_r(NULL, ", ", &rest))) {
		uint8_t *to = t->rail[t->rails];
		struct in_addr v4;

		if (t->rails == VERBS_RAILS)
			return err_set(err, -EINVAL, "dfs.rdma.rails names more than %u addresses",
				       VERBS_RAILS);
		if (inet_pton(AF_INET, one, &v4) == 1)
			rail_from_v4(&v4, to);
		else if (inet_pton(AF_INET6, one, to) != 1)
			return err_set(err, -EINVAL,
				       "dfs.rdma.rails: %s is no address; it can be auto, off, or "
				       "addresses like 10.0.0.1,10.1.0.1",
				       one);
		t->rails++;
	}
	return t->rails ? 0
			: err_set(err, -EINVAL,
				  "dfs.rdma.rails is empty; it can be auto, off, "
				  "or addresses like 10.0.0.1,10.1.0.1");
}

int verbs_tuning_read(const struct conf *c, struct verbs_tuning *ret, struct err *err)
{
	uint64_t class = CLASS_MAX + 1, retries = RETRIES_MAX, ack = 0;
	int rc;

	*ret = verbs_tuning_default;
	rc = conf_u64(c, "dfs.rdma.traffic.class", class, &class, err);
	if (!rc)
		rc = conf_time_ms(c, "dfs.rdma.ack.timeout", 268, &ack, err);
	if (!rc)
		rc = conf_u64(c, "dfs.rdma.retries", retries, &retries, err);
	if (!rc)
		rc = conf_bool(c, "dfs.rdma.relaxed.ordering", true, &ret->relaxed, err);
	if (!rc)
		rc = rails_read(c, ret, err);
	if (rc < 0)
		return rc;
	if (class > CLASS_MAX && conf_get(c, "dfs.rdma.traffic.class"))
		return err_set(err, -EINVAL, "dfs.rdma.traffic.class is at most %u", CLASS_MAX);
	if (!ack || ack > ACK_MS_MAX)
		return err_set(err, -EINVAL, "dfs.rdma.ack.timeout is from 1ms to %us",
			       ACK_MS_MAX / 1000);
	if (retries > RETRIES_MAX)
		return err_set(err, -EINVAL, "dfs.rdma.retries is at most %u", RETRIES_MAX);
	ret->traffic_class = class > CLASS_MAX ? -1 : (int)class;
	ret->ack_exp = ack_exp_of(ack);
	ret->retries = (uint8_t)retries;
	return 0;
}

int verbs_polling_read(const struct conf *c, int32_t *ret_spin_us, struct err *err)
{
	static const struct {
		const char *name;
		int32_t spin_us;
	} ways[] = {{"adaptive", REACTOR_SPIN_ADAPTIVE}, {"busy", REACTOR_SPIN_ALWAYS}, {"off", 0}};
	const char *name = conf_get_or(c, "dfs.rdma.polling", "adaptive");

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(name, ways[i].name) == 0) {
			*ret_spin_us = ways[i].spin_us;
			return 0;
		}
	return err_set(err, -EINVAL, "dfs.rdma.polling is %s; it can be adaptive, busy or off",
		       name);
}

int verbs_windows_read(const struct conf *c, enum verbs_windows *ret, struct err *err)
{
	static const struct {
		const char *name;
		enum verbs_windows windows;
	} ways[] = {
		{"auto", VERBS_WINDOWS_AUTO}, {"on", VERBS_WINDOWS_ON}, {"off", VERBS_WINDOWS_OFF}};
	const char *name = conf_get_or(c, "dfs.rdma.windows", "auto");

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(name, ways[i].name) == 0) {
			*ret = ways[i].windows;
			return 0;
		}
	return err_set(err, -EINVAL, "dfs.rdma.windows is %s; it can be auto, on or off", name);
}
