/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/live_settings.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum live_type { TYPE_u64, TYPE_size, TYPE_time, TYPE_bool };

static const struct setting {
	const char *key;
	enum live_type type;
	uint64_t dflt, min, max;
	size_t where; /* in struct live_settings */
} settings[] = {
#define LIVE(id, key, type, dflt, min, max)                                                        \
	{key, TYPE_##type, dflt, min, max, offsetof(struct live_settings, id)},
#include "datanode/live_settings.def"
#undef LIVE
};
#define SETTING_COUNT (sizeof(settings) / sizeof(settings[0]))

const char *live_settings_key(unsigned int i)
{
	return i < SETTING_COUNT ? settings[i].key : NULL;
}

static int read_value(const struct setting *s, const struct conf *conf, uint64_t *ret,
		      struct err *err)
{
	bool b = s->dflt != 0;
	int rc = 0;

	*ret = s->dflt;
	switch (s->type) {
	case TYPE_u64:
		return conf_u64(conf, s->key, s->dflt, ret, err);
	case TYPE_size:
		return conf_size(conf, s->key, s->dflt, ret, err);
	case TYPE_time:
		return conf_time_ms(conf, s->key, s->dflt, ret, err);
	case TYPE_bool:
		rc = conf_bool(conf, s->key, b, &b, err);
		*ret = b;
		break;
	}
	return rc;
}

static int read_one(struct live_settings *l, const struct setting *s, const struct conf *conf,
		    struct err *err)
{
	uint64_t v = 0;
	int rc = read_value(s, conf, &v, err);

	if (rc)
		return rc;
	if (v < s->min || v > s->max)
		return err_set(err, -EINVAL,
			       "%s is %" PRIu64 "%s; it must be %" PRIu64 " to %" PRIu64, s->key, v,
			       s->type == TYPE_time ? " ms" : "", s->min, s->max);
	atomic_store((atomic_uint_fast64_t *)((char *)l + s->where), v);
	return 0;
}

int live_settings_read(struct live_settings *l, const struct conf *conf, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < SETTING_COUNT; i++)
		rc = read_one(l, &settings[i], conf, err);
	return rc;
}

int live_settings_change(struct live_settings *l, const struct conf *conf, const char *key,
			 struct err *err)
{
	for (size_t i = 0; i < SETTING_COUNT; i++)
		if (!strcmp(settings[i].key, key))
			return read_one(l, &settings[i], conf, err);
	return err_set(err, -ENOENT, "%.200s takes effect when the data node starts again", key);
}
