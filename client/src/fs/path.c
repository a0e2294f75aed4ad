/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/fs/path.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

/* Append the components of @path to @buf of length @len; returns the new length or -errno. */
static int append(char *buf, size_t len, const char *path)
{
	while (*path) {
		const size_t n = strcspn(path, "/");

		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (len > 0 && buf[--len] != '/')
				;
		} else if (n > 0 && !(n == 1 && path[0] == '.')) {
			if (len + 1 + n >= PATH_TEXT_MAX)
				return -ENAMETOOLONG;
			buf[len++] = '/';
			memcpy(buf + len, path, n);
			len += n;
		}
		path += n;
		path += strspn(path, "/");
	}
	return (int)len;
}

/* "s3a://bucket/key", "file:/p": the name of something, but not of a path here. No file has such a
 * name either: a NameNode allows no colon in one. */
static bool is_address(const char *path)
{
	const size_t n = strcspn(path, ":/");

	return n > 0 && path[n] == ':' && path[n + 1] == '/';
}

char *path_by_id(char buf[PATH_BY_ID_MAX], uint64_t id)
{
	snprintf(buf, PATH_BY_ID_MAX, "/.reserved/.inodes/%" PRIu64, id);
	return buf;
}

int path_resolve(const char *user, const char *path, char *buf, struct err *err)
{
	int len = 0;

	if (!path || !*path)
		return err_set(err, -EINVAL, "the path is empty");
	if (is_address(path))
		return err_set(err, -EINVAL,
			       "%.200s: an address; wanted is a path in the file system", path);
	if (!utf8_is_valid(path))
		return err_set(err, -EINVAL, "the path is not UTF-8, which HDFS requires");
	if (*path != '/') {
		len = append(buf, 0, "/user");
		len = append(buf, (size_t)len, user);
	}
	if (len >= 0)
		len = append(buf, (size_t)len, path);
	if (len < 0)
		return err_set(err, len, "the path is longer than %d bytes", PATH_TEXT_MAX - 1);
	if (len == 0)
		buf[len++] = '/';
	buf[len] = '\0';
	return 0;
}
