/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ec_stripes FILE - compares stripes that Hadoop's coders made (lib/Coders.java) with ours
 *
 * Each stripe: the line "codec k m len", then k + m units of len bytes. The parity must be ours
 * byte for byte, and every lost unit must come back from the others. Prints how many stripes agree;
 * 1 and the first that does not otherwise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/erasure/coder.h"

#define LEN_MAX (16u << 20)

struct stripe {
	char codec[16];
	unsigned k, m, len;
	uint8_t *bytes; /* k + m units of len bytes each */
	struct ec_src unit[EC_UNITS_MAX];
};

/* 1, or 0 at the end of @f, or -1. */
static int take(FILE *f, struct stripe *s)
{
	char line[64], end;

	if (!fgets(line, sizeof(line), f))
		return 0;
	if (sscanf(line, "%15s %u %u %u%c", s->codec, &s->k, &s->m, &s->len, &end) != 5 ||
	    end != '\n' || !s->k || s->k >= EC_UNITS_MAX || s->m > EC_UNITS_MAX - s->k ||
	    s->len > LEN_MAX)
		return -1;
	s->bytes = malloc((size_t)(s->k + s->m) * s->len);
	if (!s->bytes || fread(s->bytes, s->len, s->k + s->m, f) != s->k + s->m)
		return -1;
	for (unsigned u = 0; u < s->k + s->m; u++)
		s->unit[u] = (struct ec_src){s->bytes + (size_t)u * s->len, s->len};
	return 1;
}

/* Every single unit, and every m units in a row, rebuilt from the others. */
static bool rebuilds(struct ec_coder *c, const struct stripe *s, uint8_t *const *out)
{
	const unsigned n = s->k + s->m;

	for (unsigned width = 1; width <= s->m; width += s->m > 1 ? s->m - 1 : 1)
		for (unsigned first = 0; first + width <= n; first++) {
			const uint32_t lost = ((1u << width) - 1) << first;

			if (ec_decode(c, ((1u << n) - 1) & ~lost, lost, s->unit, out, s->len) < 0)
				return false;
			for (unsigned u = first; u < first + width; u++)
				if (memcmp(out[u], s->unit[u].data, s->len))
					return false;
		}
	return true;
}

static bool agrees(const struct stripe *s, struct err *err)
{
	_cleanup_free_ uint8_t *memory = malloc((size_t)EC_UNITS_MAX * s->len);
	uint8_t *out[EC_UNITS_MAX];
	struct ec_coder *c = NULL;
	enum ec_codec codec;
	struct ec_policy p;
	bool ok;

	if (!memory || ec_codec_find(s->codec, &codec) < 0 ||
	    ec_policy_make(codec, s->k, s->m, 65536, EC_ID_NONE, &p, err) < 0 ||
	    ec_coder_new(&p, &c, err) < 0)
		return false;
	for (unsigned u = 0; u < EC_UNITS_MAX; u++)
		out[u] = memory + (size_t)u * s->len;
	ec_encode(c, s->unit, out, s->len);
	ok = !memcmp(memory, s->unit[s->k].data, (size_t)s->m * s->len) && rebuilds(c, s, out);
	ec_coder_free(c);
	return ok;
}

int main(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct stripe s = {.bytes = NULL};
	unsigned count = 0;
	FILE *f = argc == 2 ? fopen(argv[1], "rbe") : NULL;
	bool ok = true;
	int rc = 0;

	if (!f) {
		fprintf(stderr, "usage: ec_stripes FILE\n");
		return 2;
	}
	while (ok && (rc = take(f, &s)) == 1) {
		ok = agrees(&s, &err);
		if (ok)
			count++;
		else
			printf("%s %u+%u, %u bytes: not the same %s\n", s.codec, s.k, s.m, s.len,
			       err.text);
		free(s.bytes);
		s.bytes = NULL;
	}
	free(s.bytes);
	(void)fclose(f);
	if (rc < 0)
		printf("not a file of stripes\n");
	if (ok && !rc)
		printf("%u stripes agree\n", count);
	return ok && !rc ? 0 : 1;
}
