/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/node_page.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/net.h"
#include "common/base/utf8.h"

#define STEP_MS 10000

/* How long the next step may take. */
static uint32_t step_ms(uint64_t deadline_ns)
{
	const uint64_t now = clock_mono_ns(),
		       left_ms = now < deadline_ns ? (deadline_ns - now) / NS_PER_MS : 0;

	return left_ms < STEP_MS ? (uint32_t)left_ms : STEP_MS;
}

static int await(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd p = {.fd = fd, .events = events};
	const int n = poll(&p, 1, (int)step_ms(deadline_ns));

	return n > 0 ? 0 : n < 0 ? neg_errno() : -ETIMEDOUT;
}

static int send_all(int fd, const char *text, uint64_t deadline_ns)
{
	size_t left = strlen(text);

	while (left) {
		const ssize_t n = send(fd, text, left, MSG_NOSIGNAL);
		int rc = n < 0 ? neg_errno() : 0;

		if (rc == -EAGAIN)
			rc = await(fd, POLLOUT, deadline_ns);
		if (rc < 0)
			return rc;
		text += n > 0 ? n : 0;
		left -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Until the peer's end. */
static int receive_all(int fd, uint64_t deadline_ns, char **ret, size_t *ret_len)
{
	size_t len = 0, room = 0;
	char *text = NULL;
	int rc = 0;

	for (;;) {
		ssize_t n;

		if (room - len < 4096) {
			char *more = room >= NODE_PAGE_MAX ? NULL
							   : realloc(text, room ? room * 2 : 65536);

			rc = more ? 0 : room >= NODE_PAGE_MAX ? -EMSGSIZE : -ENOMEM;
			if (rc < 0)
				break;
			text = more;
			room = room ? room * 2 : 65536;
		}
		n = recv(fd, text + len, room - len - 1, 0);
		rc = n < 0 ? neg_errno() : 0;
		if (rc == -EAGAIN)
			rc = await(fd, POLLIN, deadline_ns);
		if (rc < 0 || n == 0)
			break;
		len += n > 0 ? (size_t)n : 0;
	}
	if (rc < 0) {
		free(text);
		return rc;
	}
	text[len] = 0;
	*ret = text;
	*ret_len = len;
	return 0;
}

static void make_plain(char *text, size_t len)
{
	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_char_len(text + i);
		if (!n ||
		    (n == 1 && ((uint8_t)text[i] < 0x20 || text[i] == 0x7f) && text[i] != '\n' &&
		     text[i] != '\t') ||
		    (n == 2 && (uint8_t)text[i] == 0xc2 && (uint8_t)text[i + 1] < 0xa0)) {
			n = n ? n : 1;
			memset(text + i, '?', n);
		}
	}
}

static int take_body(char *text, size_t *len, struct err *err)
{
	char *body = strstr(text, "\r\n\r\n");

	if (strncmp(text, "HTTP/1.", 7) || !body)
		return err_set(err, -EPROTO,
			       "the answer is not HTTP; give the address of the node's web server");
	if (strncmp(text + 8, " 200", 4)) {
		text[strcspn(text, "\r\n")] = 0;
		make_plain(text, strlen(text));
		return err_set(err, -EPROTO, "the node answers '%.80s'", text);
	}
	body += 4;
	*len -= (size_t)(body - text);
	memmove(text, body, *len + 1);
	make_plain(text, *len);
	return 0;
}

int node_page_get(const char *host, unsigned int port, const char *path, uint32_t patience_ms,
		  char **ret, size_t *ret_len, struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + patience_ms * NS_PER_MS;
	struct net_addr at;
	char *text = NULL;
	char *request;
	size_t len = 0;
	int fd, rc = net_resolve(host, (uint16_t)port, &at, err);

	if (rc < 0)
		return rc;
	fd = net_connect(&at, step_ms(deadline), err);
	if (fd < 0)
		return fd;
	if (asprintf(&request, "GET %s HTTP/1.0\r\nHost: %s:%u\r\n\r\n", path, host, port) < 0) {
		(void)close(fd);
		return err_set(err, -ENOMEM, "out of memory");
	}
	rc = send_all(fd, request, deadline);
	free(request);
	rc = rc ?: receive_all(fd, deadline, &text, &len);
	(void)close(fd);
	if (rc < 0)
		return err_sys(err, rc, "http://%s:%u%.200s", host, port, path);
	rc = take_body(text, &len, err);
	if (rc < 0) {
		free(text);
		return rc;
	}
	*ret = text;
	*ret_len = len;
	return 0;
}
