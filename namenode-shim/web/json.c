/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/web/json.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static void quoted(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s; s++)
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			fprintf(out, "\\u%04x", (unsigned int)*s);
		else
			fputc(*s, out);
	fputc('"', out);
}

static void begin(struct json *j, const char *key)
{
	if (j->more[j->depth])
		fputc(',', j->out);
	if (j->pretty && j->depth)
		fprintf(j->out, "\n%*s", 2 * j->depth, "");
	j->more[j->depth] = true;
	if (!key)
		return;
	quoted(j->out, key);
	fputs(j->pretty ? " : " : ":", j->out);
}

void json_open(struct json *j, const char *key, char open)
{
	begin(j, key);
	fputc(open, j->out);
	assert(j->depth + 1 < JSON_DEPTH_MAX); /* our own nesting, never a peer's */
	j->more[++j->depth] = false;
}

void json_close(struct json *j, char close)
{
	const bool any = j->more[j->depth--];

	if (j->pretty && any)
		fprintf(j->out, "\n%*s", 2 * j->depth, "");
	fputc(close, j->out);
}

void json_text(struct json *j, const char *key, const char *value)
{
	begin(j, key);
	if (value)
		quoted(j->out, value);
	else
		fputs("null", j->out);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
	begin(j, key);
	fprintf(j->out, "%" PRIu64, value);
}

void json_bool(struct json *j, const char *key, bool value)
{
	begin(j, key);
	fputs(value ? "true" : "false", j->out);
}

void json_num(struct json *j, const char *key, double value)
{
	begin(j, key);
	fprintf(j->out, "%.8g", value);
}
