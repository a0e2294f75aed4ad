/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * log - key=value lines on stderr
 *
 * Idea: one line per decision, ids first: `op=read block=... peer=... rc=-EPROTO`. Programs log;
 * common and client return errors and log at most at debug.
 * Every line: `<ISO time, ms> <level> <comp> <message>`, UTF-8: other bytes come out as \xNN. Text
 * from peers goes through log_quote().
 * Threading: any thread; one write(2) per line.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/** @comp: program name in each line, static. @level: from `dfs.log.level` or -v. */
void log_init(const char *comp, enum log_level level);
/** "error", "warn", "info", "debug"; -EINVAL otherwise. */
int log_parse_level(const char *s, enum log_level *ret);
bool log_enabled(enum log_level level);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_enabled(LOG_DEBUG))                                                        \
			log_line(LOG_DEBUG, __VA_ARGS__);                                          \
	} while (0)

/** At most one line per @interval_ms from one place; the next one tells how many were dropped
 *  (@ret_dropped may be NULL). */
struct log_rate {
	uint64_t next_ns;
	uint32_t dropped;
};
bool log_rate_ok(struct log_rate *r, uint32_t interval_ms, uint32_t *ret_dropped);

/** Quote untrusted text for a log line into @buf (escapes, truncates with "..."); returns @buf. */
const char *log_quote(char *buf, size_t size, const void *text, size_t len);
