/* SPDX-License-Identifier: Apache-2.0 */
/* safe_mode - changes are refused until enough blocks are reported, or an administrator ends it */
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/nn.h"

static uint64_t blocks_needed(const struct nn *nn)
{
	return (uint64_t)((double)nn->safe.total * nn->set.safe_pct);
}

/* The tip of startup safe mode, in the words of HDFS: scripts look for them. */
static void startup_text(const struct nn *nn, char *buf)
{
	const struct safemode *s = &nn->safe;
	const uint64_t need = blocks_needed(nn), have = nn->blocks.safe;
	const uint32_t live = datanodes_live(&nn->dns), want = nn->set.safe_nodes;
	const uint64_t gone = s->reached_ns ? (clock_mono_ns() - s->reached_ns) / NS_PER_MS : 0;
	const uint64_t ext = nn->set.safe_extension_ms;
	int n;

	if (have < need)
		n = snprintf(buf, ERR_TEXT_MAX,
			     "The reported blocks %llu needs additional %llu blocks to reach the "
			     "threshold %.4f of total blocks %llu.\n",
			     (unsigned long long)have, (unsigned long long)(need - have),
			     nn->set.safe_pct, (unsigned long long)s->total);
	else
		n = snprintf(buf, ERR_TEXT_MAX,
			     "The reported blocks %llu has reached the threshold %.4f of total "
			     "blocks %llu. ",
			     (unsigned long long)have, nn->set.safe_pct,
			     (unsigned long long)s->total);
	if (live < want)
		n += snprintf(
			buf + n, ERR_TEXT_MAX - (size_t)n,
			"The number of live datanodes %u needs an additional %u live datanodes "
			"to reach the minimum number %u.\n",
			live, want - live, want);
	else
		n += snprintf(buf + n, ERR_TEXT_MAX - (size_t)n,
			      "The number of live datanodes %u has reached the minimum number %u. ",
			      live, want);
	if (s->reached_ns)
		snprintf(buf + n, ERR_TEXT_MAX - (size_t)n,
			 "In safe mode extension. Safe mode will be turned off automatically in "
			 "%llu seconds.",
			 (unsigned long long)(gone < ext ? (ext - gone) / 1000 : 0));
	else
		snprintf(buf + n, ERR_TEXT_MAX - (size_t)n,
			 "Safe mode will be turned off automatically once the thresholds have been "
			 "reached.");
}

const char *nn_safe_text(const struct nn *nn, char *buf)
{
	if (nn->safe.startup && !nn->safe.manual)
		startup_text(nn, buf);
	else
		snprintf(buf, ERR_TEXT_MAX,
			 "It was turned on manually. Use \"hdfs dfsadmin -safemode leave\" to turn "
			 "safe mode off.");
	return buf;
}

void nn_check_safe_mode(struct nn *nn)
{
	struct safemode *s = &nn->safe;
	const uint64_t now = clock_mono_ns();

	if (!s->startup)
		return;
	if (nn->blocks.safe < blocks_needed(nn) || datanodes_live(&nn->dns) < nn->set.safe_nodes) {
		s->reached_ns = 0;
		return;
	}
	if (!s->reached_ns)
		s->reached_ns = now;
	if ((!s->empty_start || nn->set.safe_nodes) &&
	    now - s->reached_ns < nn->set.safe_extension_ms * NS_PER_MS)
		return;
	s->startup = false;
	s->on = nn->blocks.quiet = s->manual;
	s->left_ns = now;
	if (s->on)
		return; /* an administrator ends it */
	blocks_recheck_all(&nn->blocks);
	log_info("op=safemode state=off blocks=%llu reported=%llu", (unsigned long long)s->total,
		 (unsigned long long)nn->blocks.safe);
}
