/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/err.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Copy @s to @pos of e->text on one line; what does not fit is cut. */
static void put_text(struct err *e, size_t pos, const char *s)
{
	static const char hex[] = "0123456789abcdef";

	for (; *s; s++) {
		unsigned char ch = (unsigned char)*s;
		bool plain = ch >= 0x20 && ch != 0x7f;

		if (pos + (plain ? 1 : 4) >= ERR_TEXT_MAX)
			break;
		if (plain) {
			e->text[pos++] = *s;
			continue;
		}
		e->text[pos++] = '\\';
		e->text[pos++] = 'x';
		e->text[pos++] = hex[ch >> 4];
		e->text[pos++] = hex[ch & 15];
	}
	e->text[pos] = '\0';
}

int err_set(struct err *e, int rc, const char *fmt, ...)
{
	char buf[ERR_TEXT_MAX];
	va_list ap;

	if (!e)
		return rc;
	va_start(ap, fmt);
	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	*e = (struct err){.rc = rc};
	put_text(e, 0, buf);
	return rc;
}

int err_sys(struct err *e, int rc, const char *fmt, ...)
{
	char buf[ERR_TEXT_MAX];
	va_list ap;

	if (!e)
		return rc;
	va_start(ap, fmt);
	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	*e = (struct err){.rc = rc};
	put_text(e, 0, buf);
	put_text(e, strlen(e->text), ": ");
	put_text(e, strlen(e->text), err_name(rc));
	return rc;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	char buf[ERR_TEXT_MAX], old[ERR_TEXT_MAX];
	va_list ap;

	if (!e)
		return -EIO;
	va_start(ap, fmt);
	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	memcpy(old, e->text, sizeof(old));
	put_text(e, 0, buf);
	put_text(e, strlen(e->text), ": ");
	put_text(e, strlen(e->text), old);
	return e->rc;
}

int err_cure(struct err *e, const char *fmt, ...)
{
	char buf[ERR_TEXT_MAX];
	va_list ap;
	size_t len;

	if (!e)
		return -EIO;
	va_start(ap, fmt);
	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	len = strlen(e->text);
	if (len > 1 && e->text[len - 1] == '.' && e->text[len - 2] != '.') /* a sentence of Java */
		e->text[--len] = '\0';
	put_text(e, len, "; ");
	put_text(e, strlen(e->text), buf);
	return e->rc;
}

const char *err_name(int rc)
{
	const char *s = strerrordesc_np(rc < 0 ? -rc : rc);

	return s ? s : "unknown error";
}
