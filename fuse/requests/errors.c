/* SPDX-License-Identifier: Apache-2.0 */
/* errors - names and errors on their way between kernel and HDFS */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "fuse/mount.h"

int tell(const char *fmt, ...)
{
	va_list ap;

	fputs("dfs-fuse: ", stderr);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return 1;
}

void id_path(char buf[ID_PATH_MAX], uint64_t id)
{
	snprintf(buf, ID_PATH_MAX, "/.reserved/.inodes/%" PRIu64, id);
}

void child_path(char buf[CHILD_PATH_MAX], uint64_t parent_id, const char *name)
{
	snprintf(buf, CHILD_PATH_MAX, "/.reserved/.inodes/%" PRIu64 "/%s", parent_id, name);
}

bool name_is_ours(const char *name)
{
	return strncmp(name, HIDDEN_PREFIX, strlen(HIDDEN_PREFIX)) == 0;
}

int name_check(const char *name, bool make)
{
	if (strlen(name) > DFS_NAME_MAX)
		return ENAMETOOLONG;
	if (!utf8_is_valid(name))
		return make ? EILSEQ : ENOENT;
	if (strchr(name, ':') || name_is_ours(name))
		return make ? EINVAL : ENOENT;
	return 0;
}

/* Errors that a program can cause by itself, as they are. The kernel must never see ENOSYS: it
 * would not ask again. */
static int plain_errno(int rc)
{
	static const int same[] = {ENOENT,  EACCES, EEXIST, ENOTDIR,      EISDIR, ENOTEMPTY, EINVAL,
				   EDQUOT,  ENOSPC, EROFS,  ENAMETOOLONG, ELOOP,  EPERM,     EBUSY,
				   ENODATA, ERANGE, E2BIG,  ESTALE,       EFBIG,  EBADF,     EILSEQ,
				   ENOTTY,  EMFILE, ENFILE, EINTR};

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (-rc == same[i])
			return same[i];
	return rc == -ENOTSUP || rc == -ENOSYS ? EOPNOTSUPP : 0;
}

/* Is it time for the next line? */
static bool is_due(struct fail_line *line, int rc)
{
	const uint64_t now = clock_mono_ns();
	uint_fast64_t last = atomic_load(&line->ns);
	const bool other = atomic_exchange(&line->rc, rc) != rc;

	return (!last || now - last >= (other ? NS_PER_S : FAIL_LINE_NS)) &&
	       atomic_compare_exchange_strong(&line->ns, &last, now);
}

int fail_errno(const char *op, int rc, const struct dfs_err *err)
{
	return fail_errno_limited(op, rc, err, NULL);
}

int fail_errno_limited(const char *op, int rc, const struct dfs_err *err, struct fail_line *line)
{
	const int plain = plain_errno(rc);
	char quoted[600];
	int to;

	if (rc >= 0)
		return 0;
	if (plain) {
		log_debug("op=%s errno=%d %s", op, plain,
			  err ? log_quote(quoted, sizeof(quoted), err->text, strlen(err->text))
			      : "");
		return plain;
	}
	switch (rc) {
	case -ENOMEM:
		to = ENOMEM;
		break;
	case -ETIMEDOUT:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -EAGAIN:
		to = ETIMEDOUT; /* the cluster, or its active NameNode, is out of reach */
		break;
	default:
		to = EIO;
	}
	log_line(!line || is_due(line, rc) ? LOG_WARN : LOG_DEBUG, "op=%s errno=%d rc=%d %s", op,
		 to, rc,
		 err ? log_quote(quoted, sizeof(quoted), err->text, strlen(err->text)) : "");
	return to;
}

bool fail_is_passing(int rc)
{
	return rc == -ETIMEDOUT || rc == -ECONNREFUSED || rc == -ECONNRESET ||
	       rc == -EHOSTUNREACH || rc == -ENETUNREACH || rc == -EAGAIN || rc == -EROFS ||
	       rc == -EBUSY || rc == -ENOSPC;
}
