/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/store/properties.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/err.h"

static int hex4(const char *s, uint32_t *ret)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++) {
		char c = s[i];

		if (c >= '0' && c <= '9')
			v = v * 16 + (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			v = v * 16 + (uint32_t)((c | 32) - 'a' + 10);
		else
			return -EINVAL;
	}
	*ret = v;
	return 0;
}

static char *put_utf8(char *out, uint32_t c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | (c >> 6));
		*out++ = (char)(0x80 | (c & 0x3f));
	} else {
		*out++ = (char)(0xe0 | (c >> 12));
		*out++ = (char)(0x80 | ((c >> 6) & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	}
	return out;
}

static int is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\f';
}

static int is_eol(char c)
{
	return c == '\n' || c == '\r' || c == '\0';
}

/* Skip a line break and the indentation of the continuation line. */
static const char *skip_continuation(const char *in)
{
	if (in[0] == '\r' && in[1] == '\n')
		in++;
	if (*in)
		in++;
	while (is_blank(*in))
		in++;
	return in;
}

/* Unescape one key or value in place: from *pin to @pout, until the line ends (or, for a key, a
 * separator comes). The output never overtakes the input. */
static int take_word(const char **pin, char **pout, int key)
{
	const char *in = *pin;
	char *out = *pout;
	uint32_t code;

	while (!is_eol(*in) && !(key && (*in == '=' || *in == ':' || is_blank(*in)))) {
		if (*in != '\\') {
			*out++ = *in++;
			continue;
		}
		in++;
		if (is_eol(*in)) {
			in = skip_continuation(in);
			continue;
		}
		switch (*in) {
		case 'u':
			if (hex4(in + 1, &code) || !code)
				return -EINVAL;
			out = put_utf8(out, code);
			in += 5;
			continue;
		case 't':
			*out++ = '\t';
			break;
		case 'n':
			*out++ = '\n';
			break;
		case 'r':
			*out++ = '\r';
			break;
		case 'f':
			*out++ = '\f';
			break;
		default:
			*out++ = *in;
			break;
		}
		in++;
	}
	*pin = in;
	*pout = out;
	return 0;
}

static int parse_line(const char **pin, char *out, struct props *p)
{
	struct prop *e = &p->list[p->count];
	int rc;

	if (p->count == PROPS_MAX)
		return -EFBIG;
	e->key = out;
	rc = take_word(pin, &out, 1);
	if (rc)
		return rc;
	while (is_blank(**pin))
		(*pin)++;
	if (**pin == '=' || **pin == ':')
		(*pin)++;
	while (is_blank(**pin))
		(*pin)++;
	/* The key's NUL may take the place of the separator, which has been read by now; a key
	 * that ends with the line has no value. */
	if (is_eol(**pin)) {
		char *end = out;

		if (**pin)
			(*pin)++;
		*end = '\0';
		e->value = end;
		p->count++;
		return 0;
	}
	*out++ = '\0';
	e->value = out;
	rc = take_word(pin, &out, 0);
	if (rc)
		return rc;
	if (**pin)
		(*pin)++;
	*out = '\0';
	p->count++;
	return 0;
}

int props_parse(char *text, struct props *ret)
{
	const char *in = text;
	int rc;

	*ret = (struct props){.text = text};
	while (*in) {
		if (is_blank(*in) || *in == '\n' || *in == '\r') {
			in++;
		} else if (*in == '#' || *in == '!') {
			while (!is_eol(*in))
				in++;
		} else {
			rc = parse_line(&in, text + (in - text), ret);
			if (rc)
				return rc;
		}
	}
	return 0;
}

int props_read(int dir_fd, const char *name, struct props *ret)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	char *text;
	ssize_t n;
	int rc;

	*ret = (struct props){0};
	if (fd < 0)
		return neg_errno();
	text = malloc(PROPS_FILE_MAX + 1);
	n = text ? read(fd, text, PROPS_FILE_MAX + 1) : -1;
	rc = !text ? -ENOMEM : n < 0 ? neg_errno() : n > PROPS_FILE_MAX ? -EFBIG : 0;
	(void)close(fd); /* opened for reading */
	if (rc) {
		free(text);
		return rc;
	}
	text[n] = '\0';
	rc = props_parse(text, ret);
	if (rc)
		props_fini(ret);
	return rc;
}

void props_fini(struct props *p)
{
	free(p->text);
	*p = (struct props){0};
}

const char *props_get(const struct props *p, const char *key)
{
	/* The last one wins, as in Java. */
	for (uint32_t i = p->count; i-- > 0;)
		if (!strcmp(p->list[i].key, key))
			return p->list[i].value;
	return NULL;
}

static void put_escaped(FILE *f, const char *s)
{
	for (const char *p = s; *p; p++) {
		if (*p == '\n' || *p == '\r') {
			fputs(*p == '\n' ? "\\n" : "\\r", f);
			continue;
		}
		if (strchr("\\:=#!", *p) || (*p == ' ' && p == s))
			fputc('\\', f);
		fputc(*p, f);
	}
}

static int write_to(FILE *f, const struct prop *list, uint32_t count)
{
	char date[64];
	time_t now = time(NULL);
	struct tm tm;

	strftime(date, sizeof(date), "%a %b %d %H:%M:%S UTC %Y", gmtime_r(&now, &tm));
	fputc('#', f);
	fputs(date, f);
	fputc('\n', f);
	for (uint32_t i = 0; i < count; i++) {
		put_escaped(f, list[i].key);
		fputc('=', f);
		put_escaped(f, list[i].value);
		fputc('\n', f);
	}
	if (fflush(f) || fsync(fileno(f)))
		return neg_errno();
	return 0;
}

int props_write(int dir_fd, const char *name, const struct prop *list, uint32_t count)
{
	char tmp[256];
	FILE *f;
	int fd, rc;

	if (snprintf(tmp, sizeof(tmp), "%s.tmp", name) >= (int)sizeof(tmp))
		return -ENAMETOOLONG;
	fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return neg_errno();
	f = fdopen(fd, "w");
	if (!f) {
		(void)close(fd); /* nothing written */
		return -ENOMEM;
	}
	rc = write_to(f, list, count);
	if (fclose(f) && !rc)
		rc = neg_errno();
	if (!rc)
		rc = ret_errno(renameat(dir_fd, tmp, dir_fd, name));
	if (!rc)
		rc = ret_errno(fsync(dir_fd));
	if (rc)
		(void)unlinkat(dir_fd, tmp, 0);
	return rc;
}
