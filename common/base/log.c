/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/utf8.h"

#define LOG_LINE_MAX 2048

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *log_comp = "dfs"; /* set once, before threads */
static _Atomic int log_level = LOG_INFO;

void log_init(const char *comp, enum log_level level)
{
	log_comp = comp;
	atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

int log_parse_level(const char *s, enum log_level *ret)
{
	for (int i = LOG_ERROR; i <= LOG_DEBUG; i++)
		if (!strcasecmp(s, level_names[i])) {
			*ret = (enum log_level)i;
			return 0;
		}
	return -EINVAL;
}

bool log_enabled(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

/* The length of what snprintf() really wrote. */
static size_t clip(int n, size_t room)
{
	return n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

/* DEL, or one of U+0080 to U+009F: a terminal may obey it. */
static bool is_late_control(const char *s)
{
	return *s == 0x7f || ((unsigned char)s[0] == 0xc2 && (unsigned char)s[1] < 0xa0);
}

/* Append @s, one line of UTF-8 whatever it holds; what does not fit is cut. Returns the new length.
 */
static size_t put_text(char line[LOG_LINE_MAX], size_t at, const char *s)
{
	while (*s) {
		const size_t len = is_late_control(s) ? 0 : utf8_char_len(s);

		if (at + (len ? len : UTF8_ESCAPED) + 4 > LOG_LINE_MAX) {
			memcpy(line + at, "...", 3);
			return at + 3;
		}
		if (len == 0) {
			utf8_escape(line + at, *s++);
			at += UTF8_ESCAPED;
		} else if ((unsigned char)*s < 0x20) {
			line[at++] = ' ';
			s++;
		} else {
			memcpy(line + at, s, len);
			at += len;
			s += len;
		}
	}
	return at;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char line[LOG_LINE_MAX], text[LOG_LINE_MAX];
	struct timespec ts;
	struct tm tm;
	va_list ap;
	size_t len;
	int n;

	if (!log_enabled(level))
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	len = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line + len, sizeof(line) - len, ".%03dZ %s %s ", (int)(ts.tv_nsec / 1000000),
		     level_names[level], log_comp);
	len += clip(n, sizeof(line) - len);
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	len = put_text(line, len, text);
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* nowhere left to complain */
}

bool log_rate_ok(struct log_rate *r, uint32_t interval_ms, uint32_t *ret_dropped)
{
	uint64_t now = clock_mono_ns();

	if (now < r->next_ns) {
		r->dropped++;
		return false;
	}
	if (ret_dropped)
		*ret_dropped = r->dropped;
	*r = (struct log_rate){.next_ns = now + interval_ms * NS_PER_MS};
	return true;
}

const char *log_quote(char *buf, size_t size, const void *text, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *s = (const unsigned char *)text;
	size_t n = 0;

	if (size < 10) { /* no room for one escape, "...", quotes and NUL */
		if (size)
			*buf = '\0';
		return buf;
	}
	buf[n++] = '"';
	for (size_t i = 0; i < len; i++) {
		if (n + 9 > size) {
			memcpy(buf + n, "...", 3);
			n += 3;
			break;
		}
		if (s[i] == '"' || s[i] == '\\') {
			buf[n++] = '\\';
			buf[n++] = (char)s[i];
		} else if (s[i] >= 0x20 && s[i] < 0x7f) {
			buf[n++] = (char)s[i];
		} else {
			buf[n++] = '\\';
			buf[n++] = 'x';
			buf[n++] = hex[s[i] >> 4];
			buf[n++] = hex[s[i] & 15];
		}
	}
	buf[n++] = '"';
	buf[n] = '\0';
	return buf;
}
