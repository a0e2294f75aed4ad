/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/err.h"

#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

/* Copy @s to @pos of e->text on one line; what does not fit is cut. */
static void put_text(struct err *e, size_t pos, const char *s)
{
	while (*s) {
		const size_t len = (unsigned char)*s < 0x20 || *s == 0x7f ? 0 : utf8_char_len(s);

		if (pos + (len ? len : UTF8_ESCAPED) >= ERR_TEXT_MAX)
			break;
		if (len) {
			memcpy(e->text + pos, s, len);
			pos += len;
			s += len;
		} else {
			utf8_escape(e->text + pos, *s++);
			pos += UTF8_ESCAPED;
		}
	}
	e->text[pos] = '\0';
}

static void set_text(struct err *e, int rc, const char *fmt, va_list ap)
{
	char buf[ERR_TEXT_MAX]; /* what is formatted may be in @e */

	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	*e = (struct err){.rc = rc};
	put_text(e, 0, buf);
}

int err_set(struct err *e, int rc, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return rc;
	va_start(ap, fmt);
	set_text(e, rc, fmt, ap);
	va_end(ap);
	return rc;
}

int err_sys(struct err *e, int rc, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return rc;
	va_start(ap, fmt);
	set_text(e, rc, fmt, ap);
	va_end(ap);
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
