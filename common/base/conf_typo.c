/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that nobody reads: which of ours was meant? */
#include <stdatomic.h>
#include <string.h>

#include "common/base/conf.h"
#include "common/base/conf_internal.h"
#include "common/base/log.h"

#define TYPO_MAX 2  /* letters wrong, missing, too many or in each other's place */
#define KEY_MAX 100 /* longer keys are not compared */

static const char *const known[] = {
#define CONF_KEY(name, dflt, type, help) name,
#include "common/base/conf_keys.def"
#undef CONF_KEY
};

/* Hadoop's own, and one letter away from one of ours. */
static const char *const not_meant[] = {"dfs.datanode.https.address", "dfs.namenode.https-address"};

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* Edits from @a to @b, two neighbours that changed places being one; the way is a table with a row
 * for each letter of @a, of which three rows are kept. */
static unsigned int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	unsigned int rows[3][KEY_MAX + 1], *before = rows[0], *last = rows[1], *now = rows[2];

	for (size_t j = 0; j <= b_len; j++)
		last[j] = (unsigned int)j;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned int *spare = before;

		now[0] = (unsigned int)i;
		for (size_t j = 1; j <= b_len; j++) {
			now[j] = least(least(last[j], now[j - 1]) + 1,
				       last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = least(now[j], before[j - 2] + 1);
		}
		before = last;
		last = now;
		now = spare;
	}
	return last[b_len];
}

const char *conf_nearest(const char *key, const char *prefix, unsigned int max)
{
	const size_t len = strlen(key);
	const char *nearest = NULL;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const size_t n = strlen(known[i]);
		unsigned int d;

		if (strncmp(known[i], prefix, strlen(prefix)) || len > KEY_MAX || n > KEY_MAX)
			continue;
		d = distance(key, len, known[i], n);
		if (d <= max) {
			nearest = known[i];
			max = d ? d - 1 : 0;
		}
	}
	return nearest;
}

/* "dfs.datanode.du.reserved.ssd" goes on where a key of ours ends: many may have something behind
 * them. */
static bool goes_on(const char *key, const char *of)
{
	const size_t n = strlen(of);

	return !strncmp(key, of, n) && key[n] == '.';
}

const char *conf_typo_of(const char *key)
{
	for (size_t i = 0; i < sizeof(not_meant) / sizeof(not_meant[0]); i++)
		if (!strcmp(key, not_meant[i]))
			return NULL;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(key, known[i]) || goes_on(key, known[i]))
			return NULL;
	return conf_nearest(key, "", TYPO_MAX);
}

static void warn_typo(void *arg, const char *key, const char *value)
{
	const char *meant = conf_typo_of(key);
	char buf[2 * KEY_MAX];

	(void)arg;
	(void)value;
	if (meant)
		log_warn("op=conf key=%s reason=\"unknown key, has no effect; is %s meant?\"",
			 log_quote(buf, sizeof(buf), key, strlen(key)), meant);
}

void conf_warn_typos(const struct conf *c)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&done))
		conf_each(c, warn_typo, NULL);
}
