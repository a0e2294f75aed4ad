/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/relay.h"

#include <errno.h>
#include <unistd.h>

#include "common/base/err.h"

int relay_write_all(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return neg_errno();
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static char *buffer(const struct relay *r, unsigned i)
{
	return r->memory + (size_t)(i % RELAY_BUFFERS) * r->size;
}

static void *write_them(void *arg)
{
	struct relay *r = arg;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		int rc;

		while (r->written == r->filled && !r->end)
			pthread_cond_wait(&r->news, &r->lock);
		if (r->written == r->filled || r->rc)
			break;
		pthread_mutex_unlock(&r->lock);
		rc = relay_write_all(r->fd, buffer(r, r->written),
				     r->len[r->written % RELAY_BUFFERS]);
		pthread_mutex_lock(&r->lock);
		r->rc = rc;
		r->written++;
		pthread_cond_signal(&r->news);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

int relay_start(struct relay *r, int fd, void *memory, size_t size)
{
	*r = (struct relay){
		.fd = fd, .size = size, .memory = memory, .news = PTHREAD_COND_INITIALIZER};
	pthread_mutex_init(&r->lock, NULL);
	return ret_code(pthread_create(&r->thread, NULL, write_them, r));
}

void *relay_room(struct relay *r)
{
	void *p;

	pthread_mutex_lock(&r->lock);
	while (r->filled - r->written == RELAY_BUFFERS && !r->rc)
		pthread_cond_wait(&r->news, &r->lock);
	p = r->rc ? NULL : buffer(r, r->filled);
	pthread_mutex_unlock(&r->lock);
	return p;
}

void relay_give(struct relay *r, size_t len)
{
	pthread_mutex_lock(&r->lock);
	r->len[r->filled++ % RELAY_BUFFERS] = len;
	pthread_cond_signal(&r->news);
	pthread_mutex_unlock(&r->lock);
}

int relay_end(struct relay *r)
{
	pthread_mutex_lock(&r->lock);
	r->end = true;
	pthread_cond_signal(&r->news);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	return r->rc;
}
