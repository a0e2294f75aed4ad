/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/domain.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 512   /* a client that finds it full reads by TCP for a while */
#define MODE_ALL 0666 /* who may read what is decided per block */
#define PORT_MARK "_PORT"

/* ---- the path ---- */

int domain_path(const char *text, uint16_t port, char ret[DOMAIN_PATH_MAX], struct err *err)
{
	char out[DOMAIN_PATH_MAX], digits[8];
	const int width = snprintf(digits, sizeof(digits), "%u", port);
	size_t len = 0;

	if (text[0] != '/' || text[strlen(text) - 1] == '/')
		return err_set(err, -EINVAL,
			       "dfs.domain.socket.path=%.200s: not the absolute path of a socket",
			       text);
	while (*text) {
		const bool is_mark = strncmp(text, PORT_MARK, strlen(PORT_MARK)) == 0;
		const size_t n = is_mark ? (size_t)width : 1;

		if (len + n >= sizeof(out))
			return err_set(
				err, -EINVAL,
				"dfs.domain.socket.path: longer than %zu bytes with the port in it, as "
				"sockets' names must not be",
				sizeof(out) - 1);
		memcpy(out + len, is_mark ? digits : text, n);
		len += n;
		text += is_mark ? strlen(PORT_MARK) : 1;
	}
	out[len] = '\0';
	memcpy(ret, out, len + 1);
	return 0;
}

static int check_directory(const char *dir, struct err *err)
{
	struct stat st;

	if (stat(dir, &st) < 0)
		return err_sys(err, neg_errno(), "dfs.domain.socket.path: %s", dir);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, -ENOTDIR, "dfs.domain.socket.path: %s is not a directory", dir);
	if (st.st_mode & S_IWOTH)
		err_set(err, -EPERM,
			"dfs.domain.socket.path: everybody may write to %s (mode %04o)", dir,
			st.st_mode & 07777);
	else if (st.st_mode & S_IWGRP && st.st_gid != 0)
		err_set(err, -EPERM, "dfs.domain.socket.path: group %u may write to %s (mode %04o)",
			st.st_gid, dir, st.st_mode & 07777);
	else if (st.st_mode & S_IWUSR && st.st_uid != 0 && st.st_uid != geteuid())
		err_set(err, -EPERM,
			"dfs.domain.socket.path: %s belongs to user %u, neither root nor %u, who runs this",
			dir, st.st_uid, geteuid());
	else
		return 0;
	err_cure(
		err,
		"another user could put a false socket there: take the write permission away, or choose another directory");
	return -EPERM;
}

int domain_path_check(const char *path, struct err *err)
{
	char dir[DOMAIN_PATH_MAX];
	int rc = check_directory("/", err);

	for (const char *p = strchr(path + 1, '/'); rc == 0 && p; p = strchr(p + 1, '/')) {
		const size_t len = (size_t)(p - path);

		if (len >= sizeof(dir))
			return err_set(err, -ENAMETOOLONG, "dfs.domain.socket.path: too long");
		memcpy(dir, path, len);
		dir[len] = '\0';
		rc = check_directory(dir, err);
	}
	return rc;
}

/* ---- sockets ---- */

static int open_socket(const char *path, int flags, struct sockaddr_un *ret)
{
	const size_t len = strlen(path);

	if (len >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(ret->sun_path, path, len + 1);
	return ret_errno(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

static int call_connect(int fd, const struct sockaddr_un *to)
{
	int rc;

	do
		rc = ret_errno(connect(fd, (const struct sockaddr *)(const void *)to, sizeof(*to)));
	while (rc == -EINTR);
	return rc;
}

int domain_connect(const char *path, struct err *err)
{
	struct sockaddr_un to;
	int fd = open_socket(path, SOCK_NONBLOCK, &to);
	const int rc = fd < 0 ? fd : call_connect(fd, &to);

	if (rc == 0)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	return err_sys(err, rc, "cannot connect to %s", path);
}

/* The place is free, or holds what a node that is gone has left. */
static int make_room(const char *path, struct err *err)
{
	struct stat st;
	int rc = ret_errno(lstat(path, &st));

	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return err_sys(err, rc, "dfs.domain.socket.path: %s", path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(err, -EEXIST, "dfs.domain.socket.path: %s is there and is no socket",
			       path);
	rc = domain_connect(path, NULL);
	if (rc >= 0)
		(void)close(rc);
	if (rc >= 0 || rc == -EAGAIN)
		return err_set(
			err, -EADDRINUSE,
			"dfs.domain.socket.path: another process listens at %s; a data node of its own path has "
			"_PORT in it",
			path);
	rc = ret_errno(unlink(path));
	return rc < 0 && rc != -ENOENT ? err_sys(err, rc, "dfs.domain.socket.path: %s", path) : 0;
}

int domain_listen(const char *path, struct err *err)
{
	struct sockaddr_un at;
	int rc = make_room(path, err), fd;

	if (rc < 0)
		return rc;
	fd = rc = open_socket(path, 0, &at);
	if (rc >= 0)
		rc = ret_errno(bind(fd, (const struct sockaddr *)(const void *)&at, sizeof(at)));
	if (rc >= 0)
		rc = ret_errno(chmod(path, MODE_ALL));
	if (rc >= 0)
		rc = ret_errno(listen(fd, BACKLOG));
	if (rc >= 0)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	return err_sys(err, rc, "dfs.domain.socket.path: cannot listen at %s", path);
}

/* ---- descriptors ---- */

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(DOMAIN_FDS_MAX * sizeof(int))];
};

int domain_send_fds(int sock, uint8_t byte, const int *fds, int n)
{
	union control c = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.bytes};
	struct cmsghdr *h;
	ssize_t sent;

	m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
	h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	memcpy(CMSG_DATA(h), fds, (size_t)n * sizeof(int));
	do
		sent = sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? neg_errno() : 0;
}

/* All descriptors of @m; those beyond the second one are closed. */
static int take_fds(struct msghdr *m, int ret[DOMAIN_FDS_MAX])
{
	int n = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= h->cmsg_len; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
			if (n < DOMAIN_FDS_MAX)
				ret[n++] = fd;
			else
				(void)close(fd);
		}
	}
	return n;
}

int domain_recv_fds(int sock, uint8_t *ret_byte, int ret_fds[DOMAIN_FDS_MAX], int *ret_n)
{
	union control c = {0};
	struct iovec iov = {ret_byte, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = c.bytes,
			   .msg_controllen = sizeof(c.bytes)};
	int fds[DOMAIN_FDS_MAX], n;
	ssize_t got;

	do
		got = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == EAGAIN ? 0 : neg_errno();
	n = take_fds(&m, fds);
	if (got == 0 || m.msg_flags & MSG_CTRUNC) {
		while (n > 0)
			(void)close(fds[--n]);
		return got == 0 ? -ECONNRESET : -EMFILE;
	}
	memcpy(ret_fds, fds, (size_t)n * sizeof(int));
	*ret_n = n;
	return 1;
}
